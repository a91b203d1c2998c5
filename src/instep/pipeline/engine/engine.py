"""The engine port: runs a wave's functions over Arrow batches, inline or on Spark; those of most tables on Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from instep.domain.waves import Stage, TaskOutcome, Wave
from instep.sources.tables.table_source import Sessions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from instep.pipeline.documents.embed.embedder import Embedder
    from instep.pipeline.documents.embed.meter import Meter

Batches: TypeAlias = "Iterator[pa.RecordBatch]"


class WaveProgram(Protocol):
    """The work of a wave, as plain generators over Arrow batches. Picklable; knows no engine.

    `read`: one batch row per document change (`CHANGE_SCHEMA`) → chunk rows (`CHUNK_SCHEMA`);
    `write`: chunk rows → outcome rows (`OUTCOME_SCHEMA`), having staged them in the target.
    A program may have an attribute `transform` (DataFrame → DataFrame on chunk rows, or None):
    the Spark engine runs it between the two; the inline engine refuses it.
    """

    def read(self, changes: Batches) -> Batches: ...

    def write(self, chunks: Batches) -> Batches: ...


@runtime_checkable
class TableProgram(Protocol):
    """The work of a wave of table rows: all its slices are one scan."""

    @property
    def units(self) -> int:
        """The number of expected rows, as far as it is known: the total of progress."""

    def frame(self, spark: Sessions) -> DataFrame:
        """The rows of the wave, and perhaps others, in columns with plain names: Connect takes no others from us.
        Called once for a run, in the driver.
        """

    @property
    def write(self) -> Callable[[Batches], Batches]:
        """A task's part: rows of the frame → outcome rows, having staged what belongs to the wave. Several tasks may
        tell of one slice, and none of another. Picklable by itself: the rest stays in the driver.
        """


@runtime_checkable
class PortionProgram(TableProgram, Protocol):
    """The work of a wave of table rows that tasks read by themselves, without Spark too: its frame has the numbers of
    portions.
    """

    def numbers(self) -> Batches:
        """All of these numbers, each in a batch."""


@runtime_checkable
class ChunkProgram(WaveProgram, Protocol):
    """The work of a wave whose chunk rows have declared columns as well."""

    def chunk_schema(self) -> pa.Schema:
        """The columns of chunk rows, before a transform: those of `CHUNK_SCHEMA`, and declared ones."""


@runtime_checkable
class PaidProgram(WaveProgram, Protocol):
    """The work of a wave whose embedder may cost money."""

    @property
    def embedder(self) -> Embedder: ...

    def metered(self, meter: Meter) -> PaidProgram:
        """A copy whose embedder counts on this meter what it is billed for, if it is."""

    @property
    def once(self) -> bool:
        """Whether its tasks must not be tried again by Spark: what a try that was lost has cost is not known."""


@runtime_checkable
class RowProgram(WaveProgram, Protocol):
    """The work of a wave of documents that are rows of a table: Spark scans the table once; without Spark `read` looks
    there.
    """

    def changed_rows(self, spark: Sessions, wave: Wave, name: str) -> DataFrame:
        """The rows that the wave's changes need, each behind its change (the columns of `CHANGE_SCHEMA`). A document
        whose row is not there any more is missing. The changes are broadcast to the rows; their columns begin with
        `name`, by which Spark's plan tells them.
        """

    def read_rows(self, rows: Batches) -> Batches:
        """A task's part: such rows → chunk rows."""

    def without_rows(self, wave: Wave) -> Batches:
        """The changes that need no row."""


class SharedRead(Protocol):
    """The reading of a wave, which tasks of one process share."""

    def batches(self) -> Batches:
        """Chunk rows (`CHUNK_SCHEMA`) for one task, of documents that no other task gets, until there are no more.
        Tasks ask from threads of their own.
        """

    def close(self) -> None:
        """Release what is open. Called once, when no task asks any more."""


@runtime_checkable
class SharingProgram(WaveProgram, Protocol):
    """The work of a wave that tasks of one process may read together."""

    def shared(self, wave: Wave) -> SharedRead | None:
        """The reader that all tasks of the wave share; None if each task is to `read` its own changes."""

    def uncompressed(self) -> WaveProgram:
        """A copy whose outcomes are not compressed: for tasks in the process that reads them."""


class Engine(Protocol):
    @property
    def name(self) -> str: ...

    def ready(self) -> None:
        """Wait until waves can be run. Raises `Away` when what runs them is out of reach, `UserError` when it is not as
        it has to be.
        """

    def run(
        self,
        wave: Wave,
        program: WaveProgram | TableProgram,
        progress: Callable[[int], None] | None = None,
        stages: Callable[[Stage], None] | None = None,
    ) -> Sequence[TaskOutcome]:
        """Run all slices of the wave, each of which comes back once; raises when any task died. The error says who
        should act, as far as that is known (`failures.explained`): `Transient` if what runs it is gone.

        `progress` is told how many more units are done (they add up to the wave's, or the table program's), from any
        thread, never from two at once; `stages` how far Spark's stages are. Waves of tables may run side by side, each
        in a thread of its own.
        """

    def once(self, work: Callable[[], None], *, apart: bool = False) -> float:
        """Do something that takes one process, such as the upkeep of an index: in a task where tasks run on other
        machines, or else here. `apart`: in a task wherever tasks are other processes, since it takes much memory.
        `work` is picklable. Returns the seconds of CPU of the task, 0 here.
        """

    def close(self) -> None: ...
