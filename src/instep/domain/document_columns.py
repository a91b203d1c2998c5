"""Columns of documents: typed values beside text and title, that a search can filter by.

The set of types is what every document target stores natively and compares alike. `columns.py` has the larger set of
tables. A moment is in UTC, in microseconds; a list has no nulls, and an empty one is stored as a null.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class DocumentColumnType(StrEnum):
    """The types as they are declared under `columns:`."""

    STRING = "string"
    INT = "int"
    FLOAT = "float"
    BOOL = "bool"
    TIMESTAMP = "timestamp"
    DATE = "date"
    STRINGS = "string[]"
    INTS = "int[]"

    @property
    def listed(self) -> bool:
        """Whether a value is a list."""
        return self.value.endswith("[]")


@dataclass(frozen=True, slots=True)
class DocumentColumn:
    """One column of the documents of an entity. Any value may be null."""

    name: str
    type: DocumentColumnType


#: When a document was modified, as its source said when the row was written.
MODIFIED: Final = DocumentColumn("modified", DocumentColumnType.TIMESTAMP)

#: Columns that documents of every entity have without being declared.
BUILT_IN: Final = (
    DocumentColumn("source_uri", DocumentColumnType.STRING),
    DocumentColumn("title", DocumentColumnType.STRING),
    MODIFIED,
)
