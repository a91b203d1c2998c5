"""What the ledger shows page by page: jobs, slices and failures, however many there are.

A page begins after the last item of the one before, and not at a number: what is added or goes meanwhile neither
repeats nor hides another item.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple, Protocol

from instep.domain.jobs import Job, JobState, SliceState
from instep.domain.refs import PartitionRef

if TYPE_CHECKING:
    from instep.ledger.ledger import FailureRecord


class JobPlace(NamedTuple):
    """Where a job is among all."""

    created_at: int
    id: str


class SlicePlace(NamedTuple):
    """Where a slice is among those of its job. Halves of one have its number."""

    ref: str
    number: int
    id: str


class FailurePlace(NamedTuple):
    """Where a failure is among all."""

    failed_at: int
    ref: str
    generation: str
    document_id: str


class SliceView(NamedTuple):
    """A slice without its work. `worker_id`: who has it, or had it last."""

    ref: PartitionRef
    number: int
    id: str
    bucket: int
    state: SliceState
    units: int
    work: int
    attempts: int
    worker_id: str | None
    claimed_at: int | None
    finished_at: int | None
    error: str | None

    @property
    def place(self) -> SlicePlace:
        return SlicePlace(str(self.ref), self.number, self.id)


class Pages(Protocol):
    """A part of `port.Ledger`."""

    def job_page(
        self, *, states: Collection[JobState] = (), after: JobPlace | None = None, limit: int = 20
    ) -> list[Job]:
        """Newest first; of all states, unless some are named."""

    def slice_page(
        self,
        job_id: str,
        *,
        refs: Collection[PartitionRef] | None = None,
        state: SliceState | None = None,
        after: SlicePlace | None = None,
        limit: int = 1_000,
    ) -> list[SliceView]:
        """By partition, number and id."""

    def slice_states(self, job_id: str) -> list[tuple[PartitionRef, int, SliceState]]:
        """Partition, number and state of each slice, in the order of `slice_page`."""

    def failure_page(
        self,
        *,
        refs: Collection[PartitionRef] | None = None,
        after: FailurePlace | None = None,
        limit: int = 100,
    ) -> list[FailureRecord]:
        """Of all generations, newest first."""
