"""The matrix of namespaces and entities."""

from __future__ import annotations

from instep.api.models.base import Answer
from instep.domain.status import IndexState


class NamespaceStatus(Answer):
    namespace: str
    state: IndexState
    entities: dict[str, IndexState]


class Matrix(Answer):
    """What is together is as far as its worst part."""

    state: IndexState
    entities: dict[str, IndexState]
    namespaces: list[NamespaceStatus]
    notes: list[str]
