"""A table whose windows are cut into slices, a world that goes wrong as a seed says, and an end in which all mends.

Ledger (its model), planning, writer and service are the real ones; rows come from a table in memory, and go into a
target in memory that decides by key and version as every table target does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from random import Random
from typing import Any, NamedTuple, cast

import pyarrow as pa

from instep.arrow.types import arrow_type
from instep.bus.status_reporter import StatusReporter
from instep.domain.clock import TIMING
from instep.domain.columns import BOOL, INT64, TIMESTAMP, Column
from instep.domain.cuts import Bin
from instep.domain.graph import GraphTable
from instep.domain.keys import Key, key_of
from instep.domain.manifest import DeleteGuard
from instep.domain.planning import Pace
from instep.domain.refs import PartitionRef, Scope
from instep.domain.rows import Histogram, RowColumns, Selection
from instep.domain.seen import Look, RowMark
from instep.domain.table_files import Files
from instep.domain.waves import Mark, TaskOutcome, Wave
from instep.entities.plan_request import PlanOptions
from instep.entities.tables.adapters import Slicing
from instep.entities.tables.setup import TableSetup
from instep.errors import InstepError
from instep.jobs.run import run_entities
from instep.jobs.serve import serve
from instep.ledger.ledger import Ledger
from instep.pipeline.engine.choice import EngineChoice
from instep.pipeline.outcomes import OUTCOME_SCHEMA, merged_outcomes
from instep.planning.context import Context
from instep.targets.table_target import DELETED, VERSION, Drift, Held, TableChange, TableSpec, Unfit
from instep.telemetry.progress import Silent
from tests.e2e.tables.quick import Frame
from tests.simulator.model import ModelLedger

from .faults import EFFECTS, HEART, Chaos, Event, Fault, Port, World
from .scheduler import LedgerClock, Process, ProcessClock, Scheduler, Stuck, Turns
from .simulation import NAMING, Chance, Host, _Ids
from .status_keys import SimStatusKeys
from .target import SimTarget

MINUTE = 60_000
REF = PartitionRef("Issue")
COLUMNS = (Column("id", INT64), Column("at", TIMESTAMP), Column("gone", BOOL), Column("value", INT64))
_TABLE = GraphTable("", COLUMNS, ("id",), None, {each.name: each.name for each in COLUMNS})
_SCHEMA = pa.schema([pa.field(each.name, arrow_type(each.type)) for each in COLUMNS])
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Rows get their watermark before they can be seen: for so many milliseconds at most.
_LAG = 20_000
#: So many rows of the margin are told apart.
_MARKED = 20
#: Jobs and events are forgotten when they are older (milliseconds).
_RETENTION = 5 * MINUTE
#: Keys, and how many of them a slice has.
_KEYS, _SLICE_ROWS = 60, 2
PROCESSES = 3
#: Runs of the quiet end.
_MENDS = 40


class Row(NamedTuple):
    """`came`: when it could be seen (ms), which may be long after its watermark."""

    value: int
    at: int
    gone: bool = False
    came: int = 0


class Stored(NamedTuple):
    value: int
    version: int
    deleted: bool


class SimTable:
    """Implements `TableSource`: a row a key, with a watermark in microseconds that grows with every change."""

    text = "simulated"
    missing_extra = None

    def __init__(self) -> None:
        self.rows: dict[int, Row] = {}

    def columns(self, spark: Any) -> tuple[Column, ...]:
        return COLUMNS

    def state(self) -> None:
        return None

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
        return any(each.at > floor for each in self.rows.values())

    def newer(self, spark: Any, rows: RowColumns, selection: Selection) -> int:
        return len(self._selected(selection))

    def files(self) -> None:
        return None

    def look(self, spark: Any, rows: RowColumns, selection: Selection, *, floor: int | None, target: int) -> Look:
        found = self._selected(selection)
        margin = [hash((key, row)) for key, row in found.items() if floor is not None and row.at <= floor]
        latest = max((row.at for row in found.values() if row.at <= target), default=None)
        return Look(latest, 0, len(margin), str(sum(margin)))

    def marks(self, spark: Any, rows: RowColumns, selection: Selection, limit: int) -> list[RowMark] | None:
        found = self._selected(selection)
        if len(found) > min(limit, _MARKED):
            return None
        return [RowMark(str(key), row.at, hash((key, row)) % 2**63) for key, row in found.items()]

    def without_watermark(self, spark: Any, rows: RowColumns, selection: Selection) -> int:
        return 0

    def histogram(
        self, spark: Any, rows: RowColumns, selection: Selection, columns: tuple[str, ...], *, bins: int
    ) -> Histogram:
        found = self._selected(selection)
        return Histogram(len(found), [Bin(key_of(key), 1) for key in sorted(found)])

    def extremes(self, spark: Any, rows: RowColumns, selection: Selection, column: str) -> tuple[Key, Key] | None:
        found = sorted(self._selected(selection))
        return (key_of(found[0]), key_of(found[-1])) if found else None

    def keys(self, rows: RowColumns, selection: Selection, columns: Sequence[str]) -> None:
        return None

    def frame(self, spark: Any, rows: RowColumns, selection: Selection) -> Any:
        """Rows of other ranges too: the writer has to sort them out."""
        found = [
            {"id": key, "at": _EPOCH + timedelta(microseconds=row.at), "gone": row.gone, "value": row.value}
            for key, row in self._selected(selection).items()
        ]
        return Frame(pa.Table.from_pylist(found, schema=_SCHEMA))

    def _selected(self, selection: Selection) -> dict[int, Row]:
        window = selection.window
        return {
            key: row
            for key, row in self.rows.items()
            if window is None or (window.holds(row.at) and not (window.first and row.gone))
        }


class SimTableTarget(SimTarget):
    """Implements what the service uses of `TableTarget`: fences, epochs and attempts are those of `SimTarget`."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        super().__init__(seconds)
        self.tables: dict[str, dict[int, Stored]] = {}
        self.parts: dict[bytes, Sequence[tuple[int, Stored]]] = {}

    def create(self, physical: str, specs: Any, buckets: int = 0, columns: object = ()) -> None:
        super().create(physical, 0, buckets)
        self.tables.setdefault(physical, {})

    def commit(
        self, physical: str, *, base: int, epoch: int, attempt: str, staged: Sequence[bytes], marks: Sequence[Mark]
    ) -> int:
        before = self._index(physical).version
        version = super().commit(physical, base=base, epoch=epoch, attempt=attempt, staged=(), marks=marks)
        if self._index(physical).version > before:
            table = self.tables[physical]
            for key, row in (each for part in staged for each in self.parts[part]):
                there = table.get(key)
                if there is None or (row.version, not row.deleted) >= (there.version, not there.deleted):
                    table[key] = row
        return version

    def drop(self, physical: str) -> None:
        super().drop(physical)
        self.tables.pop(physical, None)

    def rows(self, physical: str) -> int:
        return sum(not each.deleted for each in self.tables[physical].values())


