"""The inline engine under the contract, and what is its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from instep.domain.waves import Wave
from instep.errors import UserError
from instep.pipeline.documents.rows import change_batch
from instep.pipeline.engine.engine import Batches, Engine, SharedRead, WaveProgram
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


class Shared(RowFiles):
    """Tasks take what they read, a slice at once, from one another."""

    closed = 0

    def shared(self, wave: Wave) -> SharedRead | None:
        return SharedSlices(self, wave)

    def uncompressed(self) -> WaveProgram:
        return self


class SharedSlices:
    """Implements `SharedRead`."""

    def __init__(self, program: Shared, wave: Wave) -> None:
        self._program = program
        self._slices = [change_batch(each) for each in wave.slices]
        self._lock = threading.Lock()

    def batches(self) -> Batches:
        while self._slices:
            with self._lock:
                some = self._slices.pop() if self._slices else None
            yield from self._program.read(iter([some] if some else []))

    def close(self) -> None:
        Shared.closed += 1


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_tasks_read_a_wave_together(threads: int, tmp_path: Path) -> None:
    wave, before = a_wave(), Shared.closed
    tasks = list(InlineEngine(threads).run(wave, Shared(tmp_path)))
    assert len(tasks) == min(threads, wave.tasks)
    assert Shared.closed == before + 1
    assert sorted({row["document_id"] for row in written(tmp_path, tasks)}) == sorted(f"d{n}" for n in range(40))
    counted = {each.slice_id: each.counts.read for task in tasks for each in task.slices}
    assert counted == {each.slice_id: len(each.changes) for each in wave.slices}


def test_what_tasks_read_together_is_closed_when_one_fails(tmp_path: Path) -> None:
    before = Shared.closed
    with pytest.raises(ValueError, match="no such document"):
        InlineEngine(2).run(a_wave(), Shared(tmp_path, fail={"d7": ValueError("no such document")}))
    assert Shared.closed == before + 1


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
