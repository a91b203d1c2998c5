"""Read the answers of queries of ClickHouse, in Arrow from end to end, here or in a task of Spark.

A reader reads an answer to the end into a file, and then hands it on. So an attempt that breaks is made again without a
row coming twice, memory holds a few blocks, and in process (chdb, which one process at a time can open) the next task
gets its turn while the rows of this one are being written.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import IO, Any

import pyarrow as pa

from instep.arrow.types import arrow_schema
from instep.clickhouse.location import Location
from instep.clickhouse.session import Overflow
from instep.domain.columns import Column
from instep.errors import Away, Transient

#: Rows of a block; halved, down to the least, while the server says that they need too much memory.
BLOCK_ROWS = 100_000
LEAST_BLOCK_ROWS = 1_024

#: Between one attempt and the next, for errors that pass.
PAUSES = (0.1, 0.2, 0.4)


def as_ours(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """An answer in our types. Whether text is text is looked at where it is written, row by row if need be."""
    arrays = [
        array.view(pa.string()) if array.type == pa.binary() and field.type == pa.string() else array.cast(field.type)
        for array, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@dataclass(frozen=True)
class Query:
    """A SELECT and its parameters."""

    sql: str
    values: Mapping[str, Any]


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
