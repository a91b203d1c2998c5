"""Wants."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from instep.api.models.base import WHOLE, Answer, Body
from instep.domain.wants import WantState


class Want(Answer):
    """A wish that partitions (`refs`) be there, as of a watermark (`needed`, ms) if it names one. `current` are the
    canonical instances of these now, `instances` those that satisfied it.
    """

    id: str
    state: WantState
    refs: list[str]
    generation: str
    needed: int | None
    fresh_within: int | None
    as_of: int | None
    by: str
    derivative_of: str | None
    upstream: list[str]
    instances: list[str]
    current: list[str | None]
    created_at: int
    ended_at: int | None
    error: str | None
    seen_at: int


_Milliseconds = Annotated[int, Field(ge=0, le=10**13), WHOLE]


class NewWant(Body):
    """Partitions to be there (`Document`, `MergeRequest@42/9970`): as of a time (ms since 1970), or not older than so
    many ms, or at all.
    """

    refs: list[str] = Field(min_length=1, max_length=1_000)
    generation: str | None = None
    fresh_within: _Milliseconds | None = None
    as_of: _Milliseconds | None = None
