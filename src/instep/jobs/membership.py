"""The membership of one registered worker in jobs: which parts it works on, and under which leases."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from instep.domain.jobs import JobPart, JobState, OpenPart
from instep.domain.refs import PartitionRef
from instep.domain.requests import Group
from instep.domain.texts import cleaned
from instep.entities.setup import EntitySetup
from instep.errors import Conflict, Fenced, InstepError, Transient, Unknown
from instep.jobs.heartbeat import Heartbeat, Kind, Registration
from instep.jobs.job_spans import trace_of
from instep.jobs.live_refresh import LiveRefresh
from instep.jobs.shared_indexes import make_index
from instep.ledger.leases import Holder, Lease
from instep.planning.context import Context
from instep.planning.plan import as_job_says
from instep.planning.upstream import PartKey, Setups, Waiting

if TYPE_CHECKING:
    from instep.jobs.wave import WaveRunner  # Imports Arrow.


@dataclass
class PartContext:
    """One part that a worker works on: its lease, whether its upstream is ready, and its wave runner once one was
    needed.

    `fenced`: the target has seen the part's epoch, in the version that is its base. `sound`: see
    `EntitySetup.as_recorded`. `traceparent` is the job's span. `lost`: the index of a build, or a table of it, is gone
    with what finished slices have written, so no worker can continue it.
    """

    setup: EntitySetup
    part: JobPart
    lease: Lease
    fenced: bool = False
    sound: bool = False
    ready: bool = False
    runner: WaveRunner | None = None
    traceparent: str = ""
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Aside:
    """A part that a worker leaves to others `until` then (monotonic seconds), when so many slices were `pending`."""

    until: float
    pending: int


@dataclass
class Report:
    """Engine and notes of one partition, for the result; and the seconds of CPU that its tasks have used."""

    engine: str | None = None
    task_cpu: float = 0.0
    notes: list[str] = field(default_factory=list)


class Membership:
    """Takes, joins, adopts and leaves parts for a worker. `waiting` are its parts that wait for other partitions."""

    def __init__(self, setups: Setups, context: Context, kind: Kind) -> None:
        self._setups = setups
        self._context = context
        self._kind = kind
        self._aside: dict[PartKey, Aside] = {}
        self.waiting = Waiting(context)
        self._register()

    def _register(self) -> None:
        """Register under a new id, without parts. If that fails, the old id stays and counts as lost."""
        self._part_contexts: dict[PartKey, PartContext] = {}
        self._live_refresh: dict[PartKey, LiveRefresh] = {}
        self._jobs: set[str] = set()
        #: Parts whose lease call got no reply, or that could not be joined: maybe no worker knows their lease.
        self._unsure: set[PartKey] = set()
        self._registration = Registration(self._context, self._kind)

    @property
    def id(self) -> str:
        """The worker's id."""
        return self._registration.id

    @property
    def heartbeat(self) -> Heartbeat:
        return self._registration.heartbeat

    @property
    def parts(self) -> frozenset[PartKey]:
        """The parts that the worker takes part in."""
        return frozenset(self._part_contexts)

    @property
    def jobs(self) -> frozenset[str]:
        """The jobs that it takes part in."""
        return frozenset(self._jobs)

    def tell(self, ref: PartitionRef, message: str) -> None:
        """Report to the log of a worker. A run shows bars instead."""
        if self._kind == "worker":
            self._context.progress.say(ref.label, message)

    def group(self, ref: PartitionRef) -> Group | None:
        """The group whose limit holds for this worker there; a run by hand keeps to none."""
        return self._context.group(ref) if self._kind == "worker" else None

    # Coming.

    def take(
        self, part: JobPart, lease: Lease, *, fenced: bool = False, sound: bool = False, leads: bool = False
    ) -> None:
        """Work on a part whose lease the worker holds for its job. `fenced` and `sound`: see `PartContext`. `leads`: it
        made the job (see `LiveRefresh`).
        """
        self._jobs.add(lease.job_id)
        setup = as_job_says(self._setups[part.ref], self._context.ledger, lease.job_id)
        lost = part.fresh and self._is_lost(setup, part, lease.job_id)
        if part.fresh and not lost:
            make_index(setup, part.physical, self._context)
        trace = trace_of(lease.job_id, self._context.ledger)
        key = lease.job_id, part.ref
        self._part_contexts[key] = PartContext(setup, part, lease, fenced, sound, traceparent=trace, lost=lost)
        # The live refresh outlives the part's context, which is replaced under another epoch.
        known = {each: found for each, found in self._live_refresh.items() if each in self._part_contexts}
        made = LiveRefresh(setup, self._context, lease.job_id, self.heartbeat, part.epoch if leads else None)
        self._live_refresh = {key: made} | known

    def _is_lost(self, setup: EntitySetup, part: JobPart, job_id: str) -> bool:
        job = self._context.ledger.jobs.get(job_id)
        return job is not None and job.part(part.ref).counts.read > 0 and not setup.target.exists(part.physical)

    def join(self, job_id: str, part: JobPart) -> bool:
        """Take part in a job of other workers. False if its lease was lost."""
        ledger, since, again = self._context.ledger, self._context.clock.monotonic(), job_id in self._jobs
        try:
            ledger.jobs.join(job_id, self.id)
            lease = ledger.leases.renew(Lease(part.ref, job_id, part.epoch, 0))
        except (Conflict, Fenced):
            if not again:  # The last worker that leaves a job frees its lease.
                ledger.jobs.leave(job_id, self.id)
            return False
        self.heartbeat.keep(lease, since=since)
        self.take(part, lease)
        if not again:
            self.tell(part.ref, f"takes part in job {job_id[:8]}")
        return True

    def adopt(self, job_id: str, ref: PartitionRef) -> bool:
        """Take over a part without a worker. False if another worker was faster."""
        ledger, since = self._context.ledger, self._context.clock.monotonic()
        try:
            lease = ledger.leases.acquire(ref, job_id, self.id, self.group(ref))
            if not isinstance(lease, Lease):
                return False
            part = ledger.parts.adopt(lease)
        except (Conflict, Fenced):
            return False
        self.heartbeat.keep(lease, since=since)
        self.take(part, lease)
        self.tell(ref, f"resumes job {job_id[:8]}, which has no worker")
        return True

    def context_of(self, each: OpenPart) -> PartContext | None:
        """The context of an open part; joins or adopts it first if there is none under the current epoch. None if the
        worker cannot work on it now.
        """
        key = each.key
        if key in self._unsure and self._regain(each):
            return self._part_contexts[key]
        part_context = self._part_contexts.get(key)
        if part_context and each.held and part_context.part.epoch == each.part.epoch:
            return part_context
        self.forget(key)
        aside = self._aside.get(key)
        if aside is not None and aside.until > self._context.clock.monotonic():
            return None
        if not self._setups[each.part.ref].fits(each.part):
            return None
        if each.held and not self.join(each.job_id, each.part):
            self._unsure.add(key)  # If this is still so at the next look, the holder of the new lease has died.
        elif not each.held:
            self.adopt(each.job_id, each.part.ref)
        return self._part_contexts.get(key)

    def _regain(self, each: OpenPart) -> bool:
        """Take over a part whose new lease was never adopted, because the reply to the lease was lost or its holder
        died. Whether it was so. One more epoch is taken: any other holder of that lease is rejected by then.
        """
        ledger, ref, since = self._context.ledger, each.part.ref, self._context.clock.monotonic()
        held = ledger.leases.acquire(ref, each.job_id, self.id)
        self._unsure.discard(each.key)
        if isinstance(held, Holder):
            if held.job_id != each.job_id or held.epoch <= each.part.epoch:
                return False
            torn = Lease(ref, held.job_id, held.epoch, held.expires_at)
            self._unsure.add(each.key)
            ledger.jobs.join(torn.job_id, self.id)
            held = ledger.leases.transfer(torn, torn.job_id)
        self._unsure.add(each.key)
        part = ledger.parts.adopt(held)
        self._unsure.discard(each.key)
        self.forget(each.key)
        self.heartbeat.keep(held, since=since)
        self.take(part, held)
        return True

    def known(self, key: PartKey) -> PartContext | None:
        """The context that there is, whatever its epoch."""
        return self._part_contexts.get(key)

    def live_refresh(self, key: PartKey) -> LiveRefresh:
        """The live refresh of a part that the worker has taken."""
        return self._live_refresh[key]

    def doubt(self, key: PartKey) -> None:
        """A call about the part got no reply: the lease may be new without a worker that knows it."""
        self._unsure.add(key)

    # Going.

    def forget(self, key: PartKey) -> None:
        """Work on the part no more. The worker goes on taking part in its job."""
        self._part_contexts.pop(key, None)
        self.waiting.forget(key)
        self.heartbeat.drop(key[1])

    def set_aside(self, each: OpenPart, why: str) -> bool:
        """Leave a part until the next sweep, because of an error. Workers of other processes may go on; if there are
        none, or they have done nothing since it was left for the last time, it stops, with the error. Whether it has.
        """
        key, ledger = each.key, self._context.ledger
        before = self._aside.get(key)
        left_alone = before is not None and before.pending == each.pending and not each.processing
        self._aside[key] = Aside(self._context.clock.monotonic() + self._context.timing.sweep / 1000, each.pending)
        self.forget(key)
        stopped, alone = False, () if left_alone else tuple(self._context.own_workers)
        with suppress(Conflict, Transient, Unknown):
            stopped = ledger.parts.stop(each.job_id, each.part.ref, cleaned(why), by=self.id, alone=alone)
            if stopped:  # How long it pauses is for the caller that begins it again to say.
                del self._aside[key]
            if each.job_id not in {job_id for job_id, _ in self._part_contexts}:
                self._jobs.discard(each.job_id)
                ledger.jobs.leave(each.job_id, self.id)
        return stopped

    def acknowledge(self, job_id: str) -> None:
        """Release the reservations of a stopped job; if that fails now, they expire."""
        for (job, _), part_context in self._part_contexts.items():
            if job == job_id:
                with suppress(InstepError):
                    part_context.setup.acknowledge(part_context.part, self._context.ledger, job_id)

    def forget_what_ended(self) -> None:
        """Forget jobs that the worker no longer takes part in: a worker lives for months."""
        mine = next((each for each in self._context.ledger.workers.all() if each.id == self.id), None)
        if mine is not None:
            self._jobs &= set(mine.job_ids)
        self._aside = {key: aside for key, aside in self._aside.items() if self._is_open(key)}
        self._unsure = {key for key in self._unsure if key[0] in self._jobs}

    def _is_open(self, key: PartKey) -> bool:
        job = self._context.ledger.jobs.get(key[0])
        return job is not None and not job.state.ended and job.part(key[1]).state is None

    def register_again(self) -> None:
        """Register again, without parts, after others declared the worker dead."""
        self._context.progress.say("workers", f"worker {self.id[:8]} was silent for too long; it registers again")
        self._registration.evict()
        self._register()

    def end(self, *, stop: Callable[[str], str] | None = None) -> None:
        """End in good order: slices go back without losing an attempt. With `stop`, which gives the reason by the job's
        id, jobs without any other worker are STOPPED. The order matters: another worker must find a lease free, or its
        holder alive.
        """
        self._registration.silence()
        try:
            with suppress(Transient, Unknown):  # The missing proof of life or heartbeat tells the others.
                jobs = sorted(self._jobs)
                self.forget_what_ended()
                for job_id in jobs:
                    ended, why = job_id not in self._jobs, stop(job_id) if stop else None
                    if ended or self._context.ledger.jobs.leave(job_id, self.id, stop=why) is JobState.STOPPED:
                        self.acknowledge(job_id)
                self._registration.retire()
        finally:
            self._registration.end()
