"""The program of a table's wave: rows of its source into the tables of its graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from instep.domain.rows import Selection
from instep.errors import UserError
from instep.pipeline.tables.writing import RowWriter
from instep.sources.tables.table_source import Sessions, TableSource

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

Batches: TypeAlias = "Iterator[pa.RecordBatch]"


@dataclass(frozen=True, slots=True)
class TableWave:
    """Implements `pipeline.engine.engine.TableProgram`. Only the writer goes to the tasks: the source stays in the
    driver.

    `units` is how many rows the wave is expected to have.
    """

    source: TableSource
    selection: Selection
    writer: RowWriter
    units: int

    def frame(self, spark: Sessions) -> DataFrame:
        """The columns that the writer has, in its order. Nothing else of the source is read."""
        frame = self.source.frame(spark, self.writer.rows, self.selection)
        there = {name: at for at, name in enumerate(frame.columns)}
        if missing := [each.name for each in self.writer.columns if each.name not in there]:
            raise UserError(
                f"{self.source.text} has no column {missing[0]!r} any more",
                hint="Has the table changed? Look at it with: instep check",
            )
        # By their places: names may hold dots and quotes, and differ by their case only.
        names = [f"c{at}" for at in range(len(there))]
        wanted = [f"c{there[each.name]}" for each in self.writer.columns]
        numbered = frame.toDF(*names)
        return numbered if wanted == names else numbered.select(*wanted)

    @property
    def write(self) -> Callable[[Batches], Batches]:
        return self.writer.write
