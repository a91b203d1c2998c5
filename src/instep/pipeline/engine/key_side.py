"""A side of a comparison of keys that Spark's tasks read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa

from instep.own_code import send_instep
from instep.pipeline.engine import sparkapi
from instep.pipeline.engine.tasks import ddl
from instep.pipeline.tables.key_comparison import SUMS_SCHEMA, Keep, Sums, summed
from instep.pipeline.tables.sides import KeyReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Batches: TypeAlias = "Iterator[pa.RecordBatch]"


@dataclass(frozen=True, slots=True)
class SparkSide:
    """Read by Spark's tasks: each tells its sums, and then the rows that are kept."""

    frame: Callable[[], DataFrame]
    reader: KeyReader

    def sums(self) -> Sums:
        return Sums.decode(self._collected(_Summing(self.reader), SUMS_SCHEMA))

    def rows(self, kept: Keep) -> pa.Table:
        return self._collected(_Keeping(self.reader, kept), self.reader.schema).cast(self.reader.schema)

    def _collected(self, task: Callable[[Batches], Batches], schema: pa.Schema) -> pa.Table:
        frame = self.frame()
        send_instep(frame.sparkSession)
        names = [f"c{at}" for at in range(len(self.reader.names))]
        wanted = frame.select(*("`" + each.replace("`", "``") + "`" for each in self.reader.names)).toDF(*names)
        plain = pa.schema([pa.field(f"c{at}", each.type) for at, each in enumerate(schema)])
        found: pa.Table = sparkapi.map_in_arrow(
            wanted, partial(_renamed, task=task, schema=plain), ddl(plain)
        ).toArrow()
        return found.rename_columns(schema.names)


def _renamed(batches: Batches, task: Callable[[Batches], Batches], schema: pa.Schema) -> Batches:
    for each in task(batches):
        yield pa.RecordBatch.from_arrays(each.columns, schema=schema)


@dataclass(frozen=True, slots=True)
class _Summing:
    reader: KeyReader

    def __call__(self, batches: Batches) -> Batches:
        return summed(self.reader.read(batches))


@dataclass(frozen=True, slots=True)
class _Keeping:
    reader: KeyReader
    kept: Keep

    def __call__(self, batches: Batches) -> Batches:
        return self.kept(self.reader.read(batches))
