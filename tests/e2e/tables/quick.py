"""The shop without Spark: what Spark would do is done here in Arrow, so that hundreds of crashes take seconds.

Ledger, target, writer and service are the real ones, and what the real source knows without Spark is asked of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import instep
from instep.container import Container
from instep.domain.columns import Column
from instep.domain.cuts import Bin
from instep.domain.keys import Key, key_of
from instep.domain.refs import PartitionRef, Scope
from instep.domain.rows import Histogram, RowColumns, Selection
from instep.domain.seen import Look, RowMark
from instep.domain.table_files import Files, TableFile
from instep.domain.waves import TaskOutcome, Wave
from instep.entities.setup import EntitySetup
from instep.entities.tables.setup import TableSetup
from instep.jobs.entity_result import EntityResult
from instep.jobs.serve import serve
from instep.pipeline.engine.choice import EngineChoice
from instep.pipeline.engine.engine import TableProgram, WaveProgram
from instep.pipeline.outcomes import OUTCOME_SCHEMA, merged_outcomes
from instep.planning.context import Context
from instep.sources.tables.spark_tables import SparkTable
from instep.telemetry.progress import Silent
from tests.doubles.through import replaced, through

from .shop import TIMING, Shop

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Frame:
    """What the program asks of a DataFrame."""

    table: pa.Table

    @property
    def columns(self) -> list[str]:
        return list(self.table.column_names)

    def toDF(self, *names: str) -> Frame:  # noqa: N802 - Spark's name
        return Frame(self.table.rename_columns(list(names)))

    def select(self, *names: str) -> Frame:
        return Frame(self.table.select(list(names)))


@dataclass(frozen=True)
class ArrowTable:
    """A `TableSource` on the shop's Parquet. `asked` are the selections that waves have read, `given` how many rows
    each of them got. `by_files`: as what it is; else as a table of a database, whose changes are found by watermarks.
    """

    inner: SparkTable
    by_files: bool = False
    asked: list[Selection] = field(default_factory=list)
    given: list[int] = field(default_factory=list)

    @property
    def text(self) -> str:
        return self.inner.text

    @property
    def missing_extra(self) -> None:
        pass

    def columns(self, spark: Any) -> tuple[Column, ...]:
        return self.inner.columns(spark)

    def state(self) -> str | None:
        return self.inner.state()

    def files_digest(self) -> str | None:
        return self.inner.files_digest()

    def changed(
        self,
        spark: Any,
        rows: RowColumns,
        scope: Scope,
        floor: int,
        others: tuple[Scope, ...] | None = None,
        *,
        known: Files | None = None,
    ) -> bool:
        return self.inner.changed(spark, rows, scope, floor, others, known=known)

    def newer(self, spark: Any, rows: RowColumns, selection: Selection) -> int | None:
        return self.inner.newer(spark, rows, selection)

    def files(self) -> Sequence[TableFile] | None:
        return self.inner.files() if self.by_files else None

    def look(self, spark: Any, rows: RowColumns, selection: Selection, *, floor: int | None, target: int) -> Look:
        found = self._marked(rows, selection)
        latest = max(
            (each.watermark for each in found if each.watermark is not None and each.watermark <= target), default=None
        )
        margin = [
            each.digest for each in found if each.watermark is None or (floor is not None and each.watermark <= floor)
        ]
        without = sum(each.watermark is None for each in found)
        return Look(latest, without, len(margin), str(sum(margin)))

    def marks(self, spark: Any, rows: RowColumns, selection: Selection, limit: int) -> list[RowMark] | None:
        found = self._marked(rows, selection)
        return found if len(found) <= limit else None

    def _marked(self, rows: RowColumns, selection: Selection) -> list[RowMark]:
        assert rows.watermark is not None
        return [
            RowMark(",".join(str(row[name]) for name in rows.key), _micros(row[rows.watermark]), _digest(row))
            for row in self._selected(rows, selection)
        ]

    def without_watermark(self, spark: Any, rows: RowColumns, selection: Selection) -> int:
        return sum(
            rows.watermark is not None and row[rows.watermark] is None for row in self._selected(rows, selection)
        )

    def histogram(
        self, spark: Any, rows: RowColumns, selection: Selection, columns: tuple[str, ...], *, bins: int
    ) -> Histogram:
        found = self._selected(rows, selection)
        keys = self._keys(found, columns)
        return Histogram(len(found), [Bin(key, len(list(same))) for key, same in groupby(keys)])

    def extremes(self, spark: Any, rows: RowColumns, selection: Selection, column: str) -> tuple[Key, Key] | None:
        keys = self._keys(self._selected(rows, selection), (column,))
        return (keys[0], keys[-1]) if keys else None

    def frame(self, spark: Any, rows: RowColumns, selection: Selection) -> Any:
        """Rows of other ranges too: the writer has to sort them out."""
        schema, _ = self._all()
        found = self._selected(rows, selection)
        self.asked.append(selection)
        self.given.append(len(found))
        return Frame(pa.Table.from_pylist(found, schema=schema))

    def keys(self, rows: RowColumns, selection: Selection, columns: Sequence[str]) -> Iterator[pa.RecordBatch] | None:
        return self.inner.keys(rows, selection, columns)

    def _all(self, known: Files | None = None) -> tuple[pa.Schema, list[dict[str, Any]]]:
        (folder,) = self.inner.path
        table = pq.read_table(folder)
        if known is None:
            return table.schema, table.to_pylist()
        new = known.new(self.inner.files() or ())
        return table.schema, [row for each in new for row in pq.read_table(each.path).to_pylist()]

    def _selected(self, rows: RowColumns, selection: Selection) -> list[dict[str, Any]]:
        return [row for row in self._all(selection.known)[1] if _holds(rows, selection, row)]

    @staticmethod
    def _keys(found: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> list[Key]:
        values = ([row[name] for name in columns] for row in found)
        return sorted(key_of(*each) for each in values if None not in each)


def _holds(rows: RowColumns, selection: Selection, row: Mapping[str, Any]) -> bool:
    path = (row[rows.scope] or "") if rows.scope else ""
    if selection.others is not None:
        if any(path.startswith(each.path) for each in selection.others):
            return False
    elif not path.startswith(selection.scope.path):
        return False
    if selection.window is None or rows.watermark is None:
        return True
    if not selection.window.holds(_micros(row[rows.watermark])):
        return False
    return not (selection.window.undeleted and rows.deleted and row[rows.deleted])


def _micros(at: datetime | None) -> int | None:
    return None if at is None else (at - _EPOCH) // timedelta(microseconds=1)


def _digest(row: Mapping[str, Any]) -> int:
    """Nulls do not count: a row is as it was when it has got another column without a value."""
    there = sorted((name, value) for name, value in row.items() if value is not None)
    return int.from_bytes(hashlib.sha256(repr(there).encode()).digest()[:8], "big")


class ArrowEngine:
    """Runs waves here, each as two tasks."""

    name = "spark"

    def once(self, work: Callable[[], None], *, apart: bool = False) -> float:
        work()
        return 0.0

    def ready(self) -> None:
        """It always is."""

    def run(
        self, wave: Wave, program: WaveProgram | TableProgram, progress: object = None, stages: object = None
    ) -> Sequence[TaskOutcome]:
        assert isinstance(program, TableProgram)
        frame: Any = program.frame(_no_spark)
        table: pa.Table = frame.table
        half = table.num_rows // 2
        tasks = [program.write(_batches(part)) for part in (table.slice(0, half), table.slice(half))]
        found = [batch for task in tasks for batch in task]
        return merged_outcomes(pa.Table.from_batches(found, OUTCOME_SCHEMA), wave)

    def close(self) -> None:
        return


def _batches(table: pa.Table) -> Iterator[pa.RecordBatch]:
    yield from table.combine_chunks().to_batches()


def _no_spark() -> Any:
    raise AssertionError("nothing here needs Spark")


@dataclass
class QuickShop(Shop):
    """`sources` are those of the last run, by partition; `by_files`: as `ArrowTable` says."""

    sources: dict[str, ArrowTable] = field(default_factory=dict)
    by_files: bool = False

    def container(self) -> Container:
        return Container(instep.load(self.root).project, clock=self.clock, timing=TIMING)

    def run(
        self,
        *names: str,
        setups: Callable[[TableSetup], EntitySetup] | None = None,
        around: Callable[[Context], Context] | None = None,
        **options: Any,
    ) -> dict[str, EntityResult]:
        self.sources = {}

        def quick_setup(setup: TableSetup) -> EntitySetup:
            quick = self.quick_setup(setup)
            return setups(quick) if setups else quick

        def quick_context(context: Context) -> Context:
            quick = self.quick_context(context)
            return around(quick) if around else quick

        return super().run(*names, setups=quick_setup, around=quick_context, **options)

    def work(self, *names: str, then: Callable[[], None] = lambda: None) -> None:
        """Another server's `instep worker`, until nothing is left to do. It has been there before `then`."""
        self.sources = {}
        container = self.container()

        def setups() -> list[TableSetup]:
            return [self.quick_setup(each) for each in container.setups(names)]

        with closing(container), closing(container.ledger()) as ledger:
            context = self.quick_context(container.context(ledger, Silent()))
            found = setups()
            for each in found:
                each.columns()
            then()
            context = replace(context, background=self.clock, liveness=NoProof())
            serve(found, context, until_idle=True, anew=setups)

    def quick_setup(self, setup: EntitySetup) -> TableSetup:
        assert isinstance(setup, TableSetup)
        assert isinstance(setup.source, SparkTable)
        source = ArrowTable(setup.source, self.by_files)
        self.sources[setup.ref.label] = source
        return replace(setup, source=source)

    @staticmethod
    def quick_context(context: Context) -> Context:
        return replace(context, engine=_arrow_engine, prepare=_nothing)

    def setups_of(self, container: Container) -> Callable[[Iterable[PartitionRef]], list[TableSetup]]:
        """How workers make setups."""
        return lambda refs: [self.quick_setup(each) for each in container.setups_of(refs)]

    def read(self, ref: str) -> int:
        """Rows that waves of the last run were given."""
        return sum(self.sources[ref].given)


