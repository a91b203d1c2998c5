"""Build the missing upstream of a run's entities, so that the run does not wait for a process that is not there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from instep.domain.jobs import JobState, error_of, state_of
from instep.domain.refs import PartitionRef
from instep.entities.plan_request import PlanOptions
from instep.errors import UserError
from instep.jobs.acquisition import Acquisition, Busy
from instep.planning.plan import EntityPlan
from instep.planning.planner import Planner
from instep.planning.upstream import cancel_waits, in_hand

if TYPE_CHECKING:
    from instep.jobs.worker import Worker


#: Adds a partition, with its upstream, to the setups of a run. Raises `UserError` for one that is not declared.
Find: TypeAlias = Callable[[PartitionRef], None]


class Prerequisites:
    """Upstream jobs that a run started, joined or resumed because its own parts wait for them. `taken` maps partitions
    to plan and job id. The run's options do not apply to these. `find`: for what turned out to be needed while a part
    was in work.
    """

    def __init__(self, planner: Planner, find: Find) -> None:
        self._find = find
        self._planner = replace(planner, options=PlanOptions(), expected={})
        self._context = planner.context
        self.taken: dict[PartitionRef, tuple[EntityPlan, str]] = {}

    def begin(self, worker: Worker) -> bool:
        """Start what the worker's parts wait for. False if there is nothing to start: other workers do it already."""
        plans = [self._planner.plan(ref, generation, again=True) for ref, generation in self._lacking(worker).items()]
        canceled = [self._canceled(plan) for plan in plans if not plan.pending]
        todo = {plan.ref: plan for plan in plans if plan.pending}
        if not todo:
            return any(canceled)
        start = Acquisition(todo, self._planner, worker.membership, deadline=self._context.clock.monotonic())
        try:
            start.get()
        except Busy:
            return False
        for ref, job_id in start.taken.items():
            self._begun(start.todo[ref], job_id, worker)
        return start.progressed

    def ended(self) -> list[tuple[EntityPlan, str]]:
        """Plans and jobs of parts that have ended; each is returned once."""
        found = {}
        for ref, (_, job_id) in self.taken.items():
            job = self._context.ledger.jobs.get(job_id)
            if job and job.part(ref).state:
                found[ref] = job_id
        return [self.taken.pop(ref) for ref in found]

    def _canceled(self, plan: EntityPlan) -> bool:
        return cancel_waits(self._context.ledger, plan.ref, plan.generation, "; ".join(plan.found.why))

    def _begun(self, plan: EntityPlan, job_id: str, worker: Worker) -> None:
        job, ref = self._context.ledger.jobs.get(job_id), plan.ref
        self.taken[ref] = plan, job_id
        worker.choices[ref] = plan.engine
        total = job.part(ref).expected if job else None
        self._context.progress.begin(ref.label, total, self._planner.setups[ref].unit)
        worker.show(job_id, ref)

    def _lacking(self, worker: Worker) -> dict[PartitionRef, str]:
        """Upstream partitions that are missing and in no job, with their generation."""
        setups, ledger = self._planner.setups, self._context.ledger
        wants = worker.waiting.wants()
        found = {
            ref: want.generation
            for want in wants
            for ref in map(PartitionRef.parse, want.refs)
            if not want.satisfied_by(ledger.instances.canonical(ref, want.generation))
        }
        for ref in found:
            if ref not in setups:
                self._find(ref)
            self._demand(ref)
        busy = in_hand(ledger.open_parts.on(found), setups) if found else set()
        return {ref: generation for ref, generation in found.items() if ref not in busy}

    def _demand(self, ref: PartitionRef) -> None:
        _, job_id = self.taken.get(ref, (None, ""))
        job = self._context.ledger.jobs.get(job_id)
        if job and state_of(job, job.part(ref)) is JobState.STOPPED:
            error = error_of(job, job.part(ref))
            reason = f": {error}" if error else ""
            raise UserError(
                f"{ref}, for which this run waits: job {job.id} was stopped{reason}",
                hint="Run again to resume it: finished slices are not redone.",
            )
