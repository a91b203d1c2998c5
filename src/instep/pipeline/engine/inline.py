"""Runs a wave in this process: no JVM, a few threads, the same functions as on Spark."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

from instep.domain.waves import Stage, TaskOutcome, Wave, WaveSlice, assign_tasks
from instep.error_transport import explaining
from instep.errors import UserError
from instep.pipeline.documents.rows import change_batch
from instep.pipeline.engine.engine import (
    Batches,
    PortionProgram,
    SharedRead,
    SharingProgram,
    TableProgram,
    WaveProgram,
)
from instep.pipeline.engine.pipelining import closed, pipelined
from instep.pipeline.engine.task_progress import watched
from instep.pipeline.outcomes import OUTCOME_SCHEMA, merged_outcomes

#: How long a stopped wave waits for its other tasks: they look between two batches.
STOP_SECONDS = 5.0


class _Stopped(BaseException):
    """Ends a task because another one failed or the user pressed Ctrl-C."""


class InlineEngine:
    """Implements `pipeline.engine.engine.Engine` on threads; numpy, Arrow, Lance and hashing release the GIL."""

    name = "inline"

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads or os.cpu_count() or 1

    def run(
        self,
        wave: Wave,
        program: WaveProgram | TableProgram,
        progress: Callable[[int], None] | None = None,
        stages: Callable[[Stage], None] | None = None,
    ) -> Sequence[TaskOutcome]:
        """See the port. The first error is raised, and the other tasks stop before their next batch."""
        if isinstance(program, PortionProgram):
            with explaining():
                found = list(program.write(_telling(program, progress)))
            return merged_outcomes(pa.Table.from_batches(found, schema=OUTCOME_SCHEMA), wave)
        if isinstance(program, TableProgram):
            raise UserError(
                "tables are read by Spark, and this ran inline", hint="Set `engine: auto` or `engine: spark`."
            )
        if getattr(program, "transform", None) is not None:
            raise UserError(
                "a transform needs Spark, and this ran inline", hint="Set `engine: auto` or `engine: spark`."
            )
        number = min(self._threads, wave.tasks)
        with explaining(), _read_together(program, wave) as shared:
            if shared is not None:
                tasks = [_Task(shared, ()) for _ in range(number)]
            else:
                tasks = [_Task(program, share) for share in assign_tasks(wave.slices, number)]
            if not tasks:
                return []
            rows = _run_together(tasks, _Tally(progress))
        return merged_outcomes(pa.Table.from_batches(rows, schema=OUTCOME_SCHEMA), wave)

    def ready(self) -> None:
        """Do nothing: the engine is always ready."""

    def once(self, work: Callable[[], None], *, apart: bool = False) -> float:
        """See the port."""
        work()
        return 0.0

    def close(self) -> None:
        """Do nothing: nothing is kept between waves."""


def _telling(program: PortionProgram, progress: Callable[[int], None] | None) -> Batches:
    """The numbers of portions. A portion is done when the next is asked for: an even share of all units."""
    portions = list(program.numbers())
    told = 0
    for number, each in enumerate(portions, 1):
        yield each
        share = program.units * number // len(portions)
        if progress and share > told:
            progress(share - told)
            told = share


@contextmanager
def _read_together(program: WaveProgram, wave: Wave) -> Iterator[WaveProgram | None]:
    """The program of tasks that read the wave together, if they are to."""
    shared = program.shared(wave) if isinstance(program, SharingProgram) else None
    if shared is None or not isinstance(program, SharingProgram):
        yield None
        return
    try:
        yield _Sharing(program.uncompressed(), shared)
    finally:
        shared.close()


class _Sharing:
    """A program whose tasks read together."""

    def __init__(self, program: WaveProgram, shared: SharedRead) -> None:
        self.write = program.write
        self._shared = shared

    def read(self, _: Batches) -> Batches:
        return self._shared.batches()


class _Tally:
    """Tells progress from several threads, one at a time."""

    def __init__(self, progress: Callable[[int], None] | None) -> None:
        self._progress = progress
        self._lock = threading.Lock()

    def add(self, units: int) -> None:
        if self._progress and units > 0:
            with self._lock:
                self._progress(units)


class _Task:
    def __init__(self, program: WaveProgram, slices: Sequence[WaveSlice]) -> None:
        self._program = program
        self._slices = slices
        self.rows: list[pa.RecordBatch] = []
        self.error: BaseException | None = None

    def run(self, stop: threading.Event, tally: _Tally) -> None:
        counted = 0

        def tell(documents: int) -> None:
            nonlocal counted
            counted += documents
            tally.add(documents)

        def watching(chunks: Batches) -> Batches:
            return watched(_until(stop, chunks), tell)

        changes = _until(stop, (change_batch(part) for part in self._slices))
        self.rows = list(pipelined(self._program, changes, watching))
        tally.add(sum(len(part.changes) for part in self._slices) - counted)


def _until(stop: threading.Event, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches until `stop` is set; then what makes them is closed at once, not when it is collected."""
    with closed(batches):
        for batch in batches:
            if stop.is_set():
                raise _Stopped
            yield batch


def _run_together(tasks: Sequence[_Task], tally: _Tally) -> list[pa.RecordBatch]:
    stop = threading.Event()
    if len(tasks) == 1:
        tasks[0].run(stop, tally)
        return tasks[0].rows
    failed: list[BaseException] = []
    changed = threading.Semaphore(0)

    def body(task: _Task) -> None:
        try:
            task.run(stop, tally)
        except _Stopped:
            pass
        except BaseException as error:
            failed.append(error)
            stop.set()
        finally:
            changed.release()

    # Daemons: a task stuck in native code must not keep the process alive after Ctrl-C.
    threads = [
        threading.Thread(target=body, args=(task,), name=f"wave-{number}", daemon=True)
        for number, task in enumerate(tasks)
    ]
    for thread in threads:
        thread.start()
    try:
        for _ in threads:
            changed.acquire()
            if failed:
                break
    finally:
        stop.set()
        for thread in threads:
            thread.join(STOP_SECONDS)
    if failed:
        raise failed[0]
    return [row for task in tasks for row in task.rows]
