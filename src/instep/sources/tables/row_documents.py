"""Documents that are rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from instep.domain.keys import Key
from instep.domain.manifest import SourceDocument
from instep.domain.row_documents import NULL, DocumentColumns, row_key
from instep.sources.document_source import Answer, Content, Listing, Unreadable, Vanished
from instep.sources.local import check_size
from instep.sources.tables.row_table import RowTable
from instep.sources.tables.table_source import TableSource

if TYPE_CHECKING:
    import pyarrow as pa

    from instep.sources.tables.row_spool import RowSpool


@dataclass(frozen=True)
class RowDocuments:
    """Implements `sources.document_source.DocumentSource`. `table` lists and reads without Spark where that can be;
    `frames` is the same table for Spark. Tasks of Spark are given the rows: both stay behind.
    """

    entity: str
    columns: DocumentColumns
    table: RowTable
    frames: TableSource

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "table": None, "frames": None}

    @property
    def text(self) -> str:
        """Where they are, for people; without secrets."""
        return self.table.text

    def list(self, progress: Callable[[int], None] | None = None) -> Listing:
        """Everything, sorted by URI. Rows that share a key, or have none, are one document that cannot be read."""
        import pyarrow as pa

        from instep.sources.tables.row_identity import row_uris

        columns: list[tuple[str, pa.DataType]] = [("uri", pa.string()), ("version", pa.string()), ("size", pa.int64())]
        schema = pa.schema(columns)
        found, rows = [], 0
        for batch in self.table.listed(self.columns):
            *keys, versions, sizes = batch.columns
            found.append(pa.RecordBatch.from_arrays([row_uris(self.entity, keys), versions, sizes], schema=schema))
            rows += batch.num_rows
            if progress:
                progress(rows)
        ordered = pa.Table.from_batches(found, schema).sort_by("uri")
        return Listing(list(self._documents(ordered)), [])

    def _documents(self, ordered: pa.Table) -> Iterator[SourceDocument]:
        import numpy as np
        import pyarrow.compute as pc

        if not ordered.num_rows:
            return
        uris: Any = ordered["uri"].combine_chunks()
        other: Any = pc.not_equal(uris[1:], uris[:-1])
        starts = np.append(0, np.flatnonzero(other.to_numpy(zero_copy_only=False)) + 1)
        counts = np.diff(starts, append=len(uris))
        without: Any = pc.match_substring(uris.take(starts), NULL)
        firsts = ordered.take(starts)
        columns = (firsts[name].to_pylist() for name in ("uri", "version", "size"))
        for uri, version, size, count, null in zip(*columns, counts.tolist(), without.to_pylist(), strict=True):
            flaw = self._flaw(count, null=null) if null or count > 1 else ""
            yield SourceDocument(uri, size, flaw or version, flaw)

    def _flaw(self, count: int, *, null: bool) -> str:
        named = ", ".join(self.columns.key)
        if null:
            return f"{count:,} row{'s have' if count > 1 else ' has'} a null in the key ({named})"
        return f"{count:,} rows have this key ({named})"

    def contents(self, documents: Iterable[SourceDocument], *, max_bytes: int) -> Iterator[Answer]:
        """One look at the table for all of them; what it gives waits in a file."""
        from instep.sources.tables.row_spool import RowSpool

        wanted = list(documents)
        with RowSpool(self.entity, self.columns) as spool:
            sought = [each.uri for each in wanted if not each.locator]
            if keys := self._keys(sought):
                spool.keep(self.table.rows(self.columns, keys), sought)
            for each in wanted:
                yield self._answer(each, spool, max_bytes)

    def _keys(self, uris: Sequence[str]) -> Sequence[Key]:
        types = self.table.key_types(self.columns) if uris else ()
        return [key for key in (row_key(uri, types) for uri in uris) if key is not None]

    def _answer(self, document: SourceDocument, spool: RowSpool, max_bytes: int) -> Answer:
        if document.locator:
            return Unreadable(document.locator)
        count = spool.count(document.uri)
        if count > 1:
            return Unreadable(self._flaw(count, null=False))
        return self._content(*spool.row(document.uri), max_bytes) if count else Vanished()

    def answers(self, rows: pa.RecordBatch, *, max_bytes: int) -> Iterator[Answer]:
        """Rows that are there, as documents: their last columns are version, title and text, as far as declared."""
        from instep.sources.tables.row_spool import said_by

        said = said_by(rows, self.columns)
        for version, title, text in zip(*said.columns, strict=True):
            yield self._content(version.as_py(), title.as_py(), text.as_py(), max_bytes)

    def _content(self, version: str, title: bytes | None, text: bytes | None, max_bytes: int) -> Answer:
        """A text that is null is empty."""
        data = text or b""
        try:
            check_size(len(data), max_bytes)
        except Unreadable as answer:
            return answer
        shown = (title or b"").decode(errors="replace") if self.columns.title else None
        return Content(data, len(data), version, shown, text=True)