def _arrow_engine(choice: EngineChoice) -> ArrowEngine:
    return ArrowEngine()


def _nothing(setup: EntitySetup) -> None:
    return


# What goes wrong.


class Crash(BaseException):
    """The process is gone."""


@dataclass
class Fault:
    """Crashes at call number `at` (from 1) of those that `counts`, before or after it takes effect; every call after
    that fails. Calls of the ledger are named `parts.plan`, those of the target `target.commit`.
    """

    at: int
    after: bool = False
    counts: Callable[[str], bool] = lambda name: True
    calls: int = 0
    crashed_in: str = ""

    def call(self, name: str, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self.crashed_in:
            raise Crash(self.crashed_in)
        self.calls += self.counts(name)
        here = self.counts(name) and self.calls == self.at
        if here and not self.after:
            self.crashed_in = name
            raise Crash(name)
        result = method(*args, **kwargs)
        if here:
            self.crashed_in = name
            raise Crash(name)
        return result

    def target(self, setup: TableSetup) -> EntitySetup:
        """The setup with this in front of its target."""
        return replace(setup, target=through(setup.target, self.call, "target."))

    def context(self, context: Context) -> Context:
        """The context with this in front of its ledger. No worker is proved dead, as on another host."""
        return replace(context, ledger=through(context.ledger, self.call), liveness=NoProof())


class NoProof:
    """Only silence tells that a worker is dead."""

    def begin(self, worker_id: str) -> Callable[[], None]:
        return lambda: None

    def proved_dead(self, worker_id: str) -> bool:
        return False

    def all_dead(self) -> list[str]:
        return []

    def forget(self, worker_id: str) -> None:
        return


def slice_by_slice(context: Context) -> Context:
    """A wave for each slice."""

    def claim(real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return real(*args, **{**kwargs, "limit": 1})

    return replace(context, ledger=replaced(context.ledger, {"slices.claim": claim}))


def during(context: Context, call: str, happens: Callable[[], None]) -> Context:
    """Something happens before the ledger's first call of this name."""
    coming = [happens]

    def first(real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if coming:
            coming.pop()()
        return real(*args, **kwargs)

    return replace(context, ledger=replaced(context.ledger, {call: first}))
