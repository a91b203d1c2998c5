"""The port of table sources. Its contract suite is `tests/contracts/table_source.py`.

Rows come to Spark as a DataFrame. What can be asked without Spark is: `spark` starts it, or hands it out, and is called
only where there is no other way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from instep.domain.columns import Column
from instep.domain.keys import Key
from instep.domain.refs import Scope
from instep.domain.rows import Histogram, RowColumns, Selection

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Sessions: TypeAlias = "Callable[[], SparkSession]"


class Unseen(NamedTuple):
    """`without` rows have no watermark; `late` ones have come since the floor, in files without any that is above."""

    without: int
    late: int


class TableSource(Protocol):
    """One table, after its `sql` and its transform. All errors that a user can mend are `UserError`s, and say what of
    the table is wrong; none holds a secret.
    """

    @property
    def text(self) -> str:
        """Where it is, for people; without secrets."""

    def columns(self, spark: Sessions) -> tuple[Column, ...]:
        """Its columns, mapped to ours. Raises `UserError` naming a column that has no type of ours."""

    def state(self) -> str | None:
        """Something that differs when rows may have changed, for a table without a watermark; None if there is no such
        thing, and it has to be read to know.
        """

    def changed(
        self, spark: Sessions, rows: RowColumns, scope: Scope, floor: int, others: tuple[Scope, ...] | None = None
    ) -> bool:
        """Whether some row in the scope, or (with `others`, see `Selection`) one that may have been there, may have a
        watermark (µs since 1970, UTC) above `floor`. False is certain.
        """

    def unseen(self, rows: RowColumns, floor: int) -> Unseen | None:
        """Rows that no window above `floor` (µs) has, as far as that can be told without reading any; None: it
        cannot.
        """

    def histogram(
        self, spark: Sessions, rows: RowColumns, selection: Selection, columns: tuple[str, ...], *, bins: int
    ) -> Histogram:
        """Of the selected rows (which has no ranges), by these columns; about so many bins, taken evenly over all rows.

        Rows with a null in these columns are counted, and are in no bin.
        """

    def extremes(self, spark: Sessions, rows: RowColumns, selection: Selection, column: str) -> tuple[Key, Key] | None:
        """The least and the greatest value of a column among the selected rows; None if there is none."""

    def frame(self, spark: Sessions, rows: RowColumns, selection: Selection) -> DataFrame:
        """The selected rows with all columns, in partitions that Spark's tasks can share out.

        Of a first window those that are deleted are left out. Rows outside the ranges and of `others` may come as well:
        whoever writes them sorts them out. None that is selected may be missing. What can be asked of the source itself
        is asked there.
        """
