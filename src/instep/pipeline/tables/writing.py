"""Rows of a source, as Spark's tasks get them → rows of the tables of a graph, staged in the target.

A task takes the rows that are in the wave's slices, whatever else comes with them. What cannot be written is a failure
by the row's id, and the others continue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import chain
from operator import or_
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from instep.arrow.types import arrow_type
from instep.domain.columns import BOOL, STRING, TIMESTAMP, Column
from instep.domain.graph import GraphTable
from instep.domain.pending_queue import QueueKey
from instep.domain.refs import GLOBAL, Scope
from instep.domain.rows import RowColumns, Selection
from instep.domain.waves import Failure
from instep.errors import UserError
from instep.pipeline.outcomes import outcome_batch
from instep.pipeline.tables.routing import NOWHERE, Numbers, Router, Tally, WaveRows, router
from instep.pipeline.tables.values import Values, fitted, row_ids, row_uri
from instep.sources.tables.predicates import within
from instep.sources.tables.table_source import Sessions, TableSource
from instep.targets.table_target import Moved, TableChange, TableSpec, TableTarget, TableWriter, arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


Batches: TypeAlias = "Iterator[pa.RecordBatch]"
Flags: TypeAlias = "np.ndarray[Any, np.dtype[np.bool_]]"


@dataclass(frozen=True, slots=True)
class RowWriter:
    """Writes rows of a wave into the tables of one physical index. Picklable: it travels to the tasks.

    `into` is the target's writer for that index: a task asks the target for nothing. `columns` are those of the batches
    (see `needed_columns`), in their order; what they are called there is of no account. `base` is what the index had
    when the wave began, or the job that chose a version of the table: the version of rows when there is no watermark,
    since it grows with all that is written there, whichever partition it is of. `first`: nothing of these rows is in
    the index, so that there is nothing to delete. `failing` are ids of rows that failed before. Batches have at most
    `batch_rows`. `keys`, of one column, are the only ones that are written (None: all). With `others` (see `Selection`)
    rows come that are not in the `scope`: those in no other namespace either are deleted where they were in it, as
    `moved` says (see `TableChange`). Rows of others are left out; but of those whose moves are forgotten only those
    come that have left, and they are written. Rows that are there get a version that is later by `lift` (microseconds).
    """

    tables: tuple[GraphTable, ...]
    columns: tuple[Column, ...]
    rows: RowColumns
    slices: tuple[WaveRows, ...]
    cut_by: tuple[str, ...]
    target: TableTarget
    into: TableWriter
    base: int
    ref: str
    instance: str
    batch_rows: int
    failing: frozenset[str] = frozenset()
    first: bool = False
    keys: tuple[QueueKey, ...] | None = None
    scope: Scope = GLOBAL
    others: tuple[Scope, ...] | None = None
    moved: Moved = "remembered"
    lift: int = 0

    def write(self, batches: Batches) -> Batches:
        """Stage the rows of one task; one row of `OUTCOME_SCHEMA`, or none when there was nothing to read."""
        first = next(batches, None)
        if first is None:
            return
        batches = chain([first], batches)
        tally = Tally([each.slice_id for each in self.slices])
        staged = self.into.stage(_Task(self, tally).changes(batches))
        yield outcome_batch(staged, tally.outcomes())

    def column(self, name: str) -> Column:
        return next(each for each in self.columns if each.name == name)


def needed_columns(
    columns: Sequence[Column], tables: Sequence[GraphTable], rows: RowColumns, cut_by: Sequence[str]
) -> tuple[Column, ...]:
    """The columns of a source that a wave reads."""
    marks = (each for each in (rows.scope, rows.watermark, rows.deleted) if each)
    wanted = {*rows.key, *cut_by, *marks, *(source for table in tables for source in table.sources.values())}
    return tuple(each for each in columns if each.name in wanted)


class _Rows(NamedTuple):
    """Rows of the wave: their columns by name, as they came, and the place of each one's slice."""

    columns: Mapping[str, Values]
    places: Numbers

    def filter(self, kept: Flags) -> _Rows:
        if kept.all():
            return self
        mask = pa.array(kept)
        return _Rows({name: values.filter(mask) for name, values in self.columns.items()}, self.places[kept])


