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
SOURCE_URI: Final = DocumentColumn("source_uri", DocumentColumnType.STRING)
BUILT_IN: Final = (
    SOURCE_URI,
    DocumentColumn("title", DocumentColumnType.STRING),
    MODIFIED,
)


class Origin(StrEnum):
    """Origins of the values of declared columns."""

    FRONT_MATTER = "front_matter"
    PATH = "path"
    FILE = "file"
    SOURCE = "source"
    TRANSFORM = "transform"
    CHUNK = "chunk"


@dataclass(frozen=True, slots=True)
class DeclaredColumn:
    """A column with the origin of its values. `of` is what it is called there: the key of front matter, a regular
    expression, the fact of a file or of a chunk, the field of a line, the column of a table. `lenient`: a wrong
    value is none.
    """

    column: DocumentColumn
    origin: Origin
    of: str
    lenient: bool = False

    @property
    def name(self) -> str:
        return self.column.name


#: What can be said of a chunk, and the type that it has: the page and the line on which it begins, and the headings
#: above it.
CHUNK_FACTS: Final = {
    "page": DocumentColumnType.INT,
    "line": DocumentColumnType.INT,
    "headings": DocumentColumnType.STRINGS,
}

#: What can be said of a file: its size in bytes, when it was modified, and how its name ends, in lower case.
FACTS: Final = ("size", "modified", "extension")
