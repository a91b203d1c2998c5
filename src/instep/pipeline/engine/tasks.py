"""Functions and settings of Spark tasks, for waves of documents and of tables."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol, cast

import pyarrow as pa
from pyspark import TaskContext
from pyspark.serializers import CloudPickleSerializer

from instep.domain.waves import WaveSlice
from instep.error_transport import TaskError, pack, packed
from instep.errors import Transient
from instep.pipeline.documents.rows import change_batch
from instep.pipeline.engine.engine import Batches, RowProgram, WaveProgram
from instep.pipeline.engine.pipelining import pipelined
from instep.pipeline.outcomes import OUTCOME_SCHEMA

#: Outcomes of Spark's tasks, with the seconds of CPU that their process has taken for them.
TASK_SCHEMA = OUTCOME_SCHEMA.append(pa.field("cpu", pa.float64(), nullable=False))

#: The seconds of CPU that a task has taken.
CPU_SCHEMA = pa.schema([TASK_SCHEMA.field("cpu")])

_SPARK_TYPES = {
    pa.string(): "string",
    pa.binary(): "binary",
    pa.int64(): "bigint",
    pa.int32(): "int",
    pa.bool_(): "boolean",
    pa.float64(): "double",
    pa.date32(): "date",
    pa.timestamp("us", "UTC"): "timestamp",
    pa.list_(pa.string()): "array<string>",
    pa.list_(pa.int64()): "array<bigint>",
}


def ddl(schema: pa.Schema) -> str:
    """The Spark schema whose Arrow form is exactly this one."""
    return ", ".join(
        f"`{field.name}` {_SPARK_TYPES[field.type]}{'' if field.nullable else ' NOT NULL'}" for field in schema
    )


def packed_changes(slices: Sequence[WaveSlice]) -> bytes:
    """Changes of one task's slices as an Arrow stream, one batch each, compressed: it travels driver → JVM → task."""
    sink = pa.BufferOutputStream()
    batches = [change_batch(part) for part in slices]
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def outcome_task(shares: Sequence[Sequence[WaveSlice]], program: WaveProgram) -> Callable[[Batches], Batches]:
    """A task for `mapInArrow` over a range with one row (`id`) for each share of a wave: reads and writes it."""
    parts = list(map(packed_changes, shares))
    # Pickled apart, so that only the process that runs it loads what it imports.
    pickled = CloudPickleSerializer().dumps(program)

    once = bool(getattr(program, "once", False))

    def task(rows: Batches) -> Batches:
        if once:
            _demand_first_try()
        for batch in rows:
            for number in batch.column(0).to_numpy().tolist():
                mine = cast(WaveProgram, CloudPickleSerializer().loads(pickled))
                yield from told(pipelined(mine, iter(pa.ipc.open_stream(parts[number]))))

    return task


def _demand_first_try() -> None:
    """Raises `Transient`, packed, in a task that Spark tries again."""
    context = TaskContext.get()
    if context is not None and context.attemptNumber() > 0:
        raise TaskError(pack(Transient("a task was lost, and what it has cost is not known")))


def row_task(write: Callable[[Batches], Batches]) -> Callable[[Batches], Batches]:
    """A task for `mapInArrow` over the rows of a table."""
    pickled = CloudPickleSerializer().dumps(write)

    def task(rows: Batches) -> Batches:
        mine = cast(Callable[[Batches], Batches], CloudPickleSerializer().loads(pickled))
        return told(mine(rows))

    return task


def read_task(program: RowProgram) -> Callable[[Batches], Batches]:
    """A task for `mapInArrow` over rows beside their changes."""
    pickled = CloudPickleSerializer().dumps(program)

    def task(rows: Batches) -> Batches:
        mine = cast(RowProgram, CloudPickleSerializer().loads(pickled))
        return frozen_afterwards(packed(mine.read_rows(rows)))

    return task


def once_task(work: Callable[[], None]) -> Callable[[Batches], Batches]:
    """A task for `mapInArrow` over one row: does something else, and tells its CPU."""
    pickled = CloudPickleSerializer().dumps(work)

    def does(rows: Batches) -> Iterator[pa.RecordBatch]:
        for _ in rows:
            began = time.process_time()
            cast(Callable[[], None], CloudPickleSerializer().loads(pickled))()
            yield pa.RecordBatch.from_arrays([pa.array([time.process_time() - began])], schema=CPU_SCHEMA)

    def task(rows: Batches) -> Batches:
        return frozen_afterwards(packed(does(rows)))

    return task


class WritesRows(Protocol):
    """The part of a `RowProgram` that runs in tasks."""

    def read_rows(self, rows: Batches) -> Batches: ...

    def write(self, chunks: Batches) -> Batches: ...


def outcome_of_rows(program: WritesRows) -> Callable[[Batches], Batches]:
    """The function of a task that writes the rows it reads."""
    pickled = CloudPickleSerializer().dumps(program)

    def task(rows: Batches) -> Batches:
        mine = cast(WritesRows, CloudPickleSerializer().loads(pickled))
        return told(pipelined(_OfRows(mine), rows))

    return task


class _OfRows:
    """A program whose changes come with their rows."""

    def __init__(self, program: WritesRows) -> None:
        self.read = program.read_rows
        self.write = program.write


def told(outcomes: Batches) -> Iterator[pa.RecordBatch]:
    """Outcomes as they go to the driver: `TASK_SCHEMA`, and errors in one line."""
    return frozen_afterwards(packed(_with_cpu(outcomes)))


def _with_cpu(outcomes: Batches) -> Iterator[pa.RecordBatch]:
    began = time.process_time()
    for batch in outcomes:
        now = time.process_time()
        seconds = [now - began, *[0.0] * batch.num_rows][: batch.num_rows]
        began = now
        yield pa.RecordBatch.from_arrays([*batch.columns, pa.array(seconds, pa.float64())], schema=TASK_SCHEMA)


def frozen_afterwards(batches: Batches) -> Iterator[pa.RecordBatch]:
    """The batches; then, once per process, everything loaded by now is put out of the collector's sight.

    PySpark's daemon collects garbage after every task. With our libraries loaded that took 70 to
    280 ms, for tasks of 10 ms; frozen, it takes 1 ms.
    """
    global _frozen  # noqa: PLW0603 -- one flag per worker process, which runs one task at a time
    yield from batches
    if not _frozen:
        _frozen = True
        gc.collect()
        gc.freeze()


_frozen = False
