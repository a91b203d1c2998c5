"""Rows of a table as documents, where only Spark can read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, NoReturn

from instep.domain.columns import ColumnType
from instep.domain.cuts import KeyRange
from instep.domain.keys import Key
from instep.domain.rows import DocumentColumns, Selection
from instep.sources.tables.row_documents import ROW_BYTES, demand_types, row_columns, selection
from instep.sources.tables.spark_reading import told
from instep.sources.tables.spark_types import quoted
from instep.sources.tables.table_source import Sessions, TableSource, demand

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import pyarrow as pa
    from pyspark.sql import DataFrame

    from instep.sources.tables.spark_tables import SparkTable

#: A table that is cut by ranges, as one in a database is, is read in so many.
_RANGES = 16


@dataclass(frozen=True)
class SparkRows:
    """Implements `row_table.RowTable` as far as listing goes; rows go to Spark's tasks by `rows_of_keys`."""

    table: SparkTable
    spark: Sessions

    @property
    def text(self) -> str:
        return self.table.text

    def key_types(self, columns: DocumentColumns) -> Sequence[ColumnType]:
        return [document_types(self.table, self.spark, columns)[name] for name in columns.key]

    def count(self, columns: DocumentColumns) -> int:
        """See `row_documents.CountedTable`."""
        return self.table.count(self.spark, row_columns(columns), selection())

    def listed(self, columns: DocumentColumns) -> Iterator[pa.RecordBatch]:
        frame = self.frame(columns)
        with self.told():
            found: pa.Table = frame.toArrow()
        for batch in found.combine_chunks().to_batches():
            yield rows_of(batch, columns)

    def frame(self, columns: DocumentColumns) -> DataFrame:
        """See `row_documents.FramedTable`: the columns of the key; the version as it is stored; a hash of the content,
        if one is needed; the size; other declared columns that count for such a hash.
        """
        document_types(self.table, self.spark, columns)
        with self.told():
            frame = self.table.frame(self.spark, row_columns(columns), selection())
            self._demand_declared(frame, columns)
            keys = [quoted(name) for name in columns.key]
            version = quoted(columns.version) if columns.version is not None else "CAST(NULL AS STRING)"
            # Of a row without a version its content tells; so it has to be read.
            by_content = columns.version is None or not frame.where(f"{version} IS NULL").limit(1).isEmpty()
            if by_content:
                text = _content(columns.text)
                content = f"concat({_content(columns.title)}, X'00', {text})" if columns.title else text
                asked = [*keys, version, f"sha2({content}, 256)", f"CAST(octet_length({text}) AS BIGINT)"]
            else:
                asked = [*keys, version, "CAST(NULL AS STRING)", f"CAST(-{ROW_BYTES} AS BIGINT)"]
            asked += [quoted(each.of) if by_content else "NULL" for each in columns.columns]
            return frame.selectExpr(*(f"{each} AS c{at}" for at, each in enumerate(asked)))

    def _demand_declared(self, frame: DataFrame, columns: DocumentColumns) -> None:
        """Check the types of declared columns before any row is read."""
        from pyspark.sql.pandas.types import to_arrow_type

        from instep.sources.tables.rows import demand_declared

        for each in columns.columns:
            demand_declared(each, to_arrow_type(frame.schema[each.of].dataType, timezone="UTC"), self.text)

    def told(self) -> AbstractContextManager[None]:
        return told(self.text, self.table.options)

    def rows(self, columns: DocumentColumns, keys: Sequence[Key]) -> NoReturn:
        raise AssertionError("a table that only Spark can read is read by its tasks")


def rows_of(batch: pa.RecordBatch, columns: DocumentColumns) -> pa.RecordBatch:
    """Rows of `SparkRows.frame` as `row_documents.RowTable` lists them."""
    import pyarrow.compute as pc

    from instep.sources.tables.rows import declared_values, row_versions, versions_with

    size = len(columns.key) + 3
    *keys, versions, hashes, sizes = batch.columns[:size]
    if columns.columns and hashes.null_count < len(hashes):
        facts = declared_values(batch.columns[size:], columns.columns).facts
        hashes = versions_with(hashes, facts)
    versions = pc.if_else(versions.is_null(), hashes, row_versions(versions))
    return batch.from_arrays([*keys, versions, sizes], [*batch.schema.names[: size - 3], "version", "size"])


def document_types(table: TableSource, spark: Sessions, columns: DocumentColumns) -> Mapping[str, ColumnType]:
    """The types of the columns of documents. Raises `UserError` for a column that is missing, or has a wrong type."""
    types = {each.name: each.type for each in table.columns(spark)}
    demand(columns.named, list(types), table.text)
    demand_types(columns, types, table.text)
    return types


def rows_of_keys(table: TableSource, spark: Sessions, columns: DocumentColumns, keys: Sequence[Key]) -> DataFrame:
    """Rows with these keys, and perhaps others: `k0`, … of the key; `version` and `title`, as far as there are columns
    for them; `text`; `c0`, … of declared columns. Title and text as bytes.
    """
    frame = table.frame(spark, row_columns(columns, keys), _selection(columns, keys))
    asked = [f"{quoted(name)} AS k{at}" for at, name in enumerate(columns.key)]
    asked += [f"{quoted(columns.version)} AS version"] if columns.version else []
    asked += [f"{_content(columns.title)} AS title"] if columns.title else []
    asked += [f"{_content(columns.text)} AS text"]
    return frame.selectExpr(*asked, *(f"{quoted(each.of)} AS c{at}" for at, each in enumerate(columns.columns)))


def _selection(columns: DocumentColumns, keys: Sequence[Key]) -> Selection:
    """Beside the keys, which may be too many to be asked for: ranges of the first column that they lie in."""
    if not keys:
        return selection()
    values = sorted({key.prefix(1) for key in keys})
    edges = [values[len(values) * at // _RANGES] for at in range(_RANGES)]
    edges = [each for at, each in enumerate(edges) if not at or each != edges[at - 1]]
    ranges = [KeyRange(lower, upper) for lower, upper in pairwise([*edges, None])]
    return replace(selection(keys), cut_by=columns.key[:1], ranges=tuple(ranges))


def _content(name: str) -> str:
    return f"coalesce(CAST({quoted(name)} AS BINARY), X'')"
