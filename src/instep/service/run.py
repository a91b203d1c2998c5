"""Running: bring one partition in step with its source, by a job of fenced slices run as waves."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from instep.domain.clock import Clock, Ids
from instep.domain.counts import Counts
from instep.domain.fingerprint import changed_parts
from instep.domain.jobs import Job, JobPart, JobState, end_of_job
from instep.domain.refs import instance_id
from instep.engine.choice import EngineChoice
from instep.engine.port import Engine
from instep.errors import Conflict, Fenced, InstepError, UserError
from instep.ledger.port import Holder, Lease, Ledger, NewPart
from instep.service.keeper import Keeper
from instep.service.liveness import WorkerLock, forget, proved_dead
from instep.service.plan import EntityPlan, Kind, PlanOptions, part_of, plan_entity
from instep.service.progress import Progress
from instep.service.promotion import promotion_problem
from instep.service.setup import EntitySetup

#: An index that is not served any more stays this long, for readers that have it open.
SWEEP_SECONDS = 3600.0
#: How often a waiting run looks whether the lease is free, in seconds.
POLL_SECONDS = 0.5


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


@dataclass(frozen=True, slots=True)
class RunContext:
    """What every run needs besides the entity. `engine` starts or hands out an engine by choice;
    `prepare` starts the one that is certain before anything is known of the work, if there is one.
    """

    ledger: Ledger
    clock: Clock
    ids: Ids
    state: Path
    progress: Progress
    choose: Callable[[EntitySetup, int], EngineChoice]
    engine: Callable[[EngineChoice], Engine]
    prepare: Callable[[EntitySetup], None]
    wait_seconds: float
    options: PlanOptions


def run_entity(setup: EntitySetup, context: RunContext, *, expected_digest: str | None = None) -> EntityResult:
    """Plan, and do what the plan says. A run that finds nothing to do takes no lease and writes nothing.

    `expected_digest` runs a saved plan: refused when the world has moved since.
    """
    started = context.clock.monotonic()
    if context.ledger.checkpoint(setup.ref) is None:
        context.prepare(setup)  # A first build: there is work, so Spark may start while listing and planning go on.
    plan = _plan(setup, context, expected_digest)
    if not plan.pending:
        return _nothing(plan, context.clock.monotonic() - started)
    context.engine(plan.engine)  # Or while the lease is taken and the job is stored.
    worker = _Worker(context)
    try:
        lease, waited = worker.lease(setup)
        if waited or _world_moved(setup, plan, context.ledger):
            plan = _plan(setup, context, expected_digest)
            if not plan.pending:
                return _nothing(plan, context.clock.monotonic() - started)
        result = _run_plan(setup, plan, context, worker, lease=lease, started=started)
    finally:
        worker.end()
    if plan.resumes and result.state in (JobState.COMPLETED, JobState.COMPLETED_WITH_ERRORS):
        return _after_resume(setup, context, result)
    return result


def _plan(setup: EntitySetup, context: RunContext, expected_digest: str | None) -> EntityPlan:
    """A plan that may be run; raises `UserError` when it may not."""
    entity = setup.ref.entity
    plan = plan_entity(
        setup,
        context.ledger,
        context.options,
        choose=context.choose,
        listing=lambda found: context.progress.listing(entity, found),
    )
    if expected_digest is not None and plan.digest != expected_digest:
        raise UserError(
            f"the saved plan for {setup.ref} is out of date: the source, the index or the project has changed since",
            hint="Plan again: instep plan -o plan.json",
        )
    if plan.blocked:
        raise UserError(plan.blocked, where=str(setup.ref), hint="If that is right, run again with --allow-deletes.")
    return plan


def _nothing(plan: EntityPlan, seconds: float) -> EntityResult:
    return EntityResult(plan, None, None, Counts(), seconds, None, False, list(plan.problems))


def _world_moved(setup: EntitySetup, plan: EntityPlan, ledger: Ledger) -> bool:
    """Whether another run did something between our plan and our lease."""
    unfinished = ledger.unfinished_job(setup.ref)
    return ledger.checkpoint(setup.ref) != plan.checkpoint or (unfinished.id if unfinished else None) != (
        plan.unfinished.id if plan.unfinished else None
    )


def _after_resume(setup: EntitySetup, context: RunContext, resumed: EntityResult) -> EntityResult:
    """A resumed job keeps its old plan; what changed since is done by a second one."""
    options = replace(context.options, full_refresh=False)
    next_result = run_entity(setup, replace(context, options=options))
    if next_result.state is None:
        return resumed
    return EntityResult(
        resumed.plan,
        next_result.state,
        next_result.job_id,
        resumed.counts + next_result.counts,
        resumed.seconds + next_result.seconds,
        next_result.engine,
        resumed.promoted or next_result.promoted,
        [*resumed.notes, *next_result.notes],
    )


class _Worker:
    """This process as a worker: registered in the ledger, with its proof of life on disk."""

    def __init__(self, context: RunContext) -> None:
        self.id = context.ids.new()
        self._context = context
        self._lock = WorkerLock(context.state, self.id)
        self._held: Lease | None = None
        self._ended = False
        context.ledger.register_worker(self.id, host=socket.gethostname(), pid=os.getpid())

    def lease(self, setup: EntitySetup) -> tuple[Lease, bool]:
        """The partition's lease, and whether it had to be waited for."""
        context = self._context
        deadline = context.clock.monotonic() + context.wait_seconds
        told = False
        while True:
            answer = context.ledger.acquire_lease(setup.ref, self.id)
            if isinstance(answer, Lease):
                self._held = answer
                return answer, told
            if proved_dead(context.state, answer.worker_id):
                context.ledger.break_lease(setup.ref, answer.epoch)
                forget(context.state, answer.worker_id)
                continue
            if context.clock.monotonic() >= deadline:
                raise Busy(f"{_held(answer)}", hint="Wait for it, or run again with a longer --wait.")
            if not told:
                context.progress.say(setup.ref.entity, f"{_held(answer)}; waiting")
                told = True
            context.clock.sleep(POLL_SECONDS)

    def end(self) -> None:
        """Give back what is held. In this order: who finds the lease must find it free, or its holder alive."""
        if self._ended:
            return
        self._ended = True
        try:
            if self._held:
                self._context.ledger.release_lease(self._held)
            self._context.ledger.retire_worker(self.id)
        finally:
            self._lock.release()


