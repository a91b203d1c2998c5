"""Job acquisition: take the leases, join or resume the jobs that exist, and store a new job for the rest."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from typing import Any, Final

from instep.domain.events import InstanceExpired
from instep.domain.fingerprint import changed_parts
from instep.domain.instances import InstanceState
from instep.domain.jobs import Job, JobPart
from instep.domain.planning import PlanTooLarge, check_limits
from instep.domain.refs import PartitionRef
from instep.domain.status import IndexState
from instep.entities.ownership import is_taken, newer_elsewhere, unused, vanished
from instep.entities.plan_request import Kind
from instep.entities.setup import EntitySetup
from instep.errors import Conflict, Fenced, InstepError, Outdated, UserError
from instep.jobs.finish import give_up
from instep.jobs.job_spans import TRACEPARENT
from instep.jobs.membership import Membership
from instep.jobs.recovery import release_dead_processes
from instep.jobs.shared_indexes import demand_no_refresh, make_index
from instep.ledger.leases import Holder, Lease
from instep.ledger.parts import NewPart
from instep.planning.loaded import LOADED, loaded_for
from instep.planning.plan import EntityPlan, allowed_since, is_over, reason_of
from instep.planning.planner import Planner
from instep.planning.upstream import upstream_of
from instep.telemetry.context import in_trace

#: Plans are made again at most this often when an instance is tainted or expired before the job is stored.
REPLANS = 5
#: An index of so many rows that was counted is not counted again for so many seconds.
_LARGE: Final = 20_000
_SOUND_AGAIN: Final = 30.0


class Busy(UserError):
    """Raised when another run holds the partition (exit code 75, EX_TEMPFAIL: the same call may work later)."""

    exit_code = 75


class Stopped(UserError):
    """Raised when a user has stopped the job."""


class Acquisition:
    """The first step of a round: a lease for each partition that has work, and a job for the new work.

    `taken` maps partitions to the jobs that do their work; `created` are those of the job made here, `idle` those
    with nothing left to do, `refused` those that cannot be started, with the error (if all are refused, it is raised
    instead). `demand` is called once the leases for a new job are held, and raises when the request for it has been
    withdrawn.
    """

    def __init__(
        self,
        todo: Mapping[PartitionRef, EntityPlan],
        planner: Planner,
        member: Membership,
        *,
        deadline: float,
        demand: Callable[[], None] | None = None,
    ) -> None:
        self.todo = dict(todo)
        self.taken: dict[PartitionRef, str] = {}
        self.created: set[PartitionRef] = set()
        self.idle: set[PartitionRef] = set()
        self.refused: dict[PartitionRef, InstepError] = {}
        self._planner = planner
        self._member = member
        self._had = member.parts
        self._deadline = deadline
        self._demand = demand
        self._context = planner.context
        self._ledger = planner.context.ledger
        self._job_id = planner.context.ids.new()
        self._told: set[PartitionRef] = set()
        self._sound: set[PartitionRef] = set()
        self._leases: dict[PartitionRef, Lease] = {}
        #: A job has one trace: that of the first request.
        self._made_in = next((plan.traceparent for plan in todo.values() if plan.traceparent), "")

    @property
    def progressed(self) -> bool:
        """Whether the worker got a part that it did not have. Joining a job that it takes part in already does not
        count: there may be nothing to do in it yet, for example while another worker resumes it.
        """
        return not self._member.parts <= self._had

    def get(self) -> None:
        """Get at least one partition, waiting for it if necessary. Raises `Busy` when the time to wait is over."""
        self.hold()
        self.store()

    def hold(self) -> None:
        """The first half of `get`: afterwards only the job of the new work is missing. See `give_back`."""
        with self._whole():
            self._ledger.jobs.begin(self._job_id, self._member.id, self._configuration())
            waited = False
            while not (self.taken or self._leases or self.idle):
                holders = []
                for ref in list(self.todo):
                    with self._refusing(ref):
                        holder = self._try(ref, waited=waited)
                        holders += [holder] if holder else []
                if holders and len(holders) == len(self.todo):
                    self._wait(holders[0])
                    waited = True
            if self._leases and self._demand:
                self._demand()

    def store(self) -> None:
        """The second half of `get`: store the new work as a job."""
        with self._whole():
            self._plan_job()

    def give_back(self) -> None:
        """Give back the leases for new work that was not stored."""
        with suppress(InstepError):
            self._release()
            self._ledger.jobs.discard(self._job_id)

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Give back on any error. All is in the job's trace."""
        with in_trace(self._made_in):
            try:
                yield
            except BaseException:
                self.give_back()
                raise

    @contextmanager
    def _refusing(self, ref: PartitionRef) -> Iterator[None]:
        """Take a partition with a user's error out of the round, so that the others go on. Raises the error if it was
        the last.
        """
        try:
            yield
        except UserError as error:
            if len(self.todo) == 1:
                raise
            del self.todo[ref]
            self.refused[ref] = error
            if lease := self._leases.pop(ref, None):
                self._planner.setups[ref].release(self._ledger, self._job_id)
                self._ledger.leases.release(lease)
            self._member.heartbeat.drop(ref)

    def _wait(self, holder: Holder) -> None:
        """Wait before the next try. Raises `Busy` when the time to wait is over."""
        context = self._context
        if context.clock.monotonic() >= self._deadline:
            raise Busy(held_text(holder), hint="Wait for it, or run again with a longer --wait.")
        if holder.ref not in self._told:
            context.progress.say(holder.ref.label, f"{held_text(holder)}; waiting")
            self._told.add(holder.ref)
        context.clock.sleep(context.timing.poll / 1000)
        release_dead_processes(context)

    def _configuration(self) -> dict[str, Any]:
        found = {str(ref): said for ref, plan in self.todo.items() if (said := plan.settings.as_dict())}
        settings = {"settings": found} if found else {}
        trace = {TRACEPARENT: self._made_in} if self._made_in else {}
        loaded = {LOADED: self._context.loaded.at} if self._context.loaded else {}
        options = asdict(self._planner.options)
        return {"entities": [str(ref) for ref in self.todo], **options, **settings, **trace, **loaded}

    def _try(self, ref: PartitionRef, *, waited: bool) -> Holder | None:
        """Get the partition's lease or join its job; else return its holder."""
        answer = self._acquire(ref, self._job_id)
        if isinstance(answer, Holder):
            return None if self._join(answer) else answer
        resumed, answer = self._take_over(ref, answer)
        if resumed or isinstance(answer, Holder):
            return answer if isinstance(answer, Holder) else None
        if waited or self._changed_since_plan(ref):
            self.todo[ref] = self._planner.plan(ref, self.todo[ref].generation)
        if self.todo[ref].pending:
            self._leases[ref] = answer
        else:
            self._release_idle(answer)
        return None

    def _release_idle(self, lease: Lease) -> None:
        """Release the lease of a partition that has nothing left to do."""
        self._ledger.leases.release(lease)
        self._member.heartbeat.drop(lease.ref)
        self.idle.add(lease.ref)

    def _acquire(self, ref: PartitionRef, job_id: str) -> Lease | Holder:
        since = self._context.clock.monotonic()
        answer = self._ledger.leases.acquire(ref, job_id, self._member.id, self._member.group(ref))
        if isinstance(answer, Lease):
            self._member.heartbeat.keep(answer, since=since)
        return answer

    def _join(self, holder: Holder) -> bool:
        """Take part in the job that holds the partition, if it does what this run would do."""
        job = self._ledger.jobs.get(holder.job_id)
        status = next((each for each in job.parts if each.part.ref == holder.ref), None) if job else None
        if self._planner.options.full_refresh or status is None or status.state is not None or status.stopped:
            return False
        if status.part.generation != self.todo[holder.ref].generation:
            return False
        setup = self._planner.setups[holder.ref]
        if setup.misfit(status.part) or setup.outgrown(status.part):
            return False
        if not self._member.join(holder.job_id, status.part):
            return False
        self._context.progress.say(holder.ref.label, f"{held_text(holder)}; joining it")
        self.taken[holder.ref] = holder.job_id
        return True

    def _take_over(self, ref: PartitionRef, lease: Lease) -> tuple[bool, Lease | Holder]:
        """Resume the unfinished job of the partition, if there is one; give it up if it cannot be resumed."""
        left = self._ledger.jobs.unfinished(ref, self.todo[ref].generation)
        if left is None:
            return False, lease
        self._leave_newer(left, lease)
        setup, since = self._planner.setups[ref], self._context.clock.monotonic()
        lease = self._ledger.leases.transfer(lease, left.id)
        self._member.heartbeat.keep(lease, since=since)
        self._ledger.jobs.join(left.id, self._member.id)
        part = self._ledger.parts.adopt(lease)
        asked = "a full refresh was asked" if self._planner.options.full_refresh else None
        if not asked and allowed_since(left, setup, self._planner.options):
            asked = "deletes are allowed by now"
        why = asked or setup.misfit(part) or setup.outgrown(part)
        if why is None:
            self._ledger.jobs.start(left.id)
            self._member.take(part, lease)
            self._tell(part)
            self.taken[ref] = left.id
            return True, lease
        give_up(setup, part, self._ledger, job_id=left.id, worker_id=self._member.id, why=why)
        return False, self._acquire(ref, self._job_id)

    def _leave_newer(self, left: Job, lease: Lease) -> None:
        """Give the lease back if the job was made by newer code or settings. Raises `Outdated` then."""
        part, loaded = left.part(lease.ref).part, self._context.loaded
        if loaded is None:
            return
        changed = changed_parts(self._planner.setups[lease.ref].fingerprint, part.fingerprint)
        try:
            built = self._ledger.instances.get(part.instance)
            loaded.demand_newest(lease.ref, changed, built, loaded_for(built, self._ledger))
        except Outdated:
            self._ledger.leases.release(lease)
            self._member.heartbeat.drop(lease.ref)
            raise

    def _changed_since_plan(self, ref: PartitionRef) -> bool:
        """Whether the partition changed since its plan: another run had the lease, or its instance is tainted."""
        plan, ledger = self.todo[ref], self._ledger
        return (
            plan.resumes is not None
            or ledger.checkpoints.get(ref, plan.generation) != plan.checkpoint
            or ledger.instances.canonical(ref, plan.generation) != plan.current
        )

    def _plan_job(self) -> None:
        """Store the new work as a job; discard the job if there is none. Instances can change until it is stored."""
        for _ in range(REPLANS):
            if not self._leases:
                self._ledger.jobs.discard(self._job_id)
                return
            try:
                self._reserve()
                self._store_job()
            except Conflict as error:
                if not any(self._changed_since_plan(ref) for ref in self._leases):
                    raise
                problem = error
                self._plan_again()
            else:
                return
        raise UserError(
            f"the plan was outdated {REPLANS} times before its job could begin: {problem}",
            hint="Its instances are tainted, expired or rebuilt again and again: see `instep history`, then run again.",
        )

    def _reserve(self) -> None:
        """Reserve keys that other jobs could take. A refresh of which no slice is left is idle."""
        for ref, lease in list(self._leases.items()):
            plan = self.todo[ref]
            slices = self._planner.setups[ref].reserve(plan.slices, self._ledger, self._job_id)
            self.todo[ref] = replace(plan, found=replace(plan.found, slices=slices))
            if plan.slices and not slices and plan.kind is Kind.REFRESH:
                del self._leases[ref]
                self._release_idle(lease)

    def _release(self) -> None:
        for ref in self._leases:
            self._planner.setups[ref].release(self._ledger, self._job_id)

    def _plan_again(self) -> None:
        self._release()
        for ref, lease in list(self._leases.items()):
            self.todo[ref] = self._planner.plan(ref, self.todo[ref].generation)
            if not self.todo[ref].pending:
                del self._leases[ref]
                self._release_idle(lease)

    def _store_job(self) -> None:
        if not self._leases:
            self._ledger.jobs.discard(self._job_id)
            return
        try:
            check_limits(len(self.todo[ref].slices) for ref in self._leases)
        except PlanTooLarge as error:
            raise UserError(str(error)) from error
        parts = []
        for ref, lease in list(self._leases.items()):
            with self._refusing(ref):
                parts.append(self._new_part(self.todo[ref], lease))
        if not parts:
            self._ledger.jobs.discard(self._job_id)
            return
        others = any(each.id not in self._context.own_workers for each in self._ledger.workers.all())
        self._ledger.parts.plan(self._job_id, parts, stagger=others)
        # No refresh: a worker has any number of them, and they build nothing.
        if self._context.loaded and any(new.part.fresh for new in parts):
            self._context.loaded.own_jobs.add(self._job_id)
        self._ledger.jobs.start(self._job_id)
        for new in parts:
            # A fresh part may need an index of its own, which does not exist yet.
            self._member.take(
                new.part,
                self._leases[new.part.ref],
                fenced=not new.part.fresh,
                sound=new.part.ref in self._sound,
                leads=True,
            )
            self._tell(new.part)
            self.taken[new.part.ref] = self._job_id
            self.created.add(new.part.ref)

    def _tell(self, part: JobPart) -> None:
        first = self._ledger.checkpoints.get(part.ref, part.generation) is None
        state = IndexState.BACKFILLING if first else IndexState.INDEXING
        self._context.status_reporter.tell(part.ref, state, epoch=part.epoch)

    def _new_part(self, plan: EntityPlan, lease: Lease) -> NewPart:
        setup, checkpoint = self._planner.setups[plan.ref], plan.checkpoint
        if plan.kind is Kind.REFRESH and checkpoint:
            instance, physical, fresh = checkpoint.instance, checkpoint.physical, False
            if self._planner.options.repair and not setup.scanned:
                setup.create(physical)  # The whole index may be gone. Tables are built again.
            base = self._fence(setup, physical, lease) if setup.target.exists(physical) else -1
            if base < 0:
                raise vanished(setup, physical, self._ledger)
        else:
            self._expire(setup, plan.generation)
            instance = self._ledger.instances.new(lease, reason_of(plan), generation=plan.generation)
            physical, fresh = setup.physical(instance, plan.generation), True
            there = setup.target.exists(physical) if setup.in_place else is_taken(setup, physical)
            if not there:
                demand_no_refresh(setup, physical, self._ledger)
                if setup.in_place:  # Of jobs that begin to share it, each has to have a version of its own.
                    make_index(setup, physical, self._context)
            base = self._fence(setup, physical, lease) if there or setup.in_place else 0
            if there and not setup.in_place:
                physical, base = unused(setup, instance, plan.generation), 0
        others = ((ref, self.todo[ref]) for ref in self._leases)
        beside = {ref: (other.generation, other.found.target) for ref, other in others}
        upstream = upstream_of(setup, self._ledger, job_id=self._job_id, beside=beside)
        part = JobPart(
            setup.ref,
            instance,
            physical,
            setup.fingerprint,
            setup.buckets,
            lease.epoch,
            base,
            fresh,
            revision=setup.revision(),
            inputs=upstream.inputs,
            generation=plan.generation,
            target=plan.found.target,
        )
        sound = not part.fresh and self._is_sound(setup, part)
        self._sound = self._sound | {part.ref} if sound else self._sound - {part.ref}
        options = self._planner.options
        return NewPart(
            part,
            plan.slices,
            upstream.missed(self._job_id, instance, self._context.ids),
            lost=plan.found.lost,
            allowed=options.allow_deletes or options.allow_empty,
            seen=plan.found.seen,
        )

    def _is_sound(self, setup: EntitySetup, part: JobPart) -> bool:
        """See `EntitySetup.as_recorded`. The target counts all rows for it: those of a large index not again for each
        of the jobs that a worker begins within seconds on a topic.
        """
        known, now = self._context.sound, self._context.clock.monotonic()
        if not self._planner.options.repair and known.get(part.instance, -math.inf) > now - _SOUND_AGAIN:
            return True
        known.pop(part.instance, None)
        found = setup.as_recorded(part, self._ledger)
        if found and self._ledger.documents.totals(part.instance)[1] >= _LARGE:
            known[part.instance] = now
        return found

    def _fence(self, setup: EntitySetup, physical: str, lease: Lease) -> int:
        try:
            return setup.target.fence(physical, lease.epoch)
        except Fenced as error:
            raise newer_elsewhere(setup, physical, lease, self._ledger, error) from error

    def _expire(self, setup: EntitySetup, generation: str) -> None:
        current = self._ledger.instances.canonical(setup.ref, generation)
        if current and current.state is InstanceState.LIVE and is_over(setup, current, self._ledger):
            self._ledger.events.append([InstanceExpired(instance=current.uuid, ttl=setup.ttl or 0)])


def held_text(holder: Holder) -> str:
    who = holder.workers[0]
    more = f" and {len(holder.workers) - 1} more" if len(holder.workers) > 1 else ""
    return (
        f"{holder.ref} is being indexed by process {who.pid} on {who.host}{more} "
        f"(worker {who.id[:8]}, job {holder.job_id[:8]})"
    )
