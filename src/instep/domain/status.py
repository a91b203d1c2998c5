"""How far a partition is: the states of ADR 014, the seed on entity-level indexing."""

from __future__ import annotations

from enum import StrEnum


class IndexState(StrEnum):
    INDEXED = "Indexed"
    INDEXING = "Indexing"
    ERROR = "Error"
    BACKFILLING = "Backfilling"
    NOT_INDEXED = "NotIndexed"
    UNKNOWN = "Unknown"
