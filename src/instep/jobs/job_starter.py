"""Start jobs from within a worker: the base of `WantScheduler` and `SourcePoller`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence

from instep.domain.refs import PartitionRef
from instep.entities.setup import EntitySetup
from instep.errors import Away, InstepError, Outdated, Transient, Unknown, UserError
from instep.jobs.acquisition import Acquisition, Busy
from instep.jobs.finish import sweep_unchanged
from instep.jobs.membership import Membership
from instep.jobs.restart_pauses import Refusals, RestartPauses, stays_stopped
from instep.jobs.setup_cache import SetupCache
from instep.jobs.target_order import in_target_order
from instep.planning.plan import EntityPlan
from instep.planning.planner import Planner
from instep.telemetry.context import in_trace

#: The plans of one turn.
Plans = Mapping[PartitionRef, EntityPlan]


class JobStarter(ABC):
    """Starts what is due. What could not be started is retried after a pause that grows. `pauses`: the worker's
    backoff.
    """

    def __init__(self, planner: Planner, pauses: RestartPauses | None = None) -> None:
        self._planner = planner
        self._context = planner.context
        self._refusals = Refusals(self._context)
        self._pauses = pauses or RestartPauses(self._context)
        self._gaps: dict[PartitionRef, str | None] = {}
        #: Whether wants have moved though no job was started.
        self._moved = False

    @abstractmethod
    def _due(self) -> list[tuple[PartitionRef, str]]:
        """The worker's partitions that may need a job now and have none, with their generation."""

    @abstractmethod
    def _idle(self, plan: EntityPlan) -> bool:
        """Handle a due partition that has nothing to do. Whether this gave other parts something to do."""

    def begin(self, member: Membership) -> bool:
        """Start a job of what is due. False if nothing was started."""
        plans: dict[PartitionRef, EntityPlan] = {}
        unchanged: list[EntitySetup] = []
        self._moved = False
        due = self._due()
        if due and isinstance(self._planner.setups, SetupCache):
            self._planner.setups.renew()
        for ref, generation in due:
            # One generation of each partition at a time: the next one when that is built.
            plan = None if ref in plans or self._waits(ref, generation) else self._plan(ref, generation)
            if plan is not None and plan.resumes and plan.resumes.stopped_by_people:
                self._refusals.add(ref, generation, stays_stopped(plan.resumes))
            elif plan is not None and plan.pending:
                plans[ref] = plan
            elif plan is not None:
                self._moved |= self._idle(plan)
                unchanged.append(self._planner.setups[ref])
        if not plans:
            sweep_unchanged(unchanged, self._context)
            return self._moved
        found = in_target_order(self._planner.setups[ref] for ref in plans)
        begun = self._start([{setup.ref: plans[setup.ref] for setup in turn} for turn in found], member)
        return begun or self._moved

    def _start(self, turns: Sequence[Plans], member: Membership) -> bool:
        """Start a job for each turn. All are held before the first job is stored: that may fail at once, in the hands
        of another worker, and end the want that asked for all.
        """
        held: list[tuple[Plans, Acquisition]] = []
        begun = False
        try:
            for plans in turns:
                start = self._acquisition(plans, member)
                if self._goes(start.hold, plans):
                    held.append((plans, start))
            while held:
                plans, start = held.pop(0)
                if self._goes(start.store, plans):
                    self._note_refusals(start, plans)
                    begun |= start.progressed
        except BaseException:
            for _, start in held:
                start.give_back()
            raise
        return begun

    def _acquisition(self, plans: Plans, member: Membership) -> Acquisition:
        keys = [(plan.ref, plan.generation) for plan in plans.values()]
        return Acquisition(
            plans,
            self._planner,
            member,
            deadline=self._context.clock.monotonic(),
            demand=lambda: self._demand(keys),
        )

    def _goes(self, step: Callable[[], None], plans: Plans) -> bool:
        """Do a step of the start of a turn. Whether it can go on."""
        try:
            step()
        except Busy:
            return False  # Another worker started it first.
        except (UserError, Transient, Unknown) as error:
            for plan in plans.values():
                self._refused(plan.ref, plan.generation, error)
            return False
        return True

    def _note_refusals(self, start: Acquisition, plans: Plans) -> None:
        for plan in plans.values():
            if refused := start.refused.get(plan.ref):
                self._refused(plan.ref, plan.generation, refused)
            else:
                self._refusals.forget(plan.ref, plan.generation)

    @abstractmethod
    def _demand(self, keys: Iterable[tuple[PartitionRef, str]]) -> None:
        """Raise `Fenced` if a job for these is no longer asked for. Called once their leases are held."""

    def _plan(self, ref: PartitionRef, generation: str) -> EntityPlan | None:
        try:
            with in_trace(self._asked_in(ref, generation)):
                plan = self._planner.plan(ref, generation, paths=self._paths(ref))
        except (UserError, Transient, Unknown) as error:
            self._refused(ref, generation, error)
            return None
        if plan.found.partial:
            return plan
        # Report a problem once, not at every poll.
        problem = plan.found.problems[0] if plan.found.problems else None
        if problem is not None and self._gaps.get(ref) != problem:
            self._context.progress.say(ref.label, f"not all of the source could be read: {problem}")
        self._gaps[ref] = problem
        return plan

    def _refused(self, ref: PartitionRef, generation: str, error: InstepError) -> None:
        """Schedule the next try: soon after an outage, after a longer pause for an error that a user has to repair."""
        longest = self._context.timing.sweep if passes(error) else None
        self._refusals.add(ref, generation, str(error), longest=longest)

    def _paths(self, ref: PartitionRef) -> frozenset[str] | None:
        """The local paths that are to be looked at alone; None for all of the source."""
        return None

    def _waits(self, ref: PartitionRef, generation: str) -> bool:
        """Whether a due partition has to wait for its upstream first."""
        return False

    def _asked_in(self, ref: PartitionRef, generation: str) -> str:
        """The trace of the request for it; empty if there is none."""
        return ""


def passes(error: InstepError) -> bool:
    """Whether it is an outage, after which the same may work; or a fault of this process alone."""
    return isinstance(error, Transient | Unknown | Away | Outdated)