def _held(holder: Holder) -> str:
    return f"{holder.ref} is being indexed by process {holder.pid} on {holder.host} (worker {holder.worker_id[:8]})"


def _run_plan(
    setup: EntitySetup, plan: EntityPlan, context: RunContext, worker: _Worker, *, lease: Lease, started: float
) -> EntityResult:
    from instep.service.wave import WaveRunner  # Brings Arrow: only for runs that have something to do.

    ledger, entity = context.ledger, setup.ref.entity
    job_id = ""
    with Keeper(ledger, lease, context.clock) as keeper:
        try:
            job_id, part = _job(setup, plan, context, worker, lease)
            ledger.start_job(job_id)
            engine = context.engine(plan.engine)
            base = _prepare(setup, part)
            context.progress.begin(entity, plan.units)
            runner = WaveRunner(
                setup,
                part,
                job_id=job_id,
                worker_id=worker.id,
                ledger=ledger,
                clock=context.clock,
                ids=context.ids,
                keeper=keeper,
            )
            runner.run(engine, base=base, progress=lambda units: context.progress.advance(entity, units))
            context.progress.say(entity, "bringing indexes up to date")
            job, promoted, notes = _finish(setup, part, context, job_id, keeper)
            if promoted:
                _refine(setup, part, context, notes)
        except Fenced as taken:
            raise UserError(
                f"{setup.ref} was taken over by another worker: {taken}",
                hint="Nothing is lost: the other one goes on. See `instep status`.",
            ) from taken
        except BaseException as error:
            _stop(ledger, job_id, worker, error)
            raise
        finally:
            context.progress.end(entity)
    took = context.clock.monotonic() - started
    return EntityResult(
        plan, job.state, job_id, job.counts, took, engine.name, promoted, [*plan.problems, *notes, *runner.notes]
    )


