"""Rows of ClickHouse as a Spark Python Data Source: one input partition for each query, Arrow from end to end.

A task reads its answer to the end into a file, and then hands it on. So an attempt that breaks is made again without a
row coming twice, memory holds a few blocks, and in process (chdb, which one process at a time can open) the next task
gets its turn while the rows of this one are being written.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from instep.arrow_types import arrow_schema
from instep.clickhouse.location import Location
from instep.clickhouse.session import Overflow
from instep.domain.columns import Column, ColumnType, TypeName
from instep.error_transport import packed
from instep.errors import Away, Transient

#: Rows of a block; halved, down to the least, while the server says that they need too much memory.
BLOCK_ROWS = 100_000
LEAST_BLOCK_ROWS = 1_024

#: Between one attempt and the next, for errors that pass.
PAUSES = (0.1, 0.2, 0.4)

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


def as_ours(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """An answer in our types. Whether text is text is looked at where it is written, row by row if need be."""
    arrays = [
        array.view(pa.string()) if array.type == pa.binary() and field.type == pa.string() else array.cast(field.type)
        for array, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class Query(InputPartition):  # type: ignore[misc]  # PySpark brings no types for it
    """A SELECT and its parameters."""

    def __init__(self, sql: str, values: Mapping[str, Any]) -> None:
        self.sql = sql
        self.values = dict(values)


@dataclass(frozen=True)
class QueryReader:
    """Reads the queries of a frame: its server, and the columns of the answers."""

    place: Location
    columns: tuple[Column, ...]

    def read(self, query: Query) -> Iterator[pa.RecordBatch]:
        with tempfile.TemporaryFile() as file:
            self._spooled(query, file)
            file.seek(0)
            schema = arrow_schema(self.columns)
            end = file.seek(0, 2)
            file.seek(0)
            while file.tell() < end:
                for batch in pa.ipc.open_stream(file):
                    yield as_ours(batch, schema)

    def _spooled(self, query: Query, file: IO[bytes]) -> None:
        rows, pauses = BLOCK_ROWS, iter(PAUSES)
        while True:
            file.seek(0)
            file.truncate()
            try:
                with self.place.session() as session:
                    return session.spool(query.sql, file, block_rows=rows, **query.values)
            except Overflow:
                if rows == LEAST_BLOCK_ROWS:
                    raise
                rows = max(LEAST_BLOCK_ROWS, rows // 2)
            except (Transient, Away):
                pause = next(pauses, None)
                if pause is None:
                    raise
                time.sleep(pause)


class TableReader(DataSourceReader):  # type: ignore[misc]  # PySpark brings no types for it
    def __init__(self, query_reader: QueryReader, queries: Sequence[Query]) -> None:
        self._query_reader = query_reader
        self._queries = list(queries)

    def __reduce__(self) -> tuple[Any, ...]:
        # Spark pickles the reader into every task; the task gets its own query beside it.
        return TableReader, (self._query_reader, ())

    def partitions(self) -> Sequence[InputPartition]:
        return self._queries

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Query)
        return packed(self._query_reader.read(partition))


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
