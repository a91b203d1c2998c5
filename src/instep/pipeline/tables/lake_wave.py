"""The wave of a table that keeps its versions: each task reads the rows by itself, here or on Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from instep.domain.columns import BOOL, Column
from instep.domain.rows import RowColumns, Selection
from instep.pipeline.tables.sides import GONE
from instep.pipeline.tables.writing import Batches, RowWriter, TableWave
from instep.sources.tables.lake_table import EACH, LakeTable, readable
from instep.sources.tables.net_changes import NetChanges
from instep.sources.tables.table_source import Sessions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NUMBER = "id"

#: So many changes are sent to tasks, with twelve bytes for each.
MOST_SENT: Final = 5_000_000


@dataclass(frozen=True, slots=True)
class PortionWriter:
    """Reads portions of the table by their numbers, and writes their rows. Picklable: it travels to the tasks.

    `net` is what the driver knows of a window: a portion by itself does not tell what is left of it in the end.

    Of a row that is gone the `deleted` column says so; where namespaces share an index the row is in none instead: it
    is deleted only where it is, for another namespace may have it by now.
    """

    lake: LakeTable
    selection: Selection
    rows: RowColumns
    deleted: str | None
    writer: RowWriter
    net: NetChanges | None = None

    def write(self, numbers: Batches) -> Batches:
        return self.writer.write(self._read(numbers))

    def _read(self, numbers: Batches) -> Batches:
        names = [each.name for each in self.writer.columns]
        with readable(self.lake):
            for batch in numbers:
                for number in batch.column(0).to_numpy().tolist():
                    for rows, gone in self.lake.read(self.rows, self.selection, number, self.net):
                        found = [self._column(each, rows, gone) for each in self.writer.columns]
                        yield pa.RecordBatch.from_arrays(found, names)

    def _column(self, column: Column, rows: pa.RecordBatch, gone: np.ndarray[Any, np.dtype[np.bool_]]) -> Any:
        if column == GONE:
            return pa.array(gone)
        values: Any = rows.column(column.name)
        if not gone.any():
            return values
        if column.name == self.deleted:
            return pc.if_else(pa.array(gone), pa.scalar(True if column.type == BOOL else 1, values.type), values)
        if self.deleted is None and column.name == self.rows.scope:
            return pc.if_else(pa.array(gone), pa.scalar(None, values.type), values)
        return values


@dataclass(frozen=True, slots=True)
class LakeWave(TableWave):
    """Implements `pipeline.engine.engine.PortionProgram`: the frame has the numbers of portions."""

    task: PortionWriter

    def numbers(self) -> Iterator[pa.RecordBatch]:
        for number in range(self._portions()):
            yield pa.RecordBatch.from_arrays([pa.array([number], pa.int64())], [_NUMBER])

    def frame(self, spark: Sessions) -> DataFrame:
        if self._windowed and self._net is None:
            return spark().range(EACH, EACH + 1, 1, 1)
        count = self._portions()
        return spark().range(0, count, 1, max(1, count))

    @property
    def write(self) -> Callable[[Batches], Batches]:
        return replace(self.task, net=self._net if self._windowed else None).write

    @property
    def _windowed(self) -> bool:
        versions = self.task.selection.versions
        return versions is not None and versions.since is not None

    @property
    def _net(self) -> NetChanges | None:
        """The changes of a window, which the plan knows already, if it was made in this process. None: more than tasks
        are sent, so one of them finds out by itself.
        """
        with readable(self.task.lake):
            found = self.task.lake.net(self.task.rows, self.task.selection)
        return found if found.rows <= MOST_SENT else None

    def _portions(self) -> int:
        with readable(self.task.lake):
            return self.task.lake.portions(self.task.selection)