def _job(
    setup: EntitySetup, plan: EntityPlan, context: RunContext, worker: _Worker, lease: Lease
) -> tuple[str, JobPart]:
    """The job to continue, under the new lease, or a new one."""
    ledger = context.ledger
    if plan.resumes:
        return plan.resumes.id, ledger.adopt_job(plan.resumes.id, lease)
    _give_up_unfinished(setup, ledger, lease)
    checkpoint = plan.checkpoint
    if plan.kind is Kind.REFRESH and checkpoint:
        instance, physical, fresh = checkpoint.instance, checkpoint.physical, False
        base = setup.target.fence(physical, lease.epoch) if setup.target.exists(physical) else -1
        if base < 0:
            raise UserError(
                f"the index of {setup.ref} ({physical}) is gone from target {setup.target_name!r}",
                hint="Build it again: instep run --full-refresh",
            )
    else:
        instance = str(instance_id(setup.ref, ledger.next_sequence(setup.ref)))
        physical, fresh, base = setup.physical(instance), True, 0
    part = JobPart(setup.ref, instance, physical, setup.fingerprint, setup.buckets, lease.epoch, base, fresh)
    job_id = context.ids.new()
    ledger.create_job(job_id, [NewPart(part, plan.slices)], worker_id=worker.id)
    return job_id, part


def _give_up_unfinished(setup: EntitySetup, ledger: Ledger, lease: Lease) -> None:
    """End a job that cannot be continued (its transform changed, or a full refresh was asked)."""
    left = ledger.unfinished_job(setup.ref)
    if left is None:
        return
    part = ledger.adopt_job(left.id, lease)
    changed = ", ".join(changed_parts(setup.fingerprint, part.fingerprint)) or "a full refresh was asked"
    ledger.finish_job(left.id, JobState.FAILED, error=f"given up: {changed}")
    if part.fresh and setup.target.served(setup.alias) != part.physical:
        setup.target.drop(part.physical)


def _prepare(setup: EntitySetup, part: JobPart) -> int:
    """Make sure the physical index is there and knows our epoch; from here on zombies are refused."""
    if part.fresh:
        setup.target.create(part.physical, setup.dimensions)
    return setup.target.fence(part.physical, part.epoch)


def _finish(
    setup: EntitySetup, part: JobPart, context: RunContext, job_id: str, keeper: Keeper
) -> tuple[Job, bool, list[str]]:
    """Decide how the job ends; serve the instance if it may be served. Safe to repeat after a crash."""
    ledger, target = context.ledger, setup.target
    job = _require(ledger, job_id)
    state = end_of_job(job.slices, job.counts)
    if state is None:
        raise Conflict(f"job {job_id} still has {job.unfinished_slices} open slices")
    notes: list[str] = []
    try:
        target.maintain(part.physical)
    except InstepError as error:
        # Searches find everything without the index too, only slower: not a reason to fail the job.
        notes.append(f"indexes are not up to date: {error}")
    problem = promotion_problem(setup, part, ledger, job, state)
    keeper.require()
    if problem is None:
        target.promote(setup.alias, part.physical)
        ledger.finish_job(job_id, state, promote=[part])
        _sweep(setup)
    else:
        notes.append(problem)
        ledger.finish_job(job_id, JobState.FAILED if part.fresh else state, error=problem)
        if part.fresh:
            target.drop(part.physical)
    return _require(ledger, job_id), problem is None, notes


def _refine(setup: EntitySetup, part: JobPart, context: RunContext, notes: list[str]) -> None:
    """After the job has ended well: a failure or Ctrl-C here loses nothing but time."""

    def begin() -> None:
        context.progress.say(setup.ref.entity, "done, searches work; building the index that makes them quicker")

    try:
        setup.target.refine(part.physical, begin)
    except InstepError as error:
        notes.append(f"searches are slower than they could be: {error}")


def _sweep(setup: EntitySetup) -> None:
    """Drop what no build will finish and no reader holds any more. Under the lease, so no build is under way."""
    with suppress(InstepError):  # The next run sweeps again.
        for physical in setup.target.leftovers(setup.alias, idle_seconds=SWEEP_SECONDS):
            setup.target.drop(physical)


def _stop(ledger: Ledger, job_id: str, worker: _Worker, error: BaseException) -> None:
    """Ctrl-C or an error: slices go back unspent, the job is STOPPED and the next run resumes it."""
    job = ledger.job(job_id) if job_id else None
    if job is None or job.state.ended:
        return
    reason = "stopped by the user" if isinstance(error, KeyboardInterrupt) else str(error)[:500]
    ledger.request_stop(job_id)
    ledger.retire_worker(worker.id)
    ledger.finish_job(job_id, JobState.STOPPED, error=reason)


def _require(ledger: Ledger, job_id: str) -> Job:
    job = ledger.job(job_id)
    if job is None:
        raise Conflict(f"job {job_id} is gone from the ledger")
    return job


__all__ = ["Busy", "EntityResult", "RunContext", "part_of", "run_entity"]