class _TablePort(Port):
    """What asks no server goes through no weather."""

    def specs(self, physical: str) -> Sequence[TableSpec]:
        return [TableSpec.of(_TABLE)]

    def drift(self, physical: str, specs: Sequence[TableSpec]) -> Sequence[Drift]:
        return ()

    def unfit(self, spec: TableSpec, rows: pa.RecordBatch) -> Iterable[Unfit]:
        return ()

    def held(self, physical: str, instance: str, *, prefix: str = "") -> Held:
        return Held(self._inner.rows(physical), 0)

    def writer(self, physical: str, base: int) -> _Writer:
        return _Writer(self._inner)


@dataclass(frozen=True)
class _Writer:
    target: SimTableTarget

    def stage(self, changes: Iterator[TableChange]) -> bytes:
        rows = [row for change in changes for row in change.rows.to_pylist()]
        name = str(len(self.target.parts)).encode()
        self.target.parts[name] = [(row["id"], Stored(row["value"], row[VERSION], row[DELETED])) for row in rows]
        return name


class _Engine:
    """Implements `pipeline.engine.engine.Engine`: reads when it is asked, and takes its time."""

    name = "spark"

    def __init__(self, process: Process, speed: float) -> None:
        self._process = process
        self._speed = speed

    def once(self, work: Callable[[], None], *, apart: bool = False) -> float:
        work()
        return 0.0

    def ready(self) -> None:
        """It always is."""

    def run(self, wave: Wave, program: Any, progress: object = None, stages: object = None) -> Sequence[TaskOutcome]:
        self._process.step()
        table: pa.Table = program.frame(None).table
        self._process.sleep(sum(each.work for each in wave.slices) / self._speed * 1_000)
        half = table.num_rows // 2
        found: list[pa.RecordBatch] = []
        for part in (table.slice(0, half), table.slice(half)):
            found += program.write(iter(part.combine_chunks().to_batches()))
            self._process.step()
        return merged_outcomes(pa.Table.from_batches(found, OUTCOME_SCHEMA), wave)

    def close(self) -> None:
        return


