"""Matches in ClickHouse (chdb): a wide history with several rows a match, and two tables that cover it."""

from __future__ import annotations

import contextlib
import itertools
import math
import resource
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from instep.clickhouse.location import Location
from instep.clickhouse.session import records
from instep.domain.pending_queue import KeyRange, QueueCover, QueueSource, QueueSpec
from instep.queues.engines.clickhouse import reading
from instep.queues.engines.clickhouse.store import ClickHousePending
from instep.queues.engines.clickhouse.tables import Tables
from instep.queues.engines.queue_engine import Ask, PendingStore

#: The first match, when it began, and what is out of the range of keys.
FIRST, BEGAN, GARBAGE = 31_247_321, 1_700_000_000, 4_294_967_295
#: One match of so many is pending.
PENDING = 1_000
#: Rows are counted over so many reads.
_COUNTED = 20
#: No read may take more.
MEMORY = 50_000_000

_HISTORY = """match_id UInt64 CODEC(Delta, ZSTD), account_id UInt32, start_time DateTime CODEC(Delta, ZSTD),
match_mode LowCardinality(String), game_mode LowCardinality(String), hero_id UInt8, hero_level UInt8, player_team UInt8,
kills UInt8, deaths UInt8, assists UInt8, denies UInt8, net_worth UInt32, last_hits UInt16, match_duration_s UInt16,
match_result UInt8, abandoned_time_s UInt32, team_abandoned UInt8, brawl_score UInt16, source LowCardinality(String)"""
_ROW = """{first} + intDiv(number, {each}) AS match_id, cityHash64(number) % 2000000 AS account_id,
toDateTime({began} + intDiv(number, {each}) % 60000000) AS start_time,
if(cityHash64(match_id) % 10 = 0, 'Ranked', 'Unranked') AS match_mode, 'Normal', cityHash64(number, 1) % 32,
number % 36, number % 2, cityHash64(number, 2) % 20, cityHash64(number, 3) % 20, cityHash64(number, 4) % 30,
number % 25, cityHash64(number, 5) % 60000, cityHash64(number, 6) % 400, 1200 + cityHash64(match_id) % 1800,
number % 2, 0, 0, cityHash64(number, 7) % 1000, 'steam'"""
#: A player's row also has what was bought and how it went: short arrays, as there.
_DETAILS = (
    "items Array(UInt32), items_at Array(UInt16), souls Array(UInt32), damage Array(UInt32), healing Array(UInt32)"
)
_DETAILS_ROW = """arrayMap(each -> toUInt32(cityHash64(match_id, account_id, each) % 400), range(14)),
arrayMap(each -> toUInt16(each * 120 + cityHash64(account_id, each) % 60), range(14)),
arrayMap(each -> toUInt32(each * 4000 + cityHash64(account_id, match_id, each) % 3000), range(8)),
arrayMap(each -> toUInt32(each * 3000 + cityHash64(match_id, each) % 5000), range(8)),
arrayMap(each -> toUInt32(each * 500 + cityHash64(account_id, each) % 900), range(8))"""
_TABLES = {
    "history": f"({_HISTORY}) ENGINE = MergeTree ORDER BY (account_id, match_id)",
    "players": f"({_HISTORY}, {_DETAILS}) ENGINE = MergeTree ORDER BY (match_id, account_id)",
    "salts": "(match_id UInt64, cluster_id UInt16, metadata_salt UInt32, replay_salt UInt32, created_at DateTime,"
    " username LowCardinality(String)) ENGINE = ReplacingMergeTree ORDER BY match_id",
}
_SALTS = (
    "match_id, cityHash64(match_id) % 500, cityHash64(match_id, 1), cityHash64(match_id, 2), start_time, 'somebody'"
)


