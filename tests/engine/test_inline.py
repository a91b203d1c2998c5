"""The inline engine under the contract, and what is its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from instep.errors import UserError
from instep.pipeline.engine.engine import Batches, Engine
from instep.pipeline.engine.inline import InlineEngine
from instep.sources.tables.table_source import Sessions
from tests.contracts.engine import EngineContract, RowFiles, a_wave, written


class TestInlineEngine(EngineContract):
    @pytest.fixture(params=[1, 2, 3])
    def engine(self, request: pytest.FixtureRequest) -> Engine:
        return InlineEngine(request.param)


def test_a_table_is_refused() -> None:
    with pytest.raises(UserError, match="tables are read by Spark"):
        InlineEngine().run(a_wave(), Rows())


class Rows:
    """A program of a table, of which nothing is done."""

    units = 1

    def frame(self, spark: Sessions) -> Any:
        raise AssertionError

    def write(self, batches: Batches) -> Batches:
        raise AssertionError


class Endless:
    """Reads for ever in all tasks but the one that has the first bucket, which fails when all run."""

    def __init__(self, tasks: int) -> None:
        self.barrier = threading.Barrier(tasks)
        self.stopped = threading.Semaphore(0)

    def read(self, changes: Batches) -> Batches:
        batch = next(changes)
        self.barrier.wait(60)
        if 0 in batch.column("bucket").to_pylist():
            raise ValueError("the first bucket fails")
        rows = list(RowFiles(Path()).read(iter([batch])))
        try:
            while True:
                time.sleep(0.001)
                yield rows[0]
        finally:
            self.stopped.release()

    def write(self, chunks: Batches) -> Iterator[pa.RecordBatch]:
        for _ in chunks:
            pass
        yield from ()


def test_a_failing_task_stops_the_others_before_their_next_batch() -> None:
    program = Endless(2)
    with pytest.raises(ValueError, match="first bucket"):
        InlineEngine(2).run(a_wave(work=10_000), program)
    assert program.stopped.acquire(timeout=60)


class FailsInNativeCode(RowFiles):
    """A writer that pulls its rows through Arrow's C stream, as Lance does."""

    def write(self, chunks: Batches) -> Iterator[pa.RecordBatch]:
        first = next(chunks)
        try:
            for batch in chunks:
                assert batch.schema == first.schema
        except Exception as error:
            raise OSError("native code failed: something about a stream") from error
        yield from ()


def test_the_readers_error_is_raised_though_the_writer_hid_it(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError, match="by nought"):
        InlineEngine(1).run(a_wave(), FailsInNativeCode(tmp_path, fail={"d37": ZeroDivisionError("by nought")}))


@pytest.mark.parametrize(("threads", "tasks", "run"), [(2, 1, 1), (2, 4, 2), (4, 3, 3)])
def test_a_wave_has_as_many_tasks_as_it_is_for_but_no_more_than_threads(
    tmp_path: Path, threads: int, tasks: int, run: int
) -> None:
    done = list(InlineEngine(threads).run(a_wave(tasks=tasks), RowFiles(tmp_path)))
    assert len(done) == run
    assert len(written(tmp_path, done)) == 80
