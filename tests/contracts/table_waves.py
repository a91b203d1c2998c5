"""Waves of tables: what the Spark engine owes to a `TableProgram`, on classic Spark and on Connect alike."""

from __future__ import annotations

import _thread
import os
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from instep.domain.columns import INT64, STRING, Column
from instep.domain.counts import Counts
from instep.domain.cuts import KeyRange
from instep.domain.graph import Edge, End, GraphEntity, Node, graph_tables, node_keys
from instep.domain.keys import key_of
from instep.domain.refs import PartitionRef
from instep.domain.rows import RowColumns, Selection
from instep.domain.waves import Mark, SliceOutcome, TaskOutcome, Wave, WaveSlice
from instep.errors import Conflict, Fenced, Transient, UserError
from instep.pipeline.engine.engine import Batches, Engine
from instep.pipeline.outcomes import encode_outcome
from instep.pipeline.tables.routing import WaveRows
from instep.pipeline.tables.writing import RowWriter, TableWave, needed_columns
from instep.sources.tables.table_source import Sessions
from instep.targets.lance.tables import LanceTableTarget
from instep.targets.table_target import TableSpec, TableTarget
from tests.waiting import until

ENTITY = GraphEntity(
    "Number",
    (Column("id", INT64), Column("na.me", STRING), Column("half`s", INT64), Column("unused", STRING)),
    ("id",),
    node=Node("Number", {"name": "na.me"}),
    edges=(Edge("HALF", End("Number"), End("Number", ("half`s",))),),
)
TABLES = graph_tables(ENTITY, node_keys([ENTITY]))
ROWS = RowColumns(("id",))
#: How long a test waits for something that has to happen, in seconds.
TIMEOUT_SECONDS = 120.0

#: Slices of which the last has no rows.
BOUNDS = (None, 100, 600, 1_000_000, None)


@dataclass(frozen=True)
class Numbers:
    """A source of numbers, each with its half if it is even. As any source it does not leave the driver."""

    text: str = "numbers"
    rows: int = 1_000
    tasks: int = 4
    then: Callable[[Any], Any] = lambda frame: frame
    alone: Any = field(default_factory=threading.Lock)

    def frame(self, spark: Sessions, rows: RowColumns, selection: Selection) -> Any:
        numbers = spark().range(0, self.rows, 1, self.tasks)
        half = "if(id % 2 = 0, id div 2, null) as `half``s`"
        return self.then(numbers.selectExpr("id", "'x' as unused", half, "concat('n', id) as `na.me`"))


def a_target(folder: Path) -> TableTarget:
    target: TableTarget = LanceTableTarget(str(folder))
    target.create("Number__1", [TableSpec.of(table) for table in TABLES])
    return target


def a_program(target: TableTarget, **of_source: Any) -> TableWave:
    ranges = [KeyRange(key_of(low) if low else None, key_of(high) if high else None) for low, high in pairwise(BOUNDS)]
    base = target.fence("Number__1", 1)
    writer = RowWriter(
        tables=TABLES,
        columns=needed_columns(ENTITY.columns, TABLES, ROWS, ("id",)),
        rows=ROWS,
        # The second is not of this wave.
        slices=tuple(WaveRows(f"s{at}", each) for at, each in enumerate(ranges) if at != 1),
        cut_by=("id",),
        target=target,
        into=target.writer("Number__1", base),
        base=base,
        ref="Number@global",
        instance="i",
        batch_rows=10_000,
        first=True,
    )
    return TableWave(Numbers(**of_source), Selection(), writer, units=500)  # type: ignore[arg-type]  # as much of a source as is used


def table_wave(ref: str = "Number@global") -> Wave:
    slices = tuple(WaveSlice(f"s{at}", 3 + at, 0, 250, ()) for at in (0, 2, 3))
    return Wave(str(uuid.uuid4()), PartitionRef.parse(ref), "i", "Number__1", 1, 0, slices)


def the_slices(tasks: Sequence[TaskOutcome]) -> dict[str, SliceOutcome]:
    found = [outcome for task in tasks for outcome in task.slices]
    assert sorted(each.slice_id for each in found) == ["s0", "s2", "s3"]
    return {each.slice_id: each for each in found}


@dataclass(frozen=True)
class Changed:
    """A program whose tasks do something else; or its driver."""

    program: TableWave
    write: Callable[[Batches], Batches]

    @property
    def units(self) -> int:
        return self.program.units

    def frame(self, spark: Sessions) -> Any:
        return self.program.frame(spark)


@dataclass(frozen=True)
class Raising:
    error: Exception

    def __call__(self, batches: Batches) -> Batches:
        for _ in batches:
            raise self.error
        yield from ()


@dataclass(frozen=True)
class Meeting:
    """Tasks that say they have begun and wait for another to begin."""

    folder: Path
    own: str
    other: str
    writer: RowWriter

    def __call__(self, batches: Batches) -> Batches:
        begun = self.folder / f"{self.own}.draft"
        begun.write_text(str(os.getpid()))
        begun.rename(self.folder / self.own)
        # Longer than the test: it must not end by itself what the test wants to see ended.
        until((self.folder / self.other).exists, seconds=3 * TIMEOUT_SECONDS)
        yield from self.writer.write(batches)


