"""Tables that are read from one end to the other, for documents that are rows: the keys of all rows first, as they are
small, then the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from instep.domain.rows import DocumentColumns
from instep.sources.tables.row_documents import CountedTable

if TYPE_CHECKING:
    import pyarrow as pa


class RowRange(Protocol):
    """Rows that are read together. Rows that are marked as deleted are not there."""

    def key_columns(self) -> Iterator[pa.RecordBatch]:
        """The columns of the key of all its rows."""

    def rows(self, most: int) -> Iterator[pa.RecordBatch]:
        """All its rows, in the same order, at most so many at once: as `RowTable.rows` has them."""


@runtime_checkable
class ScannedTable(CountedTable, Protocol):
    """A table that this process reads from one end to the other."""

    def row_ranges(self, columns: DocumentColumns) -> Sequence[RowRange]:
        """All rows as they are now, in ranges. What changes meanwhile is told by their keys, at the latest."""