@dataclass
class Reads:
    """Seconds of each, and the rows that one read. `seconds`: the next 100, again and again; `least`: `SELECT 1`, just
    before; `first`: from anywhere in the queue, by a reader that saw none of it before; `bare`: of the same keys by
    statements written by hand.
    """

    seconds: list[float] = field(default_factory=list)
    least: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    bare: list[float] = field(default_factory=list)
    rows: int = 0

    @property
    def p50(self) -> float:
        return statistics.median(self.seconds)

    @property
    def p99(self) -> float:
        return p99(self.seconds)

    @property
    def first_p50(self) -> float:
        return statistics.median(self.first or [math.nan])

    @property
    def first_p99(self) -> float:
        return p99(self.first or [math.nan])

    @property
    def bare_p50(self) -> float:
        return statistics.median(self.bare or [math.nan])

    def told(self) -> list[str]:
        """Medians and 99th percentiles, in milliseconds."""
        each = self.seconds, self.least, self.first, self.bare
        return [f"{1e3 * of(some):.1f}" for some in each for of in (statistics.median, p99) if some]


def p99(seconds: list[float]) -> float:
    return sorted(seconds)[max(0, -(-len(seconds) * 99 // 100) - 1)]


def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


class Matches:
    """`rows` of history before there is a queue."""

    name = "chdb"

    def __init__(self, folder: Path, rows: int, each: int) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.folder, self.rows, self.each = folder, rows, each
        covers = QueueCover("salts", None, None), QueueCover("players", None, None)
        source = QueueSource("history", "match_mode IN ('Ranked', 'Unranked')", "start_time")
        keys = KeyRange(FIRST - 1, GARBAGE - 1)
        self.spec = QueueSpec("bench", "match_id", source, covers, keys, timedelta(hours=2), True, None)
        self.place = Location.of(str(folder))

    def open(self) -> PendingStore:
        return ClickHousePending(str(self.folder), self.spec)

    def run(self, *statements: str) -> None:
        with self.place.session() as session:
            for each in statements:
                session.command(each)

    def asked(self, sql: str) -> int:
        with self.place.session() as session:
            (row,) = records(session, sql)
        return int(row["value"] or 0)

    def fill(self, batch: int) -> None:
        """The history as it was; merged, as it would be by now."""
        for name, columns in _TABLES.items():
            self.run(f"CREATE TABLE {name} {columns}", f"CREATE TABLE plain_{name} {columns}")
        for start in range(0, self.rows, batch):
            self.stage(start, min(batch, self.rows - start))
            self.insert("")
        for name in _TABLES:
            self.run(f"OPTIMIZE TABLE {name} FINAL")

    def stage(self, start: int, rows: int) -> None:
        """The next rows, in memory, so that making them costs nothing of what is measured."""
        row = _ROW.format(first=FIRST, each=self.each, began=BEGAN)
        done = f"match_id % {PENDING} != 0"
        self.run("DROP TABLE IF EXISTS staged_history SYNC", "DROP TABLE IF EXISTS staged_players SYNC")
        self.run("DROP TABLE IF EXISTS staged_salts SYNC")
        self.run(
            f"CREATE TABLE staged_history ({_HISTORY.replace(' CODEC(Delta, ZSTD)', '')}) ENGINE = Memory",
            f"INSERT INTO staged_history SELECT {row} FROM numbers({start}, {rows})",
            f"CREATE TABLE staged_players ENGINE = Memory AS SELECT *, {_DETAILS_ROW} FROM staged_history WHERE {done}",
            f"CREATE TABLE staged_salts ENGINE = Memory AS SELECT DISTINCT {_SALTS} FROM staged_history"
            f" WHERE {done} AND match_id % 5 != 0",
        )

    def insert(self, prefix: str) -> None:
        self.run(*(f"INSERT INTO {prefix}{name} SELECT * FROM staged_{name}" for name in _TABLES))

    def cover_newest(self, but: int) -> None:
        """All that is pending, but the oldest."""
        pending = f"SELECT DISTINCT match_id, start_time FROM history WHERE match_id % {PENDING} = 0"
        self.run(
            f"INSERT INTO salts SELECT {_SALTS} FROM ({pending}) ORDER BY match_id DESC LIMIT"
            f" greatest(0, toInt64((SELECT uniqExact(match_id) FROM ({pending}))) - {but}, 0)"
        )

    def ask(self) -> Ask:
        return Ask(100, settled=datetime.now(UTC) - self.spec.settle)

    def reads(self, store: PendingStore, times: int) -> Reads:
        """Each under the limit of memory: one that took more would fail."""
        self._wait()
        done, ask = Reads(), self.ask()
        # From anywhere in the queue, so that nothing is remembered of the keys that were read just before.
        offered = [offer.key for offer in store.read(replace(ask, limit=5_000))]
        starts = offered[:-100]
        with _limited(), self._by_hand() as bare:
            for _ in range(5):
                store.read(ask), bare("SELECT 1")
            done.least = [bare("SELECT 1") for _ in range(times)]
            done.seconds = [_seconds(store, ask) for _ in range(times)]
            for number in range(times):
                at = number * 7919 % len(starts) if starts else None
                done.first.append(_seconds(self.open(), ask if at is None else replace(ask, after=starts[at])))
                # After it and of the same keys, so that it makes nothing easier for a read.
                if at is not None:
                    done.bare.append(bare(*self._statements(offered[at : at + 101])))
            before = self._rows_read()
            for number in range(_COUNTED):
                self.open().read(replace(ask, after=starts[number * 7919 % len(starts)]) if starts else ask)
            done.rows = (self._rows_read() - before) // _COUNTED
        return done

    def _statements(self, keys: list[int]) -> tuple[str, str]:
        """As little as tells the next 100 behind the first of these keys, in order, and confirms them."""
        tables = Tables(self.spec)
        page = reading.page_sql(tables, Ask(100, after=keys[0]), reading.FIRST_ROWS)
        return page, reading.touched_sql(tables, f"block BETWEEN {keys[-1] >> 6} AND {keys[1] >> 6}")

    @contextlib.contextmanager
    def _by_hand(self) -> Iterator[Callable[..., float]]:
        """What chdb itself takes for statements with everything written out, and the answers left as they came."""
        from chdb.state.sqlitelike import connect

        def bare(*statements: str) -> float:
            began = time.perf_counter()
            for sql in statements:
                connection.query(sql, "ArrowStream").bytes()
            return time.perf_counter() - began

        with self.place.session(), contextlib.closing(connect(str(self.folder / "clickhouse"))) as connection:
            for name, value in {**reading.SETTINGS, **reading.IN_PROCESS}.items():
                connection.query(f"SET {name} = {value!r}")
            yield bare

    def anti_joins(self, store: PendingStore, times: int) -> Reads:
        done = Reads()
        for _ in range(times):
            began = time.perf_counter()
            store.anti_join(self.ask())
            done.seconds.append(time.perf_counter() - began)
        return done

    def bytes(self, like: str) -> int:
        return self.asked(f"SELECT sum(bytes_on_disk) AS value FROM system.parts WHERE active AND table LIKE '{like}'")

    def _wait(self) -> None:
        """Wait until the tables are merged, which takes both cores from readers, and done entries are dropped."""
        under_way = "(SELECT count() FROM system.merges) + (SELECT count() FROM system.mutations WHERE NOT is_done)"
        while self.asked(f"SELECT {under_way} AS value"):
            time.sleep(0.1)

    def _rows_read(self) -> int:
        return self.asked("SELECT value FROM system.events WHERE event = 'SelectedRows'")


def _seconds(store: PendingStore, ask: Ask) -> float:
    began = time.perf_counter()
    store.read(ask)
    return time.perf_counter() - began


@contextlib.contextmanager
def _limited() -> Iterator[None]:
    reading.SETTINGS["max_memory_usage"] = MEMORY
    try:
        yield
    finally:
        del reading.SETTINGS["max_memory_usage"]


def batches(start: int, rows: int, batch: int) -> Iterator[tuple[int, int]]:
    return ((at, batch) for at in itertools.islice(itertools.count(start, batch), rows // batch))
