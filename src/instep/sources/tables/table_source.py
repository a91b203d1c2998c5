"""The port of table sources. Its contract suite is `tests/contracts/table_source.py`.

Rows come to Spark as a DataFrame. What can be asked without Spark is: `spark` starts it, or hands it out, and is called
only where there is no other way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Protocol, TypeAlias

from instep.domain.columns import Column
from instep.domain.keys import Key
from instep.domain.refs import Scope
from instep.domain.rows import Histogram, RowColumns, Selection
from instep.domain.seen import Look, RowMark
from instep.domain.table_files import Files, TableFile
from instep.errors import UserError
from instep.own_code import send

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


Sessions: TypeAlias = "Callable[[], SparkSession]"


class TableSource(Protocol):
    """A table, after its `sql` and its transform. All errors that a user can mend are `UserError`s, and say what of the
    table is wrong; none holds a secret.
    """

    @property
    def text(self) -> str:
        """The place of the table, for people; without secrets."""

    @property
    def missing_extra(self) -> str | None:
        """The extra of Instep without which Spark has to be asked whether anything has changed; None: there is none."""

    def columns(self, spark: Sessions) -> tuple[Column, ...]:
        """The columns, mapped to our types. Raises `UserError` naming a column that has no type of ours."""

    def state(self) -> str | None:
        """Something that differs when rows may have changed, for a table without a watermark; None if there is no such
        thing, and it has to be read to know.
        """

    def files_digest(self) -> str | None:
        """A digest of the files and of how they are read: another one after any write, even if the files are as they
        were before it. None if there is more to a table than its files.
        """

    def changed(
        self,
        spark: Sessions,
        rows: RowColumns,
        scope: Scope,
        floor: int,
        others: tuple[Scope, ...] | None = None,
        *,
        known: Files | None = None,
    ) -> bool:
        """Whether some row in the scope, or (with `others`, see `Selection`) one that may have been there, may have a
        watermark (µs since 1970, UTC) above `floor`. False is certain. With `known` files: whether any of the others
        may have such a row, whatever its watermark.
        """

    def newer(self, spark: Sessions, rows: RowColumns, selection: Selection) -> int | None:
        """At most so many rows are selected (by a window that has a floor, or in files that are not `known`; without
        ranges and `others`), as far as that can be told without reading them; None: it cannot.
        """

    def files(self) -> Sequence[TableFile] | None:
        """The files of the table, if each can be read without the others and no row needs more than one of them; None:
        changes are found by watermarks.
        """

    def look(self, spark: Sessions, rows: RowColumns, selection: Selection, *, floor: int | None, target: int) -> Look:
        """Look at the selected rows (the selection has no ranges, and a window that is `unmarked`, or none) by their
        watermarks: the greatest up to the target, how many have none, and a digest of the contents of those that have
        none or one up to the floor. The same rows give the same digest.
        """

    def marks(self, spark: Sessions, rows: RowColumns, selection: Selection, limit: int) -> list[RowMark] | None:
        """The selected rows one by one; None if there are more than the limit."""

    def without_watermark(self, spark: Sessions, rows: RowColumns, selection: Selection) -> int:
        """Count the selected rows (the selection has no ranges) with a null for a watermark; by one query at most."""

    def histogram(
        self, spark: Sessions, rows: RowColumns, selection: Selection, columns: tuple[str, ...], *, bins: int
    ) -> Histogram:
        """A histogram of the selected rows (the selection has no ranges), by these columns; about so many bins, taken
        evenly over all rows.

        Rows with a null in these columns are counted, and are in no bin.
        """

    def extremes(self, spark: Sessions, rows: RowColumns, selection: Selection, column: str) -> tuple[Key, Key] | None:
        """The least and the greatest value of a column among the selected rows; None if there is none."""

    def keys(self, rows: RowColumns, selection: Selection, columns: Sequence[str]) -> Iterator[pa.RecordBatch] | None:
        """These columns of the selected rows (the selection has neither ranges nor a window), without Spark; None: it
        has to read them.
        """

    def frame(self, spark: Sessions, rows: RowColumns, selection: Selection) -> DataFrame:
        """The selected rows with all columns, in partitions that Spark's tasks can share out.

        Of a first window those that are deleted are left out. Rows outside the ranges and of `others` may come as well:
        the writer removes them. None that is selected may be missing. What can be asked of the source itself
        is asked there.
        """


Transform: TypeAlias = "Callable[[DataFrame], DataFrame]"


@dataclass(frozen=True, slots=True)
class NamedTransform:
    """A transform that is imported when it is used: if it cannot be, that is an error of its entity alone."""

    load: Callable[[], Transform]

    def __call__(self, frame: DataFrame) -> DataFrame:
        return self.load()(frame)


_LONGEST = 500
_SHOWN = 30


def demand(names: Iterable[str], there: Sequence[str], where: str, *, after: str = "") -> None:
    """Check that columns exist. Raises `UserError` for the first that does not. `after` is what it was lost by."""
    for name in names:
        if name in there:
            continue
        close = get_close_matches(name.lower(), [each.lower() for each in there], 1)
        meant = next((each for each in there if close and each.lower() == close[0]), None)
        hint = f"Did you mean {meant!r}? " if meant else ""
        each_once = [*dict.fromkeys(there)]
        shown = ", ".join(map(repr, each_once[:_SHOWN])) + (", …" if len(each_once) > _SHOWN else "")
        lost = f" after {after}" if after else ""
        raise UserError(f"there is no column {name!r}{lost}", where=where, hint=f"{hint}Its columns: {shown}.")


def transformed(frame: DataFrame, transform: Transform, name: str, where: str) -> DataFrame:
    from pyspark.sql import DataFrame

    if isinstance(transform, NamedTransform):
        transform = transform.load()
    send(frame.sparkSession, transform)
    try:
        found = transform(frame)
    except Exception as error:
        said = str(error).strip().splitlines()
        reason = f"{type(error).__name__}: {said[0][:_LONGEST]}" if said else type(error).__name__
        raise UserError(f"the transform raised {reason}", where=f"{where}: {name}") from error
    if not isinstance(found, DataFrame):
        raise UserError(f"the transform returned {type(found).__name__}, not a DataFrame", where=f"{where}: {name}")
    return found
