"""The documents of a wave as a Spark Python Data Source: one input partition for each share of it.

It gives chunk rows, for a user's transform to work on; the writer follows as `mapInArrow`. A wave
without a transform has nothing to show to Spark and goes without it (see `spark.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import pyarrow as pa
from pyspark.serializers import CloudPickleSerializer
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from instep.domain.waves import Wave, WaveSlice, assign_tasks
from instep.error_transport import packed
from instep.pipeline.documents.rows import CHUNK_SCHEMA
from instep.pipeline.engine.engine import Batches, ChunkProgram, WaveProgram
from instep.pipeline.engine.tasks import ddl, frozen_afterwards, packed_changes


class Share(InputPartition):  # type: ignore[misc]  # PySpark brings no types for it
    """The changes of one task as an Arrow stream."""

    def __init__(self, changes: bytes) -> None:
        self.changes = changes


class WaveReader(DataSourceReader):  # type: ignore[misc]  # PySpark brings no types for it
    """Runs in tasks. `program` is what they do (pickled: the processes that only plan never load it, with
    all that it imports).
    """

    def __init__(self, program: bytes, parts: Sequence[Share]) -> None:
        self._program = program
        self._parts = list(parts)

    def __reduce__(self) -> tuple[Any, ...]:
        # Spark pickles the reader into every task; the task gets its own partition beside it.
        return WaveReader, (self._program, ())

    def partitions(self) -> Sequence[InputPartition]:
        return self._parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Share)
        program = cast(WaveProgram, CloudPickleSerializer().loads(self._program))
        return frozen_afterwards(packed(program.read(iter(pa.ipc.open_stream(partition.changes)))))


class WaveSource(DataSource):  # type: ignore[misc]  # PySpark brings no types for it
    """Base of the source that one wave registers; `wave_source` puts the wave's content in."""

    program: bytes
    parts: Sequence[Share]
    columns: str

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._parts = self.parts

    def __reduce__(self) -> tuple[Any, ...]:
        # Without the parts once the reader has them: Spark pickles the source into every task too.
        return _source, (self.name(), self.program, self._parts, self.columns)

    def schema(self) -> str:
        return self.columns

    def reader(self, schema: StructType) -> DataSourceReader:
        parts, self._parts = self._parts, ()
        return WaveReader(self.program, parts)


def _source(name: str, program: bytes, parts: Sequence[Share], columns: str) -> WaveSource:
    return _source_class(name, program, parts, columns)({})


def _source_class(name: str, program: bytes, parts: Sequence[Share], columns: str) -> type[WaveSource]:
    content = {"name": classmethod(lambda cls: name), "program": program, "parts": parts, "columns": columns}
    return type("ThisWave", (WaveSource,), content)


class _Silence:
    """Reads nothing: a program for looking at what would be done."""

    def read(self, changes: Batches) -> Batches:
        return iter(())

    def write(self, chunks: Batches) -> Batches:
        return iter(())


def empty_source(name: str, schema: pa.Schema = CHUNK_SCHEMA) -> type[WaveSource]:
    """A data source class of a wave without documents, whatever a transform asks of it."""
    nothing = Share(packed_changes([WaveSlice("", 0, 0, 0)]))
    return _source_class(name, CloudPickleSerializer().dumps(_Silence()), [nothing], ddl(schema))


def wave_source(name: str, wave: Wave, program: WaveProgram) -> type[WaveSource]:
    """A data source class that carries the wave by value, to be registered under `name`."""
    parts = [Share(packed_changes(share)) for share in assign_tasks(wave.slices, wave.tasks)]
    schema = program.chunk_schema() if isinstance(program, ChunkProgram) else CHUNK_SCHEMA
    return _source_class(name, CloudPickleSerializer().dumps(program), parts, ddl(schema))
