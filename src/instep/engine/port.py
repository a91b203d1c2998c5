"""The engine port: runs a wave's functions over Arrow batches, inline or on Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias

from instep.domain.waves import TaskOutcome, Wave

if TYPE_CHECKING:
    import pyarrow as pa

Batches: TypeAlias = "Iterator[pa.RecordBatch]"


class WaveProgram(Protocol):
    """What a wave does, as plain generators over Arrow batches. Picklable; knows no engine.

    `read`: one batch row per document change (`CHANGE_SCHEMA`) → chunk rows (`CHUNK_SCHEMA`);
    `write`: chunk rows → outcome rows (`OUTCOME_SCHEMA`), having staged them in the target.
    A program may have an attribute `transform` (DataFrame → DataFrame on chunk rows, or None):
    the Spark engine runs it between the two; the inline engine refuses it.
    """

    def read(self, changes: Batches) -> Batches: ...

    def write(self, chunks: Batches) -> Batches: ...


class Engine(Protocol):
    @property
    def name(self) -> str: ...

    def run(
        self, wave: Wave, program: WaveProgram, progress: Callable[[int], None] | None = None
    ) -> Sequence[TaskOutcome]:
        """Run all slices of the wave; raises when any task died.

        `progress` is told how many more units are done (they add up to the wave's), from any thread,
        never from two at once.
        """

    def close(self) -> None: ...
