"""Numbers of a job."""

from __future__ import annotations

from instep.api.models.base import Answer
from instep.api.models.jobs import Slices
from instep.domain.jobs import JobState


class Numbers(Answer):
    """Of units: documents or rows. `total` are those planned, null while they are not counted; `read` is the sum of
    the other four. `per_second` and `seconds_left` are those of now, null unless the job runs and something was done in
    the last five minutes.
    """

    total: int | None
    read: int
    written: int
    skipped: int
    deleted: int
    failed: int
    slices: Slices
    per_second: float | None
    seconds_left: float | None


class Statistics(Answer):
    """`entities` are by name; an entity's namespaces are summed up."""

    id: str
    state: JobState
    totals: Numbers
    entities: dict[str, Numbers]
    duration_seconds: float | None
    seen_at: int
