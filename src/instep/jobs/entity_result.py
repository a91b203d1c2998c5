"""The result of a run for one partition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from instep.domain.counts import Counts
from instep.domain.jobs import JobState
from instep.domain.money import NOTHING_SPENT, Spent
from instep.domain.refs import PartitionRef, generation_text
from instep.domain.speed import Cpu
from instep.entities.plan_request import Kind
from instep.errors import UserError
from instep.planning.plan import EntityPlan


@dataclass(frozen=True, slots=True, repr=False)
class EntityResult:
    """The result of a run for one partition. `state` is None when there was nothing to do, or when `problem` says why
    nothing was done: one of several targets may be down.
    """

    plan: EntityPlan
    state: JobState | None
    job_id: str | None
    counts: Counts
    seconds: float
    engine: str | None
    promoted: bool
    notes: Sequence[str]
    problem: UserError | None = None
    #: The target does not hold what the ledger records.
    damaged: bool = False
    #: On a cluster. That of the driver is of the whole run up to then.
    cpu: Cpu | None = None
    #: On embedding.
    spent: Spent = NOTHING_SPENT

    def __repr__(self) -> str:
        what = str(self.problem.what) if self.problem else f"{self.counts}, {self.unchanged:,} unchanged"
        return f"EntityResult({generation_text(self.ref, self.generation)} {self.state_name}: {what})"

    @property
    def ref(self) -> PartitionRef:
        """The partition."""
        return self.plan.ref

    @property
    def generation(self) -> str:
        """The generation that was built; empty for the one without a name."""
        return self.plan.generation

    @property
    def kind(self) -> Kind:
        """The action that was planned."""
        return self.plan.kind

    @property
    def unchanged(self) -> int:
        """Units that the plan found unchanged, but for those that the resumed job had done: they are in `counts`."""
        found, job = self.plan.found.counts.get("unchanged", 0), self.plan.resumes
        if job is None or self.job_id is None:
            return found
        done = job.part(self.plan.ref).counts
        return max(0, found - done.written - done.skipped)

    @property
    def known_failures(self) -> int:
        """Documents that failed before, and are as they were then."""
        return self.plan.found.counts.get("known_failures", 0)

    @property
    def held_back(self) -> bool:
        """Whether deletes were held back, because they are too many."""
        return self.plan.found.held_back is not None

    @property
    def incomplete(self) -> bool:
        """Whether the source could not be read completely: nothing was deleted because of that."""
        return bool(self.plan.found.problems)

    @property
    def failed(self) -> bool:
        """Whether it did not work: another run tries again."""
        return self.problem is not None or self.state is JobState.FAILED

    @property
    def partial(self) -> bool:
        """Whether it worked, but something is left out: what failed, a build that is held back, rows that are not in
        the target, what could not be seen of the source.
        """
        with_errors = self.counts.failed > 0 or self.state is JobState.COMPLETED_WITH_ERRORS
        return not self.failed and (with_errors or self.held_back or self.damaged or self.incomplete)

    @property
    def state_name(self) -> str:
        """The state as JSON has it."""
        if self.problem is not None:
            return self.problem.state
        if self.state is None and not self.held_back and self.incomplete:
            return "INCOMPLETE"
        if self.state is None and self.damaged:
            return "DAMAGED"
        return str(self.state or ("HELD_BACK" if self.held_back else "UP_TO_DATE"))

    def followed_by(self, later: EntityResult) -> EntityResult:
        """One result for a job and a second one, which indexed the changes made during the first."""
        return EntityResult(
            self.plan,
            later.state,
            later.job_id,
            self.counts + later.counts,
            later.seconds,
            later.engine or self.engine,
            self.promoted or later.promoted,
            list(dict.fromkeys([*self.notes, *later.notes])),
            damaged=later.damaged,
            cpu=later.cpu.after(self.cpu) if later.cpu else self.cpu,
            spent=self.spent.plus(later.spent) if later.job_id != self.job_id else later.spent,
        )
