"""Running: plan, make a job of what is to be done, and take part in it until it has ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from instep.documents.reasons import cleaned
from instep.domain.counts import Counts
from instep.domain.jobs import JobPart, JobState
from instep.domain.planning import PlanTooLarge, check_limits
from instep.domain.refs import PartitionRef, instance_id
from instep.errors import InstepError, Transient, Unknown, UserError
from instep.ledger.port import Holder, Lease, NewPart
from instep.service.context import Context
from instep.service.patience import RESUMES, Away
from instep.service.plan import EntityPlan, Kind, PlanOptions, plan_entity
from instep.service.promotion import give_up
from instep.service.recovery import bury_the_dead, misfit, recover
from instep.service.setup import EntitySetup

if TYPE_CHECKING:
    from instep.service.worker import Worker


class Busy(UserError):
    """Another run holds the partition (exit code 75, EX_TEMPFAIL: the same call may work later)."""

    exit_code = 75


@dataclass(frozen=True, slots=True)
class EntityResult:
    """What a run did with one partition. `state` is None when there was nothing to do."""

    plan: EntityPlan
    state: JobState | None
    job_id: str | None
    counts: Counts
    seconds: float
    engine: str | None
    promoted: bool
    notes: Sequence[str]

    def as_dict(self) -> dict[str, Any]:
        return {
            "ref": str(self.plan.ref),
            "kind": str(self.plan.kind),
            "state": str(self.state) if self.state else "UP_TO_DATE",
            "job": self.job_id,
            "counts": self.counts.as_dict(),
            "unchanged": self.plan.difference.unchanged,
            "known_failures": self.plan.difference.known_failures,
            "seconds": round(self.seconds, 3),
            "engine": self.engine,
            "promoted": self.promoted,
            "notes": list(self.notes),
        }

    def followed_by(self, later: EntityResult) -> EntityResult:
        """One result for a job and the one that did what had changed meanwhile."""
        return EntityResult(
            self.plan,
            later.state,
            later.job_id,
            self.counts + later.counts,
            later.seconds,
            later.engine or self.engine,
            self.promoted or later.promoted,
            list(dict.fromkeys([*self.notes, *later.notes])),
        )


def run_entities(
    setups: Sequence[EntitySetup],
    context: Context,
    options: PlanOptions,
    *,
    wait_seconds: float,
    expected: Mapping[str, str] | None = None,
) -> list[EntityResult]:
    """Plan, and do what the plans say. A run that finds nothing to do takes no lease and writes nothing.

    A job that others work on is joined; one that cannot be is waited for, `wait_seconds` at most (`Busy`).
    `expected` maps references to digests of a saved plan: refused when the world has moved since.
    """
    run = _Run(setups, context, options, wait_seconds, expected or {})
    plans = [run.plan(setup) for setup in setups]
    todo = {plan.ref: plan for plan in plans if plan.pending}
    if todo:
        run.go(todo)
    return [run.results.get(plan.ref) or run.nothing(plan) for plan in plans]


class _Run:
    def __init__(
        self,
        setups: Sequence[EntitySetup],
        context: Context,
        options: PlanOptions,
        wait_seconds: float,
        expected: Mapping[str, str],
    ) -> None:
        self._setups = {setup.ref: setup for setup in setups}
        self._context = context
        self._options = options
        self._expected = expected
        self._started = context.clock.monotonic()
        self._deadline = self._started + wait_seconds
        self._told: set[PartitionRef] = set()
        self.results: dict[PartitionRef, EntityResult] = {}

    def plan(self, setup: EntitySetup, *, again: bool = False) -> EntityPlan:
        """A plan that may be run; raises `UserError` when it may not. `again`: after a job of ours."""
        context, entity = self._context, setup.ref.entity
        if context.ledger.checkpoint(setup.ref) is None:
            context.prepare(setup)  # A first build: there is work, so Spark may start while listing and planning go on.
        plan = plan_entity(
            setup,
            context.ledger,
            self._options,
            choose=context.choose,
            listing=lambda found: context.progress.listing(entity, found),
        )
        digest = self._expected.get(str(setup.ref))
        if digest is not None and not again and plan.digest != digest:
            raise UserError(
                f"the saved plan for {setup.ref} is out of date: source, index or project have changed since",
                hint="Plan again: instep plan -o plan.json",
            )
        if plan.blocked:
            raise UserError(
                plan.blocked, where=str(setup.ref), hint="If that is right, run again with --allow-deletes."
            )
        return plan

    def nothing(self, plan: EntityPlan) -> EntityResult:
        return EntityResult(plan, None, None, Counts(), self._seconds(), None, False, list(plan.problems))

    def go(self, todo: dict[PartitionRef, EntityPlan]) -> None:
        from instep.service.worker import Worker  # Brings Arrow: only for runs that have something to do.

        for plan in todo.values():
            self._context.engine(plan.engine)  # Starts while leases are taken and the job is stored.
        worker = Worker(self._setups, self._context, "run")
        try:
            recover(self._context)
            while todo:
                todo = self._round(todo, worker)
        except BaseException as error:
            worker.end(stop="stopped by the user" if isinstance(error, KeyboardInterrupt) else cleaned(str(error)))
            if isinstance(error, (Transient, Unknown)):
                raise Away(str(error), hint=RESUMES) from error
            raise
        worker.end(stop="its other entities were not asked for")

    def _round(self, todo: dict[PartitionRef, EntityPlan], worker: Worker) -> dict[PartitionRef, EntityPlan]:
        """Work on what can be had of `todo`; returns what is to be done after that."""
        start = _Start(todo, self, worker)
        start.get()
        self._work(start, worker)
        # A job that was resumed or joined keeps its old plan: what changed since is done by a second one.
        left = [ref for ref in todo if ref not in start.created and ref not in start.settled]
        plans = [self.plan(self._setups[ref], again=ref in start.taken) for ref in left]
        return {plan.ref: plan for plan in plans if plan.pending}

    def _work(self, start: _Start, worker: Worker) -> None:
        progress, ledger = self._context.progress, self._context.ledger
        for ref, job_id in start.taken.items():
            worker.choices[ref] = start.todo[ref].engine
            job = ledger.job(job_id)
            progress.begin(ref.entity, job.part(ref).units if job else start.todo[ref].units)
            worker.show(job_id, ref)
        try:
            worker.work({(job_id, ref) for ref, job_id in start.taken.items()})
        finally:
            for ref in start.taken:
                progress.end(ref.entity)
        for ref, job_id in start.taken.items():
            self._record(start.todo[ref], job_id, worker)

    def _record(self, plan: EntityPlan, job_id: str, worker: Worker) -> None:
        ref, ledger = plan.ref, self._context.ledger
        job = ledger.job(job_id)
        if job is None or (status := job.part(ref)).state is None:
            reason = f": {job.error}" if job and job.error else ""
            raise UserError(
                f"{ref}: job {job_id} was stopped{reason}",
                hint="Run again to resume it: finished slices are not redone.",
            )
        report = worker.reports[ref]
        notes = [*plan.problems, *report.notes, *([status.error] if status.error else [])]
        checkpoint = ledger.checkpoint(ref)
        result = EntityResult(
            plan,
            status.state,
            job_id,
            status.counts,
            self._seconds(),
            report.engine,
            checkpoint is not None and checkpoint.job_id == job_id,
            list(dict.fromkeys(notes)),
        )
        before = self.results.get(ref)
        self.results[ref] = before.followed_by(result) if before else result

    def _seconds(self) -> float:
        return self._context.clock.monotonic() - self._started

    # For `_Start`.

    @property
    def context(self) -> Context:
        return self._context

    @property
    def options(self) -> PlanOptions:
        return self._options

    def setup(self, ref: PartitionRef) -> EntitySetup:
        return self._setups[ref]

    def wait(self, holder: Holder) -> None:
        """Before the next try to get a lease. Raises `Busy` when the time for waiting is over."""
        context = self._context
        if context.clock.monotonic() >= self._deadline:
            raise Busy(f"{_held(holder)}", hint="Wait for it, or run again with a longer --wait.")
        if holder.ref not in self._told:
            context.progress.say(holder.ref.entity, f"{_held(holder)}; waiting")
            self._told.add(holder.ref)
        context.clock.sleep(context.timing.poll / 1000)
        bury_the_dead(context)


class _Start:
    """One round's beginning: a lease for everything that is to be done, and a job for what is new.

    `taken` maps partitions to the jobs that will do them; `created` are those of a job made here,
    `settled` those that needed nothing any more.
    """

    def __init__(self, todo: Mapping[PartitionRef, EntityPlan], run: _Run, worker: Worker) -> None:
        self.todo = dict(todo)
        self.taken: dict[PartitionRef, str] = {}
        self.created: set[PartitionRef] = set()
        self.settled: set[PartitionRef] = set()
        self._run = run
        self._worker = worker
        self._context = run.context
        self._ledger = run.context.ledger
        self._job_id = run.context.ids.new()
        self._leases: dict[PartitionRef, Lease] = {}

    def get(self) -> None:
        """At least one partition, waiting for it if need be. Raises `Busy` when the wait is over."""
        self._ledger.begin_job(self._job_id, self._worker.id, self._configuration())
        try:
            waited = False
            while not (self.taken or self._leases or self.settled):
                holders = [holder for ref in self.todo if (holder := self._try(ref, waited=waited))]
                if len(holders) == len(self.todo):
                    self._run.wait(holders[0])
                    waited = True
            self._plan_job()
        except BaseException:
            with suppress(InstepError):
                self._ledger.discard_job(self._job_id)
            raise

    def _configuration(self) -> dict[str, Any]:
        return {"entities": [str(ref) for ref in self.todo], **asdict(self._run.options)}

    def _try(self, ref: PartitionRef, *, waited: bool) -> Holder | None:
        """Get the partition's lease or join its job; else say who holds it."""
        answer = self._acquire(ref, self._job_id)
        if isinstance(answer, Holder):
            return None if self._join(answer) else answer
        resumed, answer = self._take_over(ref, answer)
        if resumed or isinstance(answer, Holder):
            return answer if isinstance(answer, Holder) else None
        if waited or self._world_moved(ref):
            self.todo[ref] = self._run.plan(self._run.setup(ref))
        if self.todo[ref].pending:
            self._leases[ref] = answer
        else:
            self._ledger.release_lease(answer)
            self._worker.keeper.drop(ref)
            self.settled.add(ref)
        return None

    def _acquire(self, ref: PartitionRef, job_id: str) -> Lease | Holder:
        since = self._context.clock.monotonic()
        answer = self._ledger.acquire_lease(ref, job_id, self._worker.id)
        if isinstance(answer, Lease):
            self._worker.keeper.keep(answer, since=since)
        return answer

    def _join(self, holder: Holder) -> bool:
        """Take part in the job that holds the partition, if it does what this run would do."""
        job = self._ledger.job(holder.job_id)
        status = next((each for each in job.parts if each.part.ref == holder.ref), None) if job else None
        if self._run.options.full_refresh or status is None or status.state is not None:
            return False
        if misfit(self._run.setup(holder.ref), status.part) or not self._worker.join(holder.job_id, status.part):
            return False
        self._context.progress.say(holder.ref.entity, f"{_held(holder)}; joining it")
        self.taken[holder.ref] = holder.job_id
        return True

    def _take_over(self, ref: PartitionRef, lease: Lease) -> tuple[bool, Lease | Holder]:
        """Resume the job that left the partition unfinished, if there is one; or give it up, if it cannot be."""
        left = self._ledger.unfinished_job(ref)
        if left is None:
            return False, lease
        setup, since = self._run.setup(ref), self._context.clock.monotonic()
        lease = self._ledger.transfer_lease(lease, left.id)
        self._worker.keeper.keep(lease, since=since)
        self._ledger.join_job(left.id, self._worker.id)
        part = self._ledger.adopt_part(lease)
        why = "a full refresh was asked" if self._run.options.full_refresh else misfit(setup, part)
        if why is None:
            self._ledger.start_job(left.id)
            self._worker.take(part, lease)
            self.taken[ref] = left.id
            return True, lease
        give_up(setup, part, self._ledger, job_id=left.id, worker_id=self._worker.id, why=why)
        return False, self._acquire(ref, self._job_id)

    def _world_moved(self, ref: PartitionRef) -> bool:
        """Whether another run did something between our plan and our lease."""
        plan = self.todo[ref]
        return plan.resumes is not None or self._ledger.checkpoint(ref) != plan.checkpoint

    def _plan_job(self) -> None:
        """Store what is new as a job; forget it if nothing is."""
        if not self._leases:
            self._ledger.discard_job(self._job_id)
            return
        try:
            check_limits(len(self.todo[ref].slices) for ref in self._leases)
        except PlanTooLarge as error:
            raise UserError(str(error)) from error
        parts = [self._new_part(self.todo[ref], lease) for ref, lease in self._leases.items()]
        others = any(each.id != self._worker.id for each in self._ledger.workers())
        self._ledger.plan_job(self._job_id, parts, stagger=others)
        self._ledger.start_job(self._job_id)
        for new in parts:
            self._worker.take(new.part, self._leases[new.part.ref])
            self.taken[new.part.ref] = self._job_id
            self.created.add(new.part.ref)

    def _new_part(self, plan: EntityPlan, lease: Lease) -> NewPart:
        setup, checkpoint = self._run.setup(plan.ref), plan.checkpoint
        if plan.kind is Kind.REFRESH and checkpoint:
            instance, physical, fresh = checkpoint.instance, checkpoint.physical, False
            base = setup.target.fence(physical, lease.epoch) if setup.target.exists(physical) else -1
            if base < 0:
                raise UserError(
                    f"the index of {setup.ref} ({physical}) is gone from target {setup.target_name!r}",
                    hint="Build it again: instep run --full-refresh",
                )
        else:
            instance = str(instance_id(setup.ref, self._ledger.next_sequence(setup.ref)))
            physical, fresh, base = setup.physical(instance), True, 0
        part = JobPart(setup.ref, instance, physical, setup.fingerprint, setup.buckets, lease.epoch, base, fresh)
        return NewPart(part, plan.slices)


def _held(holder: Holder) -> str:
    who = holder.workers[0]
    more = f" and {len(holder.workers) - 1} more" if len(holder.workers) > 1 else ""
    return (
        f"{holder.ref} is being indexed by process {who.pid} on {who.host}{more} "
        f"(worker {who.id[:8]}, job {holder.job_id[:8]})"
    )
