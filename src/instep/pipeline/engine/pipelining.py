"""A program as one stream, from changes to outcome rows: the same in a task of Spark and in this process.

Nothing of Spark is imported here: with it comes pandas, and both take longer than a small run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from instep.pipeline.engine.engine import Batches, WaveProgram


def pipelined(
    program: WaveProgram, changes: Batches, watched: Callable[[Batches], Batches] = lambda chunks: chunks
) -> Batches:
    """The outcome rows of `program.write(watched(program.read(changes)))`.

    A writer may pull its rows from native code, which turns any error of the reader into one of
    its own; the reader's error is what the caller must see, so it is kept and raised again.
    """
    kept: list[BaseException] = []

    def reading() -> Batches:
        try:
            yield from watched(program.read(changes))
        except GeneratorExit:
            raise
        except BaseException as error:
            kept.append(error)
            raise

    chunks = reading()
    with closed(chunks):
        try:
            yield from program.write(chunks)
        except Exception as error:
            if kept and kept[0] is not error:
                raise kept[0] from error
            raise


@contextmanager
def closed(batches: Batches) -> Iterator[None]:
    """Closes a generator of batches on the way out, so that what it holds open is released at once."""
    try:
        yield
    finally:
        close = getattr(batches, "close", None)
        if close is not None:
            close()
