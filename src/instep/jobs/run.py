"""Run entities: plan, make a job of the work, and take part in it until it has ended."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Final

from instep.domain.counts import Counts
from instep.domain.jobs import JobState, error_of
from instep.domain.money import NOTHING_SPENT, Spent
from instep.domain.refs import PartitionRef, own_name
from instep.domain.speed import Cpu
from instep.domain.texts import cleaned, hidden
from instep.domain.topic_offsets import Offsets
from instep.entities.plan_request import Kind, PlanOptions
from instep.entities.setup import EntitySetup
from instep.errors import Away, Conflict, Fenced, InstepError, Transient, Unknown, UserError
from instep.jobs.acquisition import Acquisition, Stopped
from instep.jobs.entity_result import EntityResult
from instep.jobs.finish import sweep_unchanged
from instep.jobs.prerequisites import Find, Prerequisites
from instep.jobs.promote import finish_interrupted
from instep.jobs.retry import RESUMES
from instep.jobs.stopping import Stopping
from instep.jobs.target_order import in_target_order, problem_of, reachable_targets_first
from instep.ledger.ledger import Ledger
from instep.own_faults import own_faults
from instep.planning.context import Context
from instep.planning.plan import EntityPlan
from instep.planning.planner import Planner
from instep.telemetry import traces

if TYPE_CHECKING:
    from instep.jobs.worker import Worker


#: Note of an interrupt that came after the work.
ALL_WRITTEN: Final = "stopped; all is written, nothing is left to resume"

_WELL = (JobState.COMPLETED, JobState.COMPLETED_WITH_ERRORS)


def run_entities(
    setups: Sequence[EntitySetup],
    context: Context,
    options: PlanOptions,
    *,
    wait_seconds: float,
    expected: Mapping[str, str] | None = None,
    upstream: Sequence[EntitySetup] = (),
    find: Callable[[PartitionRef], Iterable[EntitySetup]] | None = None,
) -> list[EntityResult]:
    """Plan, and do the planned work. A run that finds nothing to do takes no lease and writes nothing.

    A job of other workers is joined. Work that only they can do is waited for, at most `wait_seconds` without progress
    (`Busy`). `expected` maps references to digests of a saved plan: refused when anything has changed since. Of
    `upstream`, the entities' own upstream, only missing parts are built; their results come first. So is what turns out
    to be needed while a part is in work: `find` makes the setups of a partition and its upstream.
    """
    known = {setup.ref: setup for setup in (*setups, *upstream)}

    def add(ref: PartitionRef) -> None:
        if find is None:
            raise UserError(f"a job waits for {ref}, which is none of these entities")
        known.update({each.ref: each for each in find(ref) if each.ref not in known})

    with traces.span("request", refs=", ".join(str(setup.ref) for setup in setups[:20])):
        return _run_all(setups, Planner(known, context, options, expected or {}), wait_seconds, add)


def _run_all(setups: Sequence[EntitySetup], planner: Planner, wait_seconds: float, find: Find) -> list[EntityResult]:
    found = in_target_order(setups)
    alone = len(setups) == 1 or bool(planner.expected)
    done: dict[PartitionRef, EntityResult] = {}
    turns = list(reachable_targets_first(found))
    for number, turn in enumerate(turns, 1):
        for result in _in_turn(turn, planner, wait_seconds, find, alone=alone, last=number == len(turns)):
            ref = result.plan.ref
            before = done.get(ref)  # Built already, as upstream of an earlier one.
            if before is None or result.state is not None or result.problem:
                done[ref] = before.followed_by(result) if before and result.state is not None else result
    places = {setup.ref: place for place, setup in enumerate(setups)}
    return sorted(done.values(), key=lambda each: places.get(each.plan.ref, -1))


def _in_turn(
    setups: Sequence[EntitySetup],
    planner: Planner,
    wait_seconds: float,
    find: Find,
    *,
    alone: bool,
    last: bool,
) -> list[EntityResult]:
    """Run entities of one target, the `last` one or not. With several partitions, an error of one is its result and
    stops no other.
    """
    run = _Run(planner, wait_seconds, find)
    plans = run.plan_all(setups, alone=alone)
    todo = {plan.ref: plan for plan in plans.values() if plan.pending}
    try:
        if todo:
            with own_faults():
                run.go(todo)
    except KeyboardInterrupt as error:
        if last and run.has_ended(todo):
            error.add_note(ALL_WRITTEN)
        raise
    except InstepError as error:
        if alone:
            raise
        for ref in todo.keys() - run.results.keys():
            run.problems.setdefault(ref, error)
    if alone and run.problems:
        raise next(iter(run.problems.values()))
    unchanged = (ref for ref, plan in plans.items() if not plan.pending and ref not in run.problems)
    sweep_unchanged((planner.setups[ref] for ref in unchanged), planner.context)
    before = [result for ref, result in run.results.items() if ref not in plans]
    return [*before, *(run.result(plan) for plan in plans.values())]


class _Run:
    def __init__(self, planner: Planner, wait_seconds: float, find: Find) -> None:
        self._planner = planner
        self._context = planner.context
        self._started = self._context.clock.monotonic()
        self._cpu_before = self._context.driver_cpu() or 0.0
        self._wait = wait_seconds
        self._prerequisites = Prerequisites(planner, find)
        self._left: dict[PartitionRef, int] = {}
        #: What waited in a topic when this run first looked.
        self._until: dict[PartitionRef, Offsets | None] = {}
        #: The last job that each partition was worked on in.
        self._taken: dict[PartitionRef, str] = {}
        #: Partitions whose plan was lost: that is mended once.
        self._unplanned: set[PartitionRef] = set()
        self.results: dict[PartitionRef, EntityResult] = {}
        self.problems: dict[PartitionRef, InstepError] = {}

    def plan_all(self, setups: Sequence[EntitySetup], *, alone: bool) -> dict[PartitionRef, EntityPlan]:
        """Plan all entities; queries that are the same for all partitions of an entity are made once."""
        indexes = cache(self._context.ledger.partitions.indexes)
        plans = {}
        for setup in setups:
            try:
                with own_faults():
                    finish_interrupted(setup, self._context)
                    setup.catch_up(self._context.ledger)
                    plans[setup.ref] = self._planner.plan(setup.ref, indexes=indexes)
            except InstepError as error:
                if alone:
                    raise
                self.problems[setup.ref] = error
                plans[setup.ref] = self._planner.unplanned(setup.ref)
        return plans

    def result(self, plan: EntityPlan) -> EntityResult:
        problem, done = self.problems.get(plan.ref), self.results.get(plan.ref)
        if problem is None and done is not None:
            return done
        notes = [*plan.found.problems, *plan.found.warnings, *([plan.found.held_back] if plan.found.held_back else [])]
        if plan.kind is Kind.NOTHING and plan.checkpoint is None and not plan.found.held_back:
            notes += plan.found.why
        stopped = None
        if problem is not None:
            stopped = problem_of("is not up to date", plan.ref, problem, else_=RESUMES)
        damage = None if problem or plan.pending else self._damage(plan)
        if problem is None and not plan.pending and plan.checkpoint is not None:
            self._planner.setups[plan.ref].remember(plan.checkpoint)
        notes += [damage] if damage else []
        counts, job_id = (done.counts, done.job_id) if done else (Counts(), None)
        seconds = self._seconds()
        notes = list(map(hidden, notes))
        return EntityResult(plan, None, job_id, counts, seconds, None, False, notes, stopped, damage is not None)

    def _damage(self, plan: EntityPlan) -> str | None:
        """Damage of the served index, if the last job found any: it stays until it is repaired."""
        ledger, checkpoint = self._context.ledger, plan.checkpoint
        job = ledger.jobs.latest(plan.ref, plan.generation) if checkpoint else None
        if checkpoint is None or job is None or job.part(plan.ref).error is None:
            return None
        try:
            return self._planner.setups[plan.ref].damage(ledger, checkpoint)
        except InstepError as error:
            return f"it is not known whether its target holds what is recorded: {error}"

    def go(self, todo: dict[PartitionRef, EntityPlan]) -> None:
        from instep.jobs.worker import Worker  # Imports Arrow: only if there is something to do.

        for plan in todo.values():
            self._context.engine(plan.engine)  # The engine starts while leases are taken and the job is stored.
        todo = {ref: plan for ref, plan in todo.items() if self._rehearsed(plan)}
        if not todo:
            return
        worker = Worker(self._planner.setups, self._context, "run")
        try:
            worker.recover()
            while todo:
                todo = self._round(todo, worker)
        except BaseException as error:
            why = "its run was interrupted" if isinstance(error, (KeyboardInterrupt, Stopping)) else cleaned(str(error))
            worker.end(stop=lambda _: why)
            if isinstance(error, (Transient, Unknown)):
                raise Away(str(error), hint=RESUMES) from error
            raise
        worker.end(stop=self._why_stopped)

    def has_ended(self, refs: Iterable[PartitionRef]) -> bool:
        """Whether the jobs on these partitions have ended well, so that nothing of what was planned is left to do."""
        ledger = self._context.ledger
        return all(ref in self._taken and _ended_well(ledger, self._taken[ref], ref) for ref in refs)

    def _why_stopped(self, job_id: str) -> str:
        """The reason why the run leaves a job that has not ended: an error of one of its own partitions."""
        left = (error for ref, error in self.problems.items() if self._taken.get(ref) == job_id)
        return cleaned(str(next(left, "the run did not include its other entities")))

    def _rehearsed(self, plan: EntityPlan) -> bool:
        try:
            say = partial(self._context.progress.say, plan.ref.label)
            self._planner.setups[plan.ref].rehearse(plan.found, say)
        except InstepError as error:
            self.problems[plan.ref] = error
            if plan.resumes is not None:
                self._taken[plan.ref] = plan.resumes.id
                with suppress(InstepError):
                    self._context.ledger.jobs.explain_stop(plan.resumes.id, cleaned(str(error)))
        return plan.ref not in self.problems

    def _round(self, todo: dict[PartitionRef, EntityPlan], worker: Worker) -> dict[PartitionRef, EntityPlan]:
        """Work on the partitions of `todo` that are free; returns what is left to do after that."""
        start = Acquisition(todo, self._planner, worker.membership, deadline=self._started + self._wait)
        try:
            start.get()
        except (Fenced, Conflict):
            if not worker.registered_again():
                raise
            return self._plan_after_loss(todo)
        self.problems |= start.refused
        self._taken |= start.taken
        self._work(start, worker)
        self.problems |= worker.problems
        # A resumed or joined job keeps its old plan: later changes get a second job.
        again = worker.unplanned - self._unplanned
        self._unplanned |= again
        done = {ref for ref in start.created - again if not self._goes_on(start.todo[ref])} | start.idle
        left = [ref for ref in todo if ref not in done]
        return self._plan_again({ref: todo[ref] for ref in left}, start.taken)

    def _goes_on(self, plan: EntityPlan) -> bool:
        """Whether the job left some of the work that existed when this run first looked. Later changes do not count, or
        a run might never end.
        """
        self._until.setdefault(plan.ref, plan.found.until)
        left = self._left.get(plan.ref)
        # Of a topic up to where it ended at first, the plan says what is left: its units are documents, not messages.
        self._left[plan.ref] = plan.found.left if left is None or plan.found.until else left - plan.units
        return self._left[plan.ref] > 0

    def _plan_after_loss(self, todo: Mapping[PartitionRef, EntityPlan]) -> dict[PartitionRef, EntityPlan]:
        """Plan again after others took this run for dead while it planned; they may have done its work."""
        return self._plan_again(todo, self.results)

    def _plan_again(
        self, todo: Mapping[PartitionRef, EntityPlan], again: Collection[PartitionRef]
    ) -> dict[PartitionRef, EntityPlan]:
        plans: dict[PartitionRef, EntityPlan] = {}
        for ref, each in todo.items():
            if ref in self.problems:
                continue
            try:
                plan = self._planner.plan(ref, each.generation, again=ref in again, until=self._until.get(ref))
            except UserError as error:
                self.problems[ref] = error
            else:
                plans |= {ref: plan} if plan.pending else {}
        return plans

    def _work(self, start: Acquisition, worker: Worker) -> None:
        progress, ledger = self._context.progress, self._context.ledger
        for ref, job_id in start.taken.items():
            worker.choices[ref] = start.todo[ref].engine
            job = ledger.jobs.get(job_id)
            total = job.part(ref).expected if job else None
            progress.begin(ref.label, total, self._planner.setups[ref].unit)
            worker.show(job_id, ref)
        try:
            wanted = {(job_id, ref) for ref, job_id in start.taken.items()}
            worker.work(wanted, partial(self._prerequisites.begin, worker), wait=self._wait)
        finally:
            for ref, job_id in self._jobs(start).items():
                progress.end(ref.label, well=ref not in worker.problems and _ended_well(ledger, job_id, ref))
        for plan, job_id in self._prerequisites.ended():
            self._record(plan, job_id, worker)
        for ref, job_id in start.taken.items():
            if ref not in worker.problems:
                try:
                    self._record(start.todo[ref], job_id, worker)
                except UserError as error:
                    self.problems[ref] = error

    def _jobs(self, start: Acquisition) -> dict[PartitionRef, str]:
        return {ref: job_id for ref, (_, job_id) in self._prerequisites.taken.items()} | start.taken

    def _record(self, plan: EntityPlan, job_id: str, worker: Worker) -> None:
        ref, ledger = plan.ref, self._context.ledger
        job = ledger.jobs.get(job_id)
        if job is None or (status := job.part(ref)).state is None:
            error = error_of(job, status) if job else None
            reason = f": {error}" if error else ""
            by_people = job is not None and job.stopped_by_people
            raise (Stopped if by_people else UserError)(
                f"{ref}: job {job_id} was stopped{reason}",
                hint="Run again to resume it: finished slices are not redone.",
            )
        report = worker.reports[ref]
        notes = [*plan.found.problems, *plan.found.warnings, *report.notes, *([status.error] if status.error else [])]
        notes += self._planner.setups[ref].notes(status.part, ledger)
        checkpoint = ledger.checkpoints.get(ref, plan.generation)
        result = EntityResult(
            plan,
            status.state,
            job_id,
            status.counts,
            self._seconds(),
            report.engine,
            checkpoint is not None and checkpoint.job_id == job_id,
            list(dict.fromkeys(map(hidden, notes))),
            damaged=status.error is not None and not status.part.fresh,
            cpu=self._cpu(report.task_cpu),
            spent=self._spent(ref, job_id),
        )
        before = self.results.get(ref)
        self.results[ref] = before.followed_by(result) if before else result

    def _spent(self, ref: PartitionRef, job_id: str) -> Spent:
        if self._planner.setups[ref].tariff is None:
            return NOTHING_SPENT
        return self._context.ledger.spending.of_jobs([job_id]).get(job_id, {}).get(own_name(ref.entity), NOTHING_SPENT)

    def _cpu(self, tasks: float) -> Cpu | None:
        driver = self._context.driver_cpu()
        return None if driver is None or not tasks else Cpu(driver - self._cpu_before, tasks)

    def _seconds(self) -> float:
        return self._context.clock.monotonic() - self._started


def _ended_well(ledger: Ledger, job_id: str, ref: PartitionRef) -> bool:
    """Whether the part ended without failure; False if unknown."""
    with suppress(InstepError):
        job = ledger.jobs.get(job_id)
        status = job.part(ref) if job else None
        return status is not None and status.state in _WELL and status.error is None
    return False