def _runs(process: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{process}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def _broken(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        raise LookupError("no such\nnumber")
    yield from ()


def _raises(frame: Any) -> Any:
    raise KeyError("no such setting")


class TableWavesContract:
    """Inherit, and provide the fixture `engine`."""

    def test_rows_of_a_wave_are_written_and_counted_slice_by_slice(self, engine: Engine, tmp_path: Path) -> None:
        target = a_target(tmp_path)
        program = a_program(target)
        wave = table_wave()
        tasks = engine.run(wave, program)
        slices = the_slices(tasks)
        assert {name: (each.fence, each.counts.read, each.counts.written) for name, each in slices.items()} == {
            "s0": (3, 100, 100),
            "s2": (5, 400, 400),
            "s3": (6, 0, 0),
        }
        assert slices["s2"].counts.rows_written == 600
        assert len(tasks) == 4
        target.commit(
            "Number__1",
            base=program.writer.base,
            epoch=1,
            attempt=wave.id,
            staged=[each.staged for each in tasks],
            marks=[Mark(each.slice_id, each.fence, encode_outcome(each)) for each in slices.values()],
        )
        rows = {row["id"]: row["name"] for row in target.read("Number__1").to_pylist()}
        assert rows == {number: f"n{number}" for number in (*range(100), *range(600, 1_000))}
        halves = {row["from_id"]: row["to_id"] for row in target.read("Number__1", "HALF").to_pylist()}
        assert halves == {number: number // 2 for number in rows if number % 2 == 0}

    def test_failures_of_all_tasks_come_together(self, engine: Engine, tmp_path: Path) -> None:
        def nulls(frame: Any) -> Any:
            return frame.selectExpr("if(id % 250 = 7, null, id) as id", "`na.me`", "`half``s`")

        slices = the_slices(engine.run(table_wave(), a_program(a_target(tmp_path), then=nulls)))
        assert slices["s0"].counts.failed == 4
        assert [(each.document_id, each.reason) for each in slices["s0"].failures] == [
            ("null", "key column 'id' is null")
        ] * 4

    def test_a_table_without_rows_has_outcomes_too(self, engine: Engine, tmp_path: Path) -> None:
        target = a_target(tmp_path)
        program = a_program(target, then=lambda frame: frame.where("false"))
        tasks = engine.run(table_wave(), program)
        assert all(each.counts == Counts() for each in the_slices(tasks).values())
        assert [each.staged for each in tasks] == [b""]  # which is not for a target: nothing is staged
        target.commit("Number__1", base=program.writer.base, epoch=1, attempt="1", staged=[], marks=[])
        assert target.rows("Number__1") == 0

    def test_a_column_that_is_gone_is_named(self, engine: Engine, tmp_path: Path) -> None:
        program = a_program(a_target(tmp_path), then=lambda frame: frame.drop("half`s"))
        with pytest.raises(UserError, match="numbers has no column 'half`s' any more"):
            engine.run(table_wave(), program)

    @pytest.mark.parametrize("kind", [Transient, Fenced, Conflict])
    def test_an_error_in_a_task_of_a_table_keeps_its_kind(
        self, engine: Engine, tmp_path: Path, kind: type[Exception]
    ) -> None:
        program = Changed(a_program(a_target(tmp_path)), Raising(kind("the far end said: no\nand that is that")))
        with pytest.raises(kind) as raised:
            engine.run(table_wave(), program)
        assert type(raised.value) is kind
        assert str(raised.value) == "the far end said: no\nand that is that"

    def test_a_users_own_function_that_fails_says_so_in_a_line(self, engine: Engine, tmp_path: Path) -> None:
        schema = "id bigint, `na.me` string, `half``s` bigint"
        program = a_program(a_target(tmp_path), then=lambda frame: frame.select("id").mapInArrow(_broken, schema))
        with pytest.raises(Exception, match="LookupError: no such") as raised:
            engine.run(table_wave(), program)
        assert len(str(raised.value).splitlines()) == 1
        with pytest.raises(UserError, match="cannot read the table: KeyError: 'no such setting'") as raised:
            engine.run(table_wave(), a_program(a_target(tmp_path), then=_raises))
        assert len(str(raised.value).splitlines()) == 1
        with pytest.raises(Exception, match="nowhere") as raised:
            engine.run(table_wave(), a_program(a_target(tmp_path), then=lambda frame: frame.where("nowhere > 1")))
        assert len(str(raised.value).splitlines()) == 1

    def test_progress_of_a_table_adds_up_to_its_units(self, engine: Engine, tmp_path: Path) -> None:
        told: list[int] = []
        engine.run(table_wave(), a_program(a_target(tmp_path)), told.append)
        assert sum(told) == 500
        assert all(units > 0 for units in told)

    def test_two_waves_run_side_by_side(self, engine: Engine, tmp_path: Path) -> None:
        """Each has a task that waits for the other's."""
        programs = []
        for own, other in (("a", "b"), ("b", "a")):
            program = a_program(a_target(tmp_path / f"target-{own}"), tasks=1)
            programs.append(Changed(program, Meeting(tmp_path, own, other, program.writer)))
        with ThreadPoolExecutor() as threads:
            found = list(threads.map(lambda each: engine.run(table_wave(), each), programs))
        assert [the_slices(each)["s0"].counts.written for each in found] == [100, 100]

    def test_an_interrupt_ends_the_tasks(self, engine: Engine, tmp_path: Path) -> None:
        program = a_program(a_target(tmp_path / "target"), tasks=1)
        waiting = Changed(program, Meeting(tmp_path, "begun", "never", program.writer))

        def interrupt() -> None:
            until((tmp_path / "begun").exists)
            _thread.interrupt_main()

        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            engine.run(table_wave(), waiting)
        thread.join()
        process = int((tmp_path / "begun").read_text())
        until(lambda: not _runs(process))
        assert the_slices(engine.run(table_wave(), program))["s0"].counts.written == 100
