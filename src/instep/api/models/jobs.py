"""Jobs, and how far they are."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from instep.api.models.base import Answer
from instep.api.models.workers import Worker
from instep.domain.jobs import JobState


class Counts(Answer):
    """What became of the units read; `read` is the sum of written, skipped, deleted and failed."""

    read: int
    written: int
    skipped: int
    deleted: int
    failed: int
    rows_written: int
    rows_kept: int
    rows_deleted: int
    embedded: int
    bytes_read: int


class Slices(Answer):
    """Slices by state."""

    PENDING: int
    PROCESSING: int
    COMPLETED: int
    FAILED: int
    CANCELLED: int


class Part(Answer):
    """A partition's share of a job. `state` is null while it is open; `units` while they are not counted."""

    ref: str
    generation: str
    state: JobState | None
    fresh: bool
    instance: str
    physical: str
    slices: Slices
    units: int | None
    counts: Counts
    finished_at: int | None
    error: str | None


class Job(Answer):
    """`units` are the documents or rows planned, `done` those of finished slices. `units_per_second` is how fast it is
    now (over the last five minutes at most), `seconds_left` how long the rest takes so; both are null unless it runs
    and something was done in this time.
    """

    id: str
    state: JobState
    made_by: str = Field(description="The worker that planned it.")
    configuration: dict[str, Any]
    slices: Slices
    units: int | None
    done: int
    counts: Counts
    created_at: int
    started_at: int | None
    finished_at: int | None
    duration_seconds: float | None
    units_per_second: float | None
    seconds_left: float | None
    workers: list[Worker]
    error: str | None
    seen_at: int
    parts: list[Part]
