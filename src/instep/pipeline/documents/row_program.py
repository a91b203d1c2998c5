"""A wave of documents that are rows of a table, or messages of a topic.

Rows are read on Spark by one scan of their table, with which the changes are joined.
The changes are broadcast, so rows stay in the task that reads them, and each document has one writer. In this process
the source looks for the rows itself, as for any other documents.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import chain
from operator import and_
from typing import TYPE_CHECKING, Any, cast

from instep.domain.columns import ColumnType
from instep.domain.keys import Key
from instep.domain.manifest import Action
from instep.domain.rows import row_key
from instep.domain.waves import Wave
from instep.pipeline.documents.pipeline import DocumentProgram
from instep.sources.tables.row_documents import RowDocuments
from instep.sources.topic import TopicSource

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from instep.pipeline.documents.row_reading import RowReader
    from instep.pipeline.documents.shared_scan import SharedScan
    from instep.sources.tables.table_source import Sessions, TableSource


@dataclass(frozen=True)
class LookingProgram(DocumentProgram):
    """Looks for the rows of changes in their table, in this process or in tasks. Its `source` is `RowDocuments`."""

    @property
    def _rows(self) -> RowDocuments:
        return cast(RowDocuments, self.source)

    def read(self, changes: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches of `CHANGE_SCHEMA` → batches of `CHUNK_SCHEMA`."""
        return self.row_reader.rows(changes)

    def shared(self, wave: Wave) -> SharedScan | None:
        """See `pipeline.engine.engine.SharingProgram`."""
        from instep.pipeline.documents.shared_scan import scan_of

        return scan_of(self._rows, wave, self.row_reader)

    def uncompressed(self) -> LookingProgram:
        """See `pipeline.engine.engine.SharingProgram`."""
        return replace(self, compressed=False)

    @property
    def row_reader(self) -> RowReader:
        from instep.pipeline.documents.row_reading import RowReader

        return RowReader(self.reader, self._rows)


@dataclass(frozen=True)
class TopicProgram(DocumentProgram):
    """Takes the texts of messages out of their changes. Its `source` is a `TopicSource`."""

    def read(self, changes: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches of `CHANGE_SCHEMA` → batches of `CHUNK_SCHEMA`."""
        from instep.pipeline.documents.row_reading import TopicReader

        return TopicReader(self.reader, cast(TopicSource, self.source)).rows(changes)


@dataclass(frozen=True)
class RowProgram(LookingProgram):
    """Implements `pipeline.engine.engine.RowProgram`."""

    @property
    def _frames(self) -> TableSource:
        frames = self._rows.frames
        assert frames is not None, "a table that Spark scans"
        return frames

    def changed_rows(self, spark: Sessions, wave: Wave, name: str) -> DataFrame:
        """See the port."""
        from instep.sources.tables.spark_rows import document_types, rows_of_keys

        frames, columns = self._frames, self._rows.columns
        types = document_types(frames, spark, columns)
        changes, keys = with_keys(wave, [types[each] for each in columns.key], name)
        return beside_changes(rows_of_keys(frames, spark, columns, keys), changes, len(columns.key), name)

    def read_rows(self, rows: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """See the port."""
        return self.row_reader.rows_of(map(self._answered, rows))

    def _answered(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
        import pyarrow as pa

        from instep.pipeline.documents.rows import CHANGE_SCHEMA

        own = len(CHANGE_SCHEMA)
        said = pa.RecordBatch.from_arrays(batch.columns[own:], batch.schema.names[own:])
        changes = pa.RecordBatch.from_arrays(batch.columns[:own], schema=CHANGE_SCHEMA)
        return changes, self._rows.said(said)

    def write(self, chunks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """A task of a scan may meet no row that is wanted; then it has nothing to stage, and nothing to say."""
        first = next((batch for batch in chunks if batch.num_rows), None)
        if first is not None:
            yield from super().write(chain([first], chunks))

    def without_rows(self, wave: Wave) -> Iterator[pa.RecordBatch]:
        """See the port: what is gone, and what is known to be flawed."""
        for batch in _changes(wave):
            apart = batch.filter(_apart(batch))
            if apart.num_rows:
                yield apart


def _changes(wave: Wave) -> Iterator[pa.RecordBatch]:
    from instep.pipeline.documents.rows import change_batch

    return map(change_batch, wave.slices)


def _apart(batch: pa.RecordBatch) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    gone = pc.equal(batch["action"], pa.scalar(str(Action.DELETE)))
    return pc.or_(gone, pc.not_equal(batch["locator"], pa.scalar("")))


def beside_changes(rows: DataFrame, changes: pa.Table, keys: int, name: str) -> DataFrame:
    """Rows, whose first columns are those of the key, behind their changes (`with_keys`)."""
    from pyspark.sql.functions import broadcast

    beside = broadcast(rows.sparkSession.createDataFrame(changes))
    named = rows.columns[:keys]
    same = [rows[each] == beside[f"{name}_k{at}"] for at, each in enumerate(named)]
    condition: Any = reduce(and_, same)
    return rows.join(beside, condition, "inner").select(*changes.column_names[:-keys], *rows.columns[keys:])


def with_keys(wave: Wave, types: Sequence[ColumnType], name: str) -> tuple[pa.Table, list[Key]]:
    """The changes of a wave that need a row, with the keys that their URIs name in columns of these types."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from instep.arrow.types import arrow_type
    from instep.pipeline.documents.rows import CHANGE_SCHEMA

    batches = [batch.filter(pc.invert(_apart(batch))) for batch in _changes(wave)]
    table = pa.Table.from_batches(batches, CHANGE_SCHEMA)
    named = [row_key(str(uri), types) for uri in table["uri"].to_pylist()]
    table = table.filter(pa.array([key is not None for key in named], pa.bool_()))
    keys = [key for key in named if key is not None]
    for at, kind in enumerate(types):
        table = table.append_column(f"k{at}", pa.array([key.values[at] for key in keys], arrow_type(kind)))
    return table.rename_columns([f"{name}_{each}" for each in table.column_names]), keys
