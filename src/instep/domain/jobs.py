"""Jobs and slices: their states, which moves are allowed, and how a job ends."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from instep.domain.counts import Counts
from instep.domain.refs import PartitionRef


class JobState(StrEnum):
    INITIALIZING = "INITIALIZING"
    READY = "READY"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"
    COMPLETED = "COMPLETED"
    COMPLETED_WITH_ERRORS = "COMPLETED_WITH_ERRORS"
    FAILED = "FAILED"

    @property
    def ended(self) -> bool:
        return self in _ENDED


_ENDED = frozenset({JobState.STOPPED, JobState.COMPLETED, JobState.COMPLETED_WITH_ERRORS, JobState.FAILED})

JOB_MOVES: Mapping[JobState, frozenset[JobState]] = {
    JobState.INITIALIZING: frozenset({JobState.READY, JobState.STOPPING, JobState.FAILED}),
    JobState.READY: frozenset({JobState.RUNNING, JobState.STOPPING, JobState.FAILED}),
    JobState.RUNNING: frozenset(
        {JobState.COMPLETED, JobState.COMPLETED_WITH_ERRORS, JobState.FAILED, JobState.STOPPING}
    ),
    JobState.STOPPING: frozenset({JobState.STOPPED, JobState.FAILED}),
    # A stopped job is resumed by the next run; the other ends are final.
    JobState.STOPPED: frozenset({JobState.RUNNING, JobState.FAILED}),
    JobState.COMPLETED: frozenset(),
    JobState.COMPLETED_WITH_ERRORS: frozenset(),
    JobState.FAILED: frozenset(),
}


class SliceState(StrEnum):
    PENDING = "PENDING"
    PROCESSING = "PROCESSING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def ended(self) -> bool:
        return self not in (SliceState.PENDING, SliceState.PROCESSING)


SLICE_MOVES: Mapping[SliceState, frozenset[SliceState]] = {
    SliceState.PENDING: frozenset({SliceState.PROCESSING, SliceState.CANCELLED}),
    SliceState.PROCESSING: frozenset(
        {SliceState.PENDING, SliceState.COMPLETED, SliceState.FAILED, SliceState.CANCELLED}
    ),
    SliceState.COMPLETED: frozenset(),
    SliceState.FAILED: frozenset(),
    SliceState.CANCELLED: frozenset(),
}

#: A slice is tried this often before it is FAILED (seed: MAX_PARTITION_RETRIES).
MAX_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class SlicePlan:
    """A slice as planned: what the ledger stores and no retry ever recomputes.

    `bucket` is the route; `lower` and `upper` bound the document ids in it, half-open, '' meaning
    open-ended; `payload` holds the document changes (see `manifest.encode_changes`).
    """

    index: int
    bucket: int
    lower: str
    upper: str
    units: int
    work: int
    priority: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class Claim:
    """A slice held by one worker. Every later write about it must show `fence`.

    `attempts` counts the tries that ended badly before this one; `fence` > 1 means that somebody
    may have worked on the slice before.
    """

    slice_id: str
    job_id: str
    ref: PartitionRef
    index: int
    bucket: int
    units: int
    work: int
    attempts: int
    fence: int
    payload: bytes


@dataclass(frozen=True, slots=True)
class JobPart:
    """What a job builds of one partition; fixed when it is planned.

    `epoch` is the fence of the partition's lease; `base` the target's version when the part began.
    `fresh` says that the instance is new (a first build or a rebuild), to be promoted at the end.
    """

    ref: PartitionRef
    instance: str
    physical: str
    fingerprint: Mapping[str, str]
    buckets: int
    epoch: int
    base: int
    fresh: bool


@dataclass(frozen=True, slots=True)
class Job:
    id: str
    state: JobState
    created_at: int
    started_at: int | None
    finished_at: int | None
    error: str | None
    counts: Counts
    slices: Mapping[SliceState, int]
    parts: tuple[JobPart, ...] = ()

    @property
    def unfinished_slices(self) -> int:
        return sum(n for state, n in self.slices.items() if not state.ended)


def end_of_job(slices: Mapping[SliceState, int], counts: Counts, *, stopping: bool = False) -> JobState | None:
    """The state a job ends in, or None while slices are still open. The only place that decides.

    FAILED means that nothing was achieved: every slice failed, or every unit read did.
    """
    open_slices = slices.get(SliceState.PENDING, 0) + slices.get(SliceState.PROCESSING, 0)
    if stopping:
        return None if slices.get(SliceState.PROCESSING, 0) else JobState.STOPPED
    if open_slices:
        return None
    total = sum(slices.values())
    failed = slices.get(SliceState.FAILED, 0) + slices.get(SliceState.CANCELLED, 0)
    if total and failed == total:
        return JobState.FAILED
    if counts.read and counts.failed == counts.read:
        return JobState.FAILED
    return JobState.COMPLETED_WITH_ERRORS if failed or counts.failed else JobState.COMPLETED


def after_failure(attempts: int, *, transient: bool) -> SliceState:
    """Where a slice goes whose try number `attempts` (from 1) ended badly."""
    return SliceState.PENDING if transient and attempts < MAX_ATTEMPTS else SliceState.FAILED
