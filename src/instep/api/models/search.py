"""Search."""

from __future__ import annotations

from typing import Literal

from instep.api.models.base import Answer


class Hit(Answer):
    """`score` is comparable within one answer only. `marks` are the ranges of `snippet` that match."""

    entity: str
    score: float
    document_id: str
    chunk_id: str
    chunk_index: int
    source_uri: str
    title: str | None
    text: str
    snippet: str
    marks: list[tuple[int, int]]


Mode = Literal["text", "vector", "hybrid"]
