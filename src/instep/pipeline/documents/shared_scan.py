"""One scan of a table that all tasks of a wave in this process share.

Where a wave has much of a table, its rows are taken as they come, each beside its change, by whichever task is free: no
task looks for its own rows among all others, and none waits in a file.
"""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from instep.document_state.columns import ChangeColumns
from instep.domain.manifest import Action
from instep.domain.waves import Wave
from instep.errors import Transient
from instep.pipeline.documents.reading import tombstones
from instep.pipeline.documents.rows import changes_together
from instep.sources.tables.row_documents import RowDocuments, sound
from instep.sources.tables.rows import row_uris
from instep.sources.tables.scanned_table import RowRange, ScannedTable

if TYPE_CHECKING:
    from instep.pipeline.documents.row_reading import RowReader

    Array = np.ndarray[Any, np.dtype[Any]]

#: Of fewer documents, or of a smaller part of the rows, each task looks for its own.
LEAST: Final = 20_000
PART: Final = 8
#: More changes are not put together: an array of Arrow has no more bytes of text.
_MOST_BYTES: Final = 2**31 - 1
#: Documents in a batch, about: their rows are a little less than a group of the writer, which then takes them whole.
_AT_ONCE: Final = 7_500
#: Rows whose keys are looked for together, about: for each time a table of all that are wanted is made.
_TOGETHER: Final = 2_000_000


def scan_of(source: RowDocuments, wave: Wave, reader: RowReader) -> SharedScan | None:
    """The scan of the source's table for a wave; None if each task is to look for its own rows."""
    documents = sum(len(each.changes) for each in wave.slices)
    if documents < LEAST or type(source) is not RowDocuments:
        return None
    table = source.table
    if not isinstance(table, ScannedTable) or documents * PART < table.count(source.columns):
        return None
    if sum(each.changes.table.nbytes for each in wave.slices if isinstance(each.changes, ChangeColumns)) > _MOST_BYTES:
        return None
    return SharedScan(source, reader, table.row_ranges(source.columns), changes_together(wave.slices))


class SharedScan:
    """One scan of a table, of which each task takes the next rows (`pipeline.engine.engine.SharedRead`). It is known
    which documents have a row, and no more than one, before any of them is read.
    """

    def __init__(
        self, source: RowDocuments, reader: RowReader, row_ranges: Sequence[RowRange], changes: pa.RecordBatch
    ) -> None:
        self._source = source
        self._reader = reader
        gone: Any = pc.equal(changes["action"], pa.scalar(Action.DELETE.value))
        readable: Any = pc.and_(pc.invert(gone), sound(changes["locator"]))
        # As a rule all are: a copy of them takes as long as to find their rows.
        self._changes = changes if pc.all(readable).as_py() else changes.filter(readable)
        places, counts = _places(source, row_ranges, self._changes["uri"])
        once = counts == 1
        #: The change of each row: its place among those of documents that have one row; -1 where there is none.
        chosen = np.append(once, False)  # Of -1, too.
        self._places = [np.where(chosen[each], each, -1) for each in places]
        read = sum(int((each >= 0).sum()) for each in self._places)
        rows = sum(map(len, self._places))
        self._most = max(1, _AT_ONCE * rows // max(1, read))
        flawed = changes.filter(pc.invert(pc.or_(gone, readable)))
        self._apart: list[tuple[pa.RecordBatch, Array | None]] = [
            (changes.filter(gone), None),
            (flawed, np.full(flawed.num_rows, -1)),
            (self._changes.filter(pa.array(~once)), np.where(counts == 0, -1, -counts)[~once]),
        ]
        self._lock = threading.Lock()
        self._rows = self._read(row_ranges)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Batches of `CHUNK_SCHEMA` for one task, as long as there are any: those of no other task."""
        while (apart := self._next_apart()) is not None:
            yield from self._without_rows(*apart)
        while (found := self._next_rows()) is not None:
            yield from self._beside_changes(*found)

    def close(self) -> None:
        """Leave the table alone. No task runs any more."""
        self._rows.close()

    def _next_apart(self) -> tuple[pa.RecordBatch, Array | None] | None:
        with self._lock:
            return self._apart.pop() if self._apart else None

    def _next_rows(self) -> tuple[Array, pa.RecordBatch] | None:
        with self._lock:
            return next(self._rows, None)

    def _read(self, row_ranges: Sequence[RowRange]) -> Generator[tuple[Array, pa.RecordBatch], None, None]:
        """Rows of the table, with their changes' places."""
        for each, places in zip(row_ranges, self._places, strict=True):
            if not (places >= 0).any():
                continue
            done = 0
            for rows in each.rows(self._most):
                yield places[done : done + rows.num_rows], rows
                done += rows.num_rows
            if done != len(places):
                raise self._changed()

    def _without_rows(self, changes: pa.RecordBatch, places: Array | None) -> Iterator[pa.RecordBatch]:
        """Documents that go, or else those that have no row that can be read (`FoundRows.places`)."""
        if not changes.num_rows:
            return
        if places is None:
            yield from tombstones(changes, self._reader.reader.schema)
        else:
            answers = self._source.absent(places, changes["locator"].to_pylist())
            yield from self._reader.reader.rows_of([(changes, answers)])

    def _beside_changes(self, places: Array, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if len(places) != rows.num_rows:
            raise self._changed()
        chosen = places >= 0
        if not chosen.all():
            places, rows = places[chosen], rows.filter(pa.array(chosen))
        if not len(places):
            return
        changes, named = self._changes.take(pa.array(places, pa.int64())), len(self._source.columns.key)
        if not row_uris(self._source.entity, rows.columns[:named]).equals(changes["uri"]):
            raise self._changed()
        said = self._source.said(rows.select(range(named, rows.num_columns)))
        yield from self._reader.rows_of([(changes, said)])

    def _changed(self) -> Transient:
        return Transient(f"{self._source.text} has changed while it was read")


def _places(source: RowDocuments, row_ranges: Sequence[RowRange], wanted: Any) -> tuple[list[Array], Array]:
    """Find, for the rows of each range, the places of their URIs among those that are wanted, -1 where one is not; and
    count the rows of each of these.
    """
    counts = np.zeros(len(wanted), np.int64)
    found: list[Array] = []
    waiting: list[pa.ChunkedArray[Any]] = []

    def look() -> None:
        uris = pa.chunked_array([chunk for each in waiting for chunk in each.chunks], pa.string())
        at: Any = pc.index_in(uris, value_set=wanted)
        places = at.fill_null(-1).to_numpy().astype(np.int64)
        np.add(counts, np.bincount(places[places >= 0], minlength=len(wanted)), out=counts)
        ends = np.cumsum([len(each) for each in waiting])
        found.extend(np.split(places, ends[:-1]) if waiting else [])
        waiting.clear()

    for each in row_ranges:
        uris = [row_uris(source.entity, batch.columns) for batch in each.key_columns()]
        waiting.append(pa.chunked_array(uris, pa.string()))
        if sum(map(len, waiting)) >= _TOGETHER:
            look()
    look()
    return found, counts
