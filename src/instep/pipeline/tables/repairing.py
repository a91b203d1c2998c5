"""The wave of a repair: rows of a source by their keys, and rows that it has no more, which are deleted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from instep.arrow.types import arrow_type
from instep.domain.columns import Column, TypeName
from instep.domain.rows import RowColumns
from instep.pipeline.tables.sides import GONE
from instep.pipeline.tables.writing import TableWave
from instep.sources.tables.table_source import Sessions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class RepairWave(TableWave):
    """A wave that repairs rows by their keys. `rows` are the columns of the source. `wanted` are the keys of rows to
    read, `gone` the rows to delete: their keys, with what else is known of them.
    """

    rows: RowColumns
    wanted: pa.Table
    gone: pa.Table

    def frame(self, spark: Sessions) -> DataFrame:
        session = spark()
        columns = self.writer.columns
        deleted = _as_rows(self.gone, columns, self.writer.rows.deleted)
        parts = [self._deleted_rows(session, deleted)] if self.gone.num_rows or not self.wanted.num_rows else []
        if self.wanted.num_rows:
            parts.insert(0, self._read(session))
        found = parts[0]
        for each in parts[1:]:
            found = found.unionAll(each)
        return found

    def _read(self, session: SparkSession) -> DataFrame:
        """The wanted rows alone: a source may give others as well."""
        from pyspark.sql.functions import broadcast, lit

        frame = self.source.frame(lambda: session, self.rows, self.selection)
        there = {name: at for at, name in enumerate(frame.columns)}
        frame = frame.toDF(*(f"c{at}" for at in range(len(there))))
        named = self.wanted.rename_columns([f"k{at}" for at in range(self.wanted.num_columns)])
        keys = session.createDataFrame(_arrow(named))
        same = [frame[f"c{there[name]}"] == keys[f"k{at}"] for at, name in enumerate(self.wanted.column_names)]
        condition = same[0]
        for each in same[1:]:
            condition &= each
        found = frame.join(broadcast(keys), condition, "left_semi")
        own = [lit(False) if each == GONE else found[f"c{there[each.name]}"] for each in self.writer.columns]
        return found.select(*own).toDF(*_plain(len(own)))

    def _deleted_rows(self, session: SparkSession, rows: pa.Table) -> DataFrame:
        return session.createDataFrame(_arrow(rows.rename_columns(_plain(rows.num_columns))))


def _plain(count: int) -> list[str]:
    return [f"c{at}" for at in range(count)]


def _arrow(table: pa.Table) -> Any:
    """PySpark takes tables of Arrow, though its types do not say so."""
    return table


def _as_rows(gone: pa.Table, columns: tuple[Column, ...], deleted: str | None) -> pa.Table:
    """The rows as far as they are known, in the columns of the source; the flag is set, all else is null."""
    rows = gone.num_rows
    made: list[Any] = []
    for each in columns:
        kind: Any = arrow_type(each.type)
        if each.name == deleted:
            made.append(pa.repeat(pa.scalar(True if each.type.name is TypeName.BOOL else 1, kind), rows))
        elif each.name in gone.column_names:
            made.append(gone.column(each.name).cast(kind))
        else:
            made.append(pa.nulls(rows, kind))
    return pa.table(dict(zip(_plain(len(made)), made, strict=True))) if made else gone


def with_flag(columns: tuple[Column, ...], deleted: str | None) -> tuple[tuple[Column, ...], str]:
    """The columns, with one that says what is deleted, and its name."""
    return (columns, deleted) if deleted else ((*columns, GONE), GONE.name)