class _Task:
    """One task's work. Each column is brought into each type that some table wants it in, once for a batch."""

    def __init__(self, writer: RowWriter, tally: Tally) -> None:
        self._writer = writer
        self._tally = tally
        self._router: Router = router(
            [each.range for each in writer.slices], [writer.column(name).type for name in writer.cut_by]
        )
        self._specs = [TableSpec.of(table) for table in writer.tables]
        self._schemas = [arrow_schema(spec) for spec in self._specs]
        wanted = [
            Column(table.sources[column.name], column.type) for table in writer.tables for column in table.columns
        ]
        self._keys = [writer.column(name) for name in writer.rows.key]
        self._wanted = list(dict.fromkeys([*self._keys, *wanted, *self._marks()]))
        self._only = pa.array(writer.keys, arrow_type(self._keys[0].type)) if writer.keys is not None else None
        self._repeated: list[Values] = []
        self._longest = 0

    def _marks(self) -> Iterator[Column]:
        if self._writer.rows.watermark:
            yield Column(self._writer.rows.watermark, TIMESTAMP)
        if self._writer.rows.deleted:
            yield Column(self._writer.rows.deleted, BOOL)

    def changes(self, batches: Batches) -> Iterator[TableChange]:
        names = [each.name for each in self._writer.columns]
        for batch in self._bounded(batches):
            rows = self._of_the_wave(dict(zip(names, batch.columns, strict=True)), batch.num_rows)
            if self._writer.others is not None:
                rows, moved, elsewhere = self._parted(rows, self._writer.others)
                yield from self._moves(moved)
                if self._writer.moved == "forgotten":
                    yield from self._handed_over(elsewhere)
            if len(rows.places):
                self._tally.read(rows.places, sum(each.nbytes for each in rows.columns.values()))
                yield from self._written(*self._good(rows))

    def _bounded(self, batches: Batches) -> Iterator[pa.RecordBatch]:
        """Spark's are as large as the session says; other entities may want them larger."""
        most = self._writer.batch_rows
        for batch in batches:
            yield from (batch.slice(at, most) for at in range(0, batch.num_rows, most))

    def _of_the_wave(self, columns: Mapping[str, Values], rows: int) -> _Rows:
        # What does not fit counts as null: so it is in one slice of the run, to fail there.
        cut = [fitted(columns[name], self._writer.column(name)).values for name in self._writer.cut_by]
        found = _Rows(columns, self._router.places(cut, rows))
        wanted = found.places != NOWHERE
        if self._only is not None:
            keys = fitted(columns[self._keys[0].name], self._keys[0]).values
            wanted &= _true(pc.is_in(keys, self._only))
        return found.filter(wanted)

    def _handed_over(self, rows: _Rows) -> Iterator[TableChange]:
        """Rows that have left for other namespaces, as they are there. They are counted there, and fail there."""
        if len(rows.places):
            there = _Task(self._writer, Tally([each.slice_id for each in self._writer.slices]))
            yield from there._written(*there._good(rows))

    def _parted(self, rows: _Rows, others: Sequence[Scope]) -> tuple[_Rows, _Rows, _Rows]:
        """Separate rows of the scope from rows of no indexed namespace, and of another one."""
        name = self._writer.rows.scope
        assert name is not None
        # There are few namespaces in many rows. A value that is no text belongs to no namespace.
        paths = fitted(rows.columns[name], Column(name, STRING)).values.dictionary_encode()
        own = within(paths.dictionary, [self._writer.scope])
        moved = pc.invert(pc.or_(own, within(paths.dictionary, others)))
        found = _true(own.take(paths.indices)), _true(moved.take(paths.indices).fill_null(True))
        return rows.filter(found[0]), rows.filter(found[1]), rows.filter(~(found[0] | found[1]))

    def _moves(self, rows: _Rows) -> Iterator[TableChange]:
        """Deletions of rows from the namespaces where they were. A row without a key, or with one that cannot be
        stored, has none.
        """
        count, marks = len(rows.places), self._writer.rows
        known = [each for each in self._wanted if each.name in (*marks.key, marks.watermark)]
        values = {column: fitted(rows.columns[column.name], column).values for column in known}
        good = np.logical_and.reduce([~_nulls(each) for each in values.values()])
        found = []
        for table, spec, schema in zip(self._writer.tables, self._specs, self._schemas, strict=True):
            own = [
                values[Column(table.sources[each.name], each.type)]
                if each.name in table.key
                else pa.nulls(count, schema.field(each.name).type)
                for each in table.columns
            ]
            held = pa.RecordBatch.from_arrays(own, [each.name for each in table.columns])
            for unfit in self._writer.target.unfit(spec, held):
                good &= ~np.asarray(unfit.rows)
            gone = pa.repeat(pa.scalar(True), count)
            found.append((table.kind, [*own, *self._names(count), self._versions(rows, values), gone], schema))
        if good.any():
            for kind, columns, schema in found:
                kept = pa.RecordBatch.from_arrays(columns, schema=schema).filter(pa.array(good))
                yield TableChange(kind, kept, moved=self._writer.moved)

    def _good(self, rows: _Rows) -> tuple[_Rows, Mapping[Column, Values]]:
        """The rows that can be written, and their columns in all types wanted."""
        values, reasons = self._fitted(rows)
        if reasons:
            rows, values = self._without(rows, values, reasons)
        held, reasons = self._held(values, len(rows.places))
        if reasons:
            rows, values = self._without(rows, values, reasons)
            held, _ = self._held(values, len(rows.places))
        return rows, held

    def _without(
        self, rows: _Rows, values: Mapping[Column, Values], reasons: Mapping[int, str]
    ) -> tuple[_Rows, Mapping[Column, Values]]:
        """The others, once these have failed."""
        bad = np.array(sorted(reasons), np.int64)
        self._tally.fail(self._failures(rows, values, bad.tolist(), reasons))
        kept = np.ones(len(rows.places), bool)
        kept[bad] = False
        rows = rows.filter(kept)
        return rows, self._fitted(rows)[0]

    def _held(self, values: Mapping[Column, Values], count: int) -> tuple[Mapping[Column, Values], Mapping[int, str]]:
        """The columns, and why rows whose values are right cannot be held by the target. Of a row to delete it has to
        hold the key: anything else of it that it cannot hold becomes null.
        """
        held, reasons, deleted = dict(values), dict[int, str](), self._deleted(values, count)
        for table, spec in zip(self._writer.tables, self._specs, strict=True):
            sources = {column.name: Column(table.sources[column.name], column.type) for column in table.columns}
            own = [values[each] for each in sources.values()]
            for name, mask, what in self._writer.target.unfit(spec, pa.RecordBatch.from_arrays(own, list(sources))):
                column, bad = sources[name], np.asarray(mask)
                if name not in spec.key and (spared := bad & deleted).any():
                    null = pa.scalar(None, held[column].type)
                    held[column], bad = pc.if_else(pa.array(spared), null, held[column]), bad & ~deleted
                why = f"column {table.sources[name]!r} has {what}, which the target cannot hold"
                reasons |= {row: why for row in np.flatnonzero(bad).tolist() if row not in reasons}
        return held, reasons

    def _fitted(self, rows: _Rows) -> tuple[Mapping[Column, Values], Mapping[int, str]]:
        """The columns, and why rows cannot be written. A row to delete needs its key and what is said of it."""
        found = {column: fitted(rows.columns[column.name], column) for column in self._wanted}
        values = {column: each.values for column, each in found.items()}
        marks = self._writer.rows
        needed = {*marks.key, marks.watermark, marks.deleted}
        deleted = self._deleted(values, len(rows.places))
        reasons: dict[int, str] = {}
        for column, each in found.items():
            for row, reason in each.misfits.items():
                if column.name in needed or not deleted[row]:
                    reasons.setdefault(row, reason)
        for column in self._keys:
            if values[column].null_count:
                for row in np.flatnonzero(_nulls(values[column])).tolist():
                    reasons.setdefault(row, f"key column {column.name!r} is null")
        return values, reasons

    def _failures(
        self, rows: _Rows, values: Mapping[Column, Values], bad: Sequence[int], reasons: Mapping[int, str]
    ) -> Iterator[tuple[int, Failure]]:
        at = pa.array(bad, pa.int64())
        entity = self._writer.ref.partition("@")[0]
        ids: list[Any] = row_ids([values[column].take(at) for column in self._keys]).to_pylist()
        watermark = self._writer.rows.watermark
        versions: list[Any] = [""] * len(bad)
        if watermark:
            texts = values[Column(watermark, TIMESTAMP)].take(at).cast(pa.string())
            versions = texts.fill_null("").to_pylist()
        for row, row_id, version in zip(bad, ids, versions, strict=True):
            yield int(rows.places[row]), Failure(row_id, row_uri(entity, row_id), version, "row", reasons[row])

    def _written(self, rows: _Rows, values: Mapping[Column, Values]) -> Iterator[TableChange]:
        if not len(rows.places):
            return
        deleted = self._deleted(values, len(rows.places))
        version = self._versions(rows, values)
        if self._writer.lift:
            version = pc.add(version, pa.array(np.where(deleted, 0, self._writer.lift)))
        left = np.zeros(len(rows.places), np.int64)
        reasons: dict[int, str] = {}
        for table, schema in zip(self._writer.tables, self._schemas, strict=True):
            own = {column.name: values[Column(table.sources[column.name], column.type)] for column in table.columns}
            gone = deleted_rows(table, own, deleted)
            left += ~gone
            if staged := self._staged(schema, [*own.values(), version], gone):
                # On a first run those to delete are not staged.
                at = np.flatnonzero(~gone) if self._writer.first else np.arange(len(gone))
                yield TableChange(table.kind, staged, refuse=partial(_note, reasons, at))
        good = np.ones(len(rows.places), bool)
        if reasons:
            bad = sorted(reasons)
            self._tally.fail(self._failures(rows, values, bad, reasons))
            good[bad] = False
        self._recover(rows, values, good)
        self._tally.count("deleted", rows.places[deleted & good])
        self._tally.count("rows_written", rows.places[good], left[good])
        if not self._writer.first:
            self._tally.count("rows_deleted", rows.places[good], len(self._writer.tables) - left[good])

    def _staged(self, schema: pa.Schema, columns: Sequence[Values], gone: Flags) -> pa.RecordBatch | None:
        """The rows of a table with their bookkeeping: those to delete too, if they may be there."""
        if self._writer.first and gone.any():
            together = pa.RecordBatch.from_arrays(list(columns), [str(at) for at in range(len(columns))])
            columns = together.filter(pa.array(~gone)).columns
            gone = gone[~gone]
        if not len(gone):
            return None
        *own, version = columns
        return pa.RecordBatch.from_arrays([*own, *self._names(len(gone)), version, pa.array(gone)], schema=schema)

    def _recover(self, rows: _Rows, values: Mapping[Column, Values], good: Flags) -> None:
        """Note which of the good rows failed before."""
        if not self._writer.failing:
            return
        ids = row_ids([values[column] for column in self._keys])
        found = np.flatnonzero(_true(pc.is_in(ids, pa.array(sorted(self._writer.failing)))) & good)
        for row in found.tolist():
            self._tally.remove(int(rows.places[row]), str(ids[row]))

    def _deleted(self, values: Mapping[Column, Values], count: int) -> Flags:
        name = self._writer.rows.deleted
        return _true(values[Column(name, BOOL)]) if name else np.zeros(count, bool)

    def _versions(self, rows: _Rows, values: Mapping[Column, Values]) -> Values:
        watermark = self._writer.rows.watermark
        if watermark is None:
            return pa.repeat(pa.scalar(self._writer.base, pa.int64()), len(rows.places))
        # Nothing is known of when it changed: any version that is known is newer.
        return values[Column(watermark, TIMESTAMP)].cast(pa.int64()).fill_null(0)

    def _names(self, count: int) -> list[Values]:
        """Ref and instance of so many rows: the same for all, so they are made once."""
        if count > self._longest:
            self._repeated = [pa.repeat(each, count) for each in (self._writer.ref, self._writer.instance)]
            self._longest = count
        return [each.slice(0, count) for each in self._repeated]


def _note(reasons: dict[int, str], at: Numbers, row: int, reason: str) -> None:
    """Take down why a row was refused; `at` are the places of the rows that were staged."""
    reasons.setdefault(int(at[row]), reason)


def deleted_rows(table: GraphTable, columns: Mapping[str, Values], deleted: Flags) -> Flags:
    """The value of `GraphTable.deleted` for each row."""
    ends = [_nulls(columns[name]) for name in (*table.start, *table.end) if columns[name].null_count]
    return reduce(or_, ends, deleted)


def _nulls(values: Values) -> Flags:
    return np.asarray(values.is_null().to_numpy(zero_copy_only=False))


def _true(values: Values) -> Flags:
    return np.asarray(values.fill_null(False).to_numpy(zero_copy_only=False))


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
                hint="Has the table changed? Compare it with: instep check",
            )
        # By their places: names may hold dots and quotes, and differ by their case only.
        names = [f"c{at}" for at in range(len(there))]
        wanted = [f"c{there[each.name]}" for each in self.writer.columns]
        numbered = frame.toDF(*names)
        return numbered if wanted == names else numbered.select(*wanted)

    @property
    def write(self) -> Callable[[Batches], Batches]:
        return self.writer.write
