"""Slices of a job."""

from __future__ import annotations

from instep.api.models.base import Answer
from instep.domain.jobs import SliceState


class Slice(Answer):
    """`units` were planned for it (0: not counted), `work` is what it counts for. `attempts` are the tries
    that ended badly, `error` is that of the last; `worker` has it, or had it last.
    """

    ref: str
    index: int
    id: str
    bucket: int
    state: SliceState
    units: int
    work: int
    attempts: int
    worker: str | None
    claimed_at: int | None
    finished_at: int | None
    error: str | None


class GridPart(Answer):
    """The slices of one partition by number: a letter for each."""

    ref: str
    generation: str
    states: str


class Grid(Answer):
    """All slices of a job, one letter each; `states` says which state a letter stands for."""

    states: dict[str, SliceState]
    parts: list[GridPart]
