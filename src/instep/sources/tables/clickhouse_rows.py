"""Rows of a table of ClickHouse as documents, read without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from instep.clickhouse.session import quoted
from instep.domain.columns import BYTES, INT64, STRING, Column, ColumnType
from instep.domain.keys import Key
from instep.domain.rows import DocumentColumns
from instep.sources.tables.clickhouse import ClickHouseTable
from instep.sources.tables.clickhouse_types import SourceColumn
from instep.sources.tables.row_documents import demand_types, row_columns, selection
from instep.sources.tables.table_source import demand

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class ClickHouseRows:
    """Implements `row_table.RowTable`. Lengths and hashes are worked out by ClickHouse."""

    table: ClickHouseTable

    @property
    def text(self) -> str:
        return self.table.text

    def key_types(self, columns: DocumentColumns) -> Sequence[ColumnType]:
        from instep.arrow.types import arrow_type
        from instep.sources.tables.rows import demand_declared

        types = {each.name: each.type for each in self.table.columns(_no_spark)}
        demand(columns.named, list(types), self.text)
        demand_types(columns, types, self.text)
        for each in columns.columns:
            demand_declared(each, arrow_type(types[each.of]), self.text)
        return [types[name] for name in columns.key]

    def listed(self, columns: DocumentColumns) -> Iterator[pa.RecordBatch]:
        import pyarrow.compute as pc

        from instep.sources.tables.rows import declared_values, row_versions, versions_with

        self.key_types(columns)
        by_content = columns.version is None
        found = self._listed(columns, by_content=by_content)
        if columns.version is not None and any(batch.column(len(columns.key)).null_count for batch in found):
            # Of a row without a version its content tells; so it has to be read.
            by_content = True
            found = self._listed(columns, by_content=True)
        for batch in found:
            size = len(columns.key) + 3
            *keys, versions, hashes, sizes = batch.columns[:size]
            if columns.columns and by_content:
                hashes = versions_with(hashes, declared_values(batch.columns[size:], columns.columns).facts)
            versions = pc.if_else(versions.is_null(), hashes, row_versions(versions))
            yield batch.from_arrays([*keys, versions, sizes], [*batch.schema.names[: size - 3], "version", "size"])

    def _listed(self, columns: DocumentColumns, *, by_content: bool) -> list[pa.RecordBatch]:
        rows = row_columns(columns)
        return list(self.table.picked(rows, selection(), lambda there: _listed(columns, there, by_content=by_content)))

    def rows(self, columns: DocumentColumns, keys: Sequence[Key]) -> Iterator[pa.RecordBatch]:
        return self.table.picked(row_columns(columns, keys), selection(keys), lambda there: _rows(columns, there))


def _listed(
    columns: DocumentColumns, there: Mapping[str, SourceColumn], *, by_content: bool
) -> list[tuple[Column, str]]:
    """The columns of the key; the version as it is stored; a hash of the content, if it is asked for; the size."""
    text = _content(there[columns.text])
    if columns.version is not None:
        version = (Column("_version", there[columns.version].column.type), there[columns.version].value)
    else:
        version = (Column("_version", STRING), "CAST(NULL, 'Nullable(String)')")
    content = f"concat({_content(there[columns.title])}, char(0), {text})" if columns.title else text
    hashed = f"lower(hex(SHA256({content})))" if by_content else "''"
    size = (Column("_size", INT64), f"toInt64(length({text}))")
    found = [*_keys(columns, there), version, (Column("_hash", STRING), hashed), size]
    # Without need they are not read.
    return found + (_declared(columns, there) if by_content else _nothing(columns))


def _rows(columns: DocumentColumns, there: Mapping[str, SourceColumn]) -> list[tuple[Column, str]]:
    found = [*_keys(columns, there)]
    if columns.version is not None:
        found.append((Column("_version", there[columns.version].column.type), there[columns.version].value))
    said = ((Column(name, BYTES), _content(there[name])) for name in (columns.title, columns.text) if name)
    return [*found, *said, *_declared(columns, there)]


def _declared(columns: DocumentColumns, there: Mapping[str, SourceColumn]) -> list[tuple[Column, str]]:
    return [
        (Column(f"_column{at}", there[each.of].column.type), there[each.of].value)
        for at, each in enumerate(columns.columns)
    ]


def _nothing(columns: DocumentColumns) -> list[tuple[Column, str]]:
    return [(Column(f"_column{at}", STRING), "CAST(NULL, 'Nullable(String)')") for at in range(len(columns.columns))]


def _keys(columns: DocumentColumns, there: Mapping[str, SourceColumn]) -> list[tuple[Column, str]]:
    return [(there[name].column, there[name].value) for name in columns.key]


def _content(column: SourceColumn) -> str:
    """A column as bytes; a null is empty."""
    value = f"toString({column.value})" if column.value != quoted(column.name) else column.value
    return f"ifNull({value}, '')"


def _no_spark() -> NoReturn:
    raise AssertionError("ClickHouse says all of this itself")
