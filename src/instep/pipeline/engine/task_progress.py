"""Progress of the tasks of a wave of documents, told while they run.

Spark says of a task when it has ended, and nothing before. Tasks on the machine of the driver count in a file there, a
byte for each document; tasks elsewhere do not find the file, and are counted when they have ended.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pyarrow.compute as pc

from instep.pipeline.engine.engine import Batches, RowProgram, WaveProgram

#: Rows of a batch as the writer gets them, unless one as it is read takes no longer than this.
_ROWS = 250
_SECONDS = 0.5


@contextmanager
def counter() -> Iterator[Path]:
    """An empty file for the time of the context."""
    number, name = tempfile.mkstemp(prefix="instep-wave-")
    os.close(number)
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


class Counted:
    """A program of documents, or of rows that are documents, that counts those which it is done with."""

    def __init__(self, program: WaveProgram, file: Path) -> None:
        self._program = program
        self._file = str(file)

    @property
    def once(self) -> bool:
        return bool(getattr(self._program, "once", False))

    def read(self, changes: Batches) -> Batches:
        return self._program.read(changes)

    def read_rows(self, rows: Batches) -> Batches:
        return cast(RowProgram, self._program).read_rows(rows)

    def write(self, chunks: Batches) -> Batches:
        return self._program.write(self._counted(chunks))

    def _counted(self, chunks: Batches) -> Batches:
        try:
            file = os.open(self._file, os.O_WRONLY | os.O_APPEND)
        except OSError:  # Another machine, or no caller waits for the wave any more.
            yield from chunks
            return
        try:
            yield from watched(chunks, lambda documents: os.write(file, bytes(documents)))
        finally:
            os.close(file)


def watched(chunks: Batches, tell: Callable[[int], object]) -> Batches:
    """Pass on the same rows, in small batches while a larger one takes long. The documents that end in one are done
    once the next is asked for.
    """
    size = _ROWS
    for batch in chunks:
        began = time.monotonic()
        for start in range(0, batch.num_rows, size):
            rows = batch.slice(start, size)
            yield rows
            if ends := pc.sum(rows.column("end_of_document")).as_py():
                tell(ends)
        size = _ROWS if time.monotonic() - began > _SECONDS else max(_ROWS, batch.num_rows)