class WindowSimulation:
    """Builds the world of a seed. `run` plays it; then `broken` must be empty. A job had `most` slices at most, and so
    many events were `forgotten` in the end.
    """

    def __init__(self, seed: int) -> None:
        random = self._random = Random(seed)
        scheduler = self._scheduler = Scheduler(Chance(random, random.choice((0.0, 0.5))))
        rate, focused = random.choice((0.0, 0.01, 0.05)), random.choice((0.1, 0.3))
        chaos = Chaos(random, rate, focused, left=random.choice((2, 6, 12)))
        chaos.focus = frozenset(random.sample(random.choice((EFFECTS, HEART)), 3))
        chaos.pause = (TIMING.lease, 3 * TIMING.lease)
        chaos.kinds = tuple(random.sample(list(Fault), random.randint(2, len(Fault))))
        self.world = World(scheduler, chaos, watch=self._watch)
        self.world.network = Process("network", "nowhere", scheduler)
        self.ledger = ModelLedger(LedgerClock(scheduler), naming=NAMING)
        self.target = SimTableTarget(lambda: scheduler.now / 1_000)
        self.table = SimTable()
        self.broken = self.world.broken
        self.most = self.forgotten = 0
        #: Which workers have completed slices of each job.
        self.workers: dict[str, set[str]] = {}
        self._host, self._numbers = Host(), 0
        self._speed = random.choice((0.3, 1.0, 10.0))
        self._quiet = False

    def run(self) -> None:
        scheduler = self._scheduler
        try:
            self._change(_KEYS)
            scheduler.now += 2 * _LAG
            if self._random.random() < 0.8:  # There is an index already, and windows above it.
                self._mend()
                self._change(_KEYS // 2)
            until = self.world.chaos.until = scheduler.now + self._random.uniform(5, 15) * MINUTE
            programs: list[Callable[[Process], object]] = [
                self._write,
                *[partial(self._work, number) for number in range(PROCESSES)],
            ]
            running = [self._start(each) for each in programs]

            def one_is_over() -> bool:
                return scheduler.now >= until or any(each.over for each in running)

            while scheduler.now < until:
                scheduler.run(one_is_over)
                for number, program in enumerate(programs):
                    if running[number].over:
                        running[number] = self._start(program, after=self._random.choice((0, 5 * MINUTE)))
            self._quiet = True
            for each in running:
                each.interrupt()
                each.paused_until = min(each.paused_until, scheduler.now)
            scheduler.run(lambda: all(each.over for each in running), deadline=scheduler.now + 90 * MINUTE)
            scheduler.now += TIMING.stale + TIMING.lease
            self._mend()
            self._judge()
        except Stuck as stuck:
            self.broken.append(f"stuck: {stuck}")
        finally:
            scheduler.close()

    # What goes on.

    def _start(self, program: Callable[[Process], object], after: float = 0) -> Process:
        self._numbers += 1
        process = Process(f"process {self._numbers}", "here", self._scheduler, number=self._numbers)

        def run() -> None:
            if after:
                process.sleep(after)
            program(process)

        process.start(run)
        return process

    def _write(self, process: Process) -> None:
        while not self._quiet:
            process.sleep(self._random.expovariate(1 / (2 * MINUTE)))
            self._change(self._random.choice((1, 5, 20)))

    def _change(self, rows: int) -> None:
        """Rows that are new, are changed, or go: at this moment, or a little before; some of them at one moment."""
        now, late = self.ledger.now(), self._random.choice((0, 0, 1, _LAG))
        for key in self._random.sample(range(_KEYS), rows):
            before = self.table.rows.get(key)
            at = max(now * 1_000 - self._random.randint(0, late) * 1_000, before.at + 1 if before else 0)
            gone = self._random.random() < 0.15
            self.table.rows[key] = Row((before.value if before else 0) + 1, at, gone, now)

    def _work(self, number: int, process: Process) -> None:
        """A run after the other, or a worker that goes on until it is told to stop."""
        while not self._quiet:
            try:
                if number == 0:
                    serve([self._setup(process)], self._context(process), until_idle=True)
                else:
                    wait = self._random.choice((0.0, 600.0))
                    run_entities([self._setup(process)], self._context(process), PlanOptions(), wait_seconds=wait)
            except InstepError:
                process.sleep(20_000)
            process.sleep(self._random.choice((5_000, MINUTE)))

    def _mend(self) -> None:
        """Runs that nothing disturbs, until one finds nothing to do."""
        left, self.world.chaos.left = self.world.chaos.left, 0
        for _ in range(_MENDS):
            process = self._start(self._once)
            self._scheduler.run(lambda process=process: process.over, deadline=self._scheduler.now + 90 * MINUTE)  # type: ignore[misc]  # bound now
            self._scheduler.now += MINUTE
            checkpoint = self.ledger.checkpoints.get(REF)
            newest = max(each.came for each in self.table.rows.values())
            if checkpoint and checkpoint.watermark >= newest and self.ledger.jobs.unfinished(REF) is None:
                break
        else:
            self.broken.append(f"there is no end: {self.ledger.jobs.newest(1)}")
        self.world.chaos.left = left

    def _once(self, process: Process) -> None:
        run_entities([self._setup(process)], self._context(process), PlanOptions(), wait_seconds=0)

    def _setup(self, process: Process) -> TableSetup:
        target: Any = _TablePort(self.target, "target", process, self.world)
        return TableSetup(
            ref=REF,
            source=cast(Any, self.table),
            source_text="simulated",
            target=target,
            target_name="sim",
            buckets=1,
            priority=40,
            needs_spark=False,
            fingerprints=lambda: {"target": "sim"},
            ttl=None,
            revision=lambda: "simulated",
            spark=cast(Any, lambda: None),
            rows=RowColumns(("id",), watermark="at", deleted="gone"),
            slicing=Slicing(None, even=False, slice_rows=_SLICE_ROWS, work_factor=1.0),
            lag=_LAG,
            batch_rows=1_000,
            guard=DeleteGuard(),
            columns=lambda: COLUMNS,
            tables=lambda: (_TABLE,),
        )

    def _context(self, process: Process) -> Context:
        random = Random(f"{self._numbers} {process.number}")
        engine: Any = _Engine(process, self._speed)
        pace = Pace(0.0, self._speed, 2)
        return Context(
            ledger=cast(Ledger, Port(self.ledger, "ledger", process, self.world)),
            clock=ProcessClock(process),
            ids=_Ids(random),
            background=Turns(process),
            random=random.random,
            timing=TIMING,
            liveness=self._host.of(process),
            progress=Silent(),
            status_reporter=StatusReporter(SimStatusKeys, Silent()),
            choose=lambda _, work, *, documents=0: EngineChoice("spark", "simulated", work, 0.0, 0.0, pace),
            engine=lambda _: engine,
            prepare=lambda _: None,
            retention=_RETENTION,
        )

    # What must hold.

    def _watch(self, event: Event) -> None:
        if event.error is not None:
            return
        if event.name == "parts.plan":
            self.most = max([self.most, *(len(each.slices) for each in event.args[1])])
        if event.name == "slices.complete":
            self.workers.setdefault(event.kwargs["job_id"], set()).add(event.args[1])
        if event.name == "parts.finish":
            self._complete()

    def _complete(self) -> None:
        """What a checkpoint says is complete is in the index that it names."""
        checkpoint = self.ledger.checkpoints.get(REF)
        if checkpoint is None:
            return
        table = self.target.tables.get(checkpoint.physical, {})
        for key, row in self.table.rows.items():
            there = table.get(key)
            seen = row.came < checkpoint.watermark
            if seen and not row.gone and (there is None or there.version < row.at):
                self.broken.append(f"complete up to {checkpoint.watermark}, without row {key} of {row.at}: {there}")

    def _judge(self) -> None:
        verified = self.ledger.events.verify()
        self.forgotten = verified.forgotten
        self.broken += [f"the log: {each}" for each in (*verified.differences, *verified.skipped)]
        checkpoint = self.ledger.checkpoints.get(REF)
        served = self.target.served("Issue")
        if checkpoint is None or served != checkpoint.physical:
            self.broken.append(f"{served} is served, and the checkpoint is {checkpoint}")
            return
        wanted = {key: row.value for key, row in self.table.rows.items() if not row.gone}
        found = {key: row.value for key, row in self.target.tables[served].items() if not row.deleted}
        if wanted != found:
            different = {key: (wanted.get(key), found.get(key)) for key in wanted.keys() | found.keys()}
            self.broken.append(f"source and target differ: { {k: v for k, v in different.items() if v[0] != v[1]} }")
        for job in self.ledger.jobs.newest(1_000):
            for part in job.parts:
                counts = part.counts
                if counts.read != counts.written + counts.skipped + counts.deleted + counts.failed:
                    self.broken.append(f"the counts of job {job.id} do not add up: {counts}")
