"""Index a partition for a handler: run it up to the request's watermark."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from instep.domain.jobs import JobState
from instep.domain.refs import PartitionRef
from instep.domain.status import IndexState
from instep.entities.generations import generation_of
from instep.entities.plan_request import PlanOptions
from instep.entities.setup import EntitySetup
from instep.jobs.acquisition import Stopped
from instep.jobs.backoff import stays_stopped
from instep.jobs.run import EntityResult, run_entities
from instep.planning.context import Context
from instep.requests.handlers import Indexed

#: Ends of a job that leave nothing to be done again. What failed by itself (a row, a document) is in the failure list.
_GOOD = (None, JobState.COMPLETED, JobState.COMPLETED_WITH_ERRORS)


@dataclass(frozen=True, slots=True)
class PartitionIndexer:
    """Implements `handlers.Indexer`. `setups` makes those of some partitions, `upstream` names all that one is made
    from. A job that others work on is joined, or waited for at most `wait_seconds`.
    """

    setups: Callable[[Iterable[PartitionRef]], Sequence[EntitySetup]]
    upstream: Callable[[PartitionRef], Iterable[PartitionRef]]
    context: Context
    wait_seconds: float

    def index(self, ref: PartitionRef, watermark: int, demand: Callable[[], None]) -> Indexed:
        self._demand_not_stopped(ref)
        results = run_entities(
            self.setups([ref]),
            self.context,
            PlanOptions(watermark=watermark // 1_000),
            wait_seconds=self.wait_seconds,
            upstream=self.setups(self.upstream(ref)),
            demand=demand,
        )
        return _indexed(next(each for each in results if each.plan.ref == ref))

    def _demand_not_stopped(self, ref: PartitionRef) -> None:
        """Raises `Stopped` if a user has stopped the partition's job: only a user resumes it."""
        ledger = self.context.ledger
        left = ledger.jobs.unfinished(ref, generation_of(ledger, ref, None))
        if left is not None and left.state is JobState.STOPPED and left.stopped_by_people:
            raise Stopped(stays_stopped(left))


def _indexed(result: EntityResult) -> Indexed:
    """By what the run ended with: nothing to do is as good as done, and a job that ended well but was not promoted is
    not.
    """
    done = result.state in _GOOD and (result.state is None or result.promoted) and not result.held_back
    return Indexed(IndexState.INDEXED if done else IndexState.ERROR, result.notes)
