"""Rows of ClickHouse as a Spark Python Data Source: one input partition for each query."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from instep.domain.columns import Column, ColumnType, TypeName
from instep.error_transport import packed
from instep.sources.tables.clickhouse_reader import Query, QueryReader

_SPARK_TYPES = {
    TypeName.BOOL: "boolean",
    TypeName.INT32: "int",
    TypeName.INT64: "bigint",
    TypeName.FLOAT32: "float",
    TypeName.FLOAT64: "double",
    TypeName.BYTES: "binary",
}


def _spark_type(kind: ColumnType) -> str:
    return _SPARK_TYPES.get(kind.name, str(kind))


def ddl(columns: Sequence[Column]) -> str:
    """Spark's schema for the same."""
    names = ("`" + each.name.replace("`", "``") + "`" for each in columns)
    return ", ".join(f"{name} {_spark_type(each.type)}" for name, each in zip(names, columns, strict=True))


class TableReader(DataSourceReader):  # type: ignore[misc]  # PySpark brings no types for it
    def __init__(self, query_reader: QueryReader, queries: Sequence[Query]) -> None:
        self._query_reader = query_reader
        self._queries = list(queries)

    def __reduce__(self) -> tuple[Any, ...]:
        # Spark pickles the reader into every task; the task gets its own query beside it.
        return TableReader, (self._query_reader, ())

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(each) for each in self._queries]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return packed(self._query_reader.read(partition.value))


class TableSource(DataSource):  # type: ignore[misc]  # PySpark brings no types for it
    """Base of the source that one frame registers; `data_source` puts its content in. It is no option of Spark's
    reader: a plan shows those, and it has a password.
    """

    query_reader: QueryReader
    queries: Sequence[Query]

    def schema(self) -> str:
        return ddl(self.query_reader.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        return TableReader(self.query_reader, self.queries)


def data_source(name: str, query_reader: QueryReader, queries: Sequence[Query]) -> type[TableSource]:
    """A data source that carries everything by value, to be registered under `name`."""
    content = {"name": classmethod(lambda cls: name), "query_reader": query_reader, "queries": tuple(queries)}
    return type("ThisTable", (TableSource,), content)
