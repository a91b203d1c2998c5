"""A pending queue in PostgreSQL beside the anti-join that it replaces.

    python -m bench.queue_postgres [--rows 5000000]

Matches of twelve players each; a thousandth of them is covered by neither table. Costs of writing are CPU time of the
server's process, in alternation: the same COPY with live capture, without, and with triggers that do nothing.
"""

from __future__ import annotations

import argparse
import io
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import psutil
import psycopg

from bench.servers import DurablePostgres
from instep.domain.pending_queue import KeyRange, QueueCover, QueueSource, QueueSpec
from instep.queues.engines.postgres import PostgresPending
from instep.queues.engines.queue_engine import Ask
from instep.queues.key_ranges import Parts, key_ranges
from instep.system import SystemClock

PLAYERS = 12
#: One match in so many is pending.
PENDING = 1000
FIRST = 31_247_321
SPEC = QueueSpec(
    "salts",
    "match_id",
    QueueSource("history", "match_mode IN ('Ranked', 'Unranked')", "start_time"),
    (QueueCover("salts", None, None), QueueCover("players", None, None)),
    KeyRange(FIRST - 1, 2**32 - 1),
    timedelta(0),
    newest_first=True,
    participants=None,
)
#: Columns of numbers, so that rows are as wide as those of the plan.
WIDTH = 16
_NUMBERS = ", ".join(f"n{number} integer" for number in range(WIDTH))
_TABLES = f"""
CREATE TABLE history (account_id bigint, match_id bigint, match_mode text, start_time timestamp, {_NUMBERS});
CREATE TABLE players (match_id bigint, account_id bigint, hero text, {_NUMBERS});
CREATE TABLE salts (match_id bigint PRIMARY KEY, salt integer, created_at timestamp);
"""
_INDEXES = """
ALTER TABLE history ADD PRIMARY KEY (account_id, match_id);
CREATE INDEX ON history (match_id);
ALTER TABLE players ADD PRIMARY KEY (match_id, account_id);
"""
TABLES = ("history", "players")
#: How rows are written: see `_captured`.
WAYS = ("plain", "nothing", "captured")
#: What PostgreSQL itself needs to hand rows to a trigger.
_NOTHING = "CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';" + "".join(
    f"CREATE TRIGGER nothing AFTER INSERT ON {table} REFERENCING NEW TABLE AS fresh"
    " FOR EACH STATEMENT EXECUTE FUNCTION nothing();"
    for table in TABLES
)
_ROW = ", ".join(f"(m * {number + 3} % 1000)::integer" for number in range(WIDTH))


@dataclass(frozen=True, slots=True)
class Result:
    what: str
    value: float
    unit: str
    goal: str = ""


def measure(rows: int) -> Iterator[Result]:
    """`rows` of the source, as many of the table that covers most."""
    server = DurablePostgres()
    try:
        server.start()
        url = server.create("queue")
        store = PostgresPending(url, "public", SPEC)
        with psycopg.connect(url, autocommit=True) as connection:
            newest = FIRST + rows // PLAYERS
            _fill(connection, newest)
            store.create()
            yield from _backfill(store)
            yield from _reading(store, "next 100", "p99 under 50 ms")
            yield from _anti_join(store)
            newest = _all_newest_done(connection, newest)
            yield from _reading(store, "next 100, 100,000 newest done", "as before")
            newest = _unsettled(connection, newest)
            yield from _reading(
                store, "next 100, 20,000 newest unsettled", "as before", settled=datetime(2026, 6, 1, tzinfo=UTC)
            )
            yield from _writing(connection, newest)
    finally:
        server.stop()


def _fill(connection: psycopg.Connection[tuple[object, ...]], below: int) -> None:
    connection.execute(_TABLES)
    matches = f"generate_series({FIRST}, {below - 1}) AS m"
    players = f"{matches}, generate_series(1, {PLAYERS}) AS p"
    connection.execute(
        f"INSERT INTO history SELECT m * 7 + p, m, CASE m % 2 WHEN 0 THEN 'Ranked' ELSE 'Unranked' END,"
        f" '2025-01-01'::timestamp + m * interval '1 second', {_ROW} FROM {players}"
    )
    covered = f"m % {PENDING} <> 0"
    connection.execute(
        f"INSERT INTO players SELECT m, m * 7 + p, 'hero', {_ROW} FROM {players} WHERE {covered} AND m % 10 <> 1"
    )
    connection.execute(f"INSERT INTO salts SELECT m, m % 1000, now() FROM {matches} WHERE {covered} AND m % 10 = 1")
    for statement in (*_INDEXES.strip().splitlines(), "VACUUM ANALYZE"):
        connection.execute(statement)


def _backfill(store: PostgresPending, keys: int = 100_000) -> Iterator[Result]:
    bounds = store.bounds()
    assert bounds is not None
    started, done = time.perf_counter(), 0
    for _, part in key_ranges(bounds, store.edge, store.backfill, Parts(keys), SystemClock()):
        done += part.keys
    seconds = time.perf_counter() - started
    compared = store.compare(SPEC.keys)
    assert (compared.missing_count, compared.surplus_count) == (0, 0)
    assert compared.pending == done // PENDING
    yield Result("backfill", done / seconds, "keys/s")
    yield Result("backfill", done * PLAYERS / seconds, "rows of the source/s")


def _reading(store: PostgresPending, what: str, goal: str, *, settled: datetime | None = None) -> Iterator[Result]:
    ask = Ask(100, settled)
    assert len(store.read(ask)) == 100
    seconds = sorted(_timed(lambda: store.read(ask)) for _ in range(300))
    yield Result(f"{what}: p50", 1000 * statistics.median(seconds), "ms")
    yield Result(f"{what}: p99", 1000 * seconds[int(len(seconds) * 0.99)], "ms", goal)


def _anti_join(store: PostgresPending) -> Iterator[Result]:
    assert [offer.key for offer in store.read(Ask(100))] == store.anti_join(Ask(100))
    slow = statistics.median(_timed(lambda: store.anti_join(Ask(100))) for _ in range(3))
    quick = statistics.median(_timed(lambda: store.read(Ask(100))) for _ in range(30))
    yield Result("anti-join, next 100", 1000 * slow, "ms")
    yield Result("anti-join / queue", slow / quick, "x", "at least 100")


def _all_newest_done(connection: psycopg.Connection[tuple[object, ...]], newest: int, matches: int = 100_000) -> int:
    """Live, ten thousand at a time: each is offered, and then covered."""
    for first in range(newest, newest + matches, 10_000):
        for table in ("history", "players"):
            _copy(connection, table, _rows(table, first, 10_000))
    return newest + matches


def _unsettled(connection: psycopg.Connection[tuple[object, ...]], newest: int, matches: int = 20_000) -> int:
    """Two hours of matches."""
    _copy(connection, "history", _rows("history", newest, matches).replace("2026-01-01", "2027-01-01"))
    return newest + matches


def _writing(connection: psycopg.Connection[tuple[object, ...]], newest: int, pairs: int = 6) -> Iterator[Result]:
    (backend,) = connection.execute("SELECT pg_backend_pid()").fetchone() or (0,)
    process = psutil.Process(int(str(backend)))
    connection.execute(_NOTHING)
    for matches in (10_000, 100):
        spent: dict[tuple[str, str], float] = {}
        for number in range(pairs):
            # Back and forth: the next side writes out what the one before has left in memory.
            for way in WAYS if number % 2 == 0 else WAYS[::-1]:
                with _captured(connection, way):
                    for table in TABLES:
                        blocks = [_rows(table, newest + some, matches) for some in range(0, 10_000, matches)]
                        before = process.cpu_times()
                        for block in blocks:
                            _copy(connection, table, block)
                        after = process.cpu_times()
                        used = after.user + after.system - before.user - before.system
                        spent[table, way] = spent.get((table, way), 0.0) + used
                newest += 10_000
        for tables in (*((table,) for table in TABLES), TABLES):
            what = f"COPY of {matches * PLAYERS:,} rows into {' and '.join(tables)}"
            plain, nothing, captured = (sum(spent[table, way] for table in tables) for way in WAYS)
            yield Result(what, captured / plain, "x of plain", "under 1.3")
            yield Result("  with triggers that do nothing", nothing / plain, "x of plain")


@contextmanager
def _captured(connection: psycopg.Connection[tuple[object, ...]], way: str) -> Iterator[None]:
    """Not at all, by triggers that are given the rows and do nothing, or live."""
    others = {"plain": "USER", "nothing": "USER", "captured": "nothing"}[way]
    for table in TABLES:
        connection.execute(f"ALTER TABLE {table} DISABLE TRIGGER {others}")
        if way == "nothing":
            connection.execute(f"ALTER TABLE {table} ENABLE TRIGGER nothing")
    yield
    for table in TABLES:
        connection.execute(f"ALTER TABLE {table} ENABLE TRIGGER USER")


def _rows(table: str, first: int, matches: int) -> str:
    text = io.StringIO()
    for match in range(first, first + matches):
        for player in range(PLAYERS):
            numbers = "\t".join(str(match * (number + 3) % 1000) for number in range(WIDTH))
            account = match * 7 + player
            if table == "history":
                text.write(f"{account}\t{match}\tRanked\t2026-01-01 00:00:00\t{numbers}\n")
            else:
                text.write(f"{match}\t{account}\thero\t{numbers}\n")
    return text.getvalue()


def _copy(connection: psycopg.Connection[tuple[object, ...]], table: str, rows: str) -> None:
    with connection.cursor().copy(f"COPY {table} FROM STDIN") as copy:
        copy.write(rows)


def _timed(call: Callable[[], object]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    for result in measure(parser.parse_args().rows):
        print(f"{result.what:45} {result.value:14,.2f} {result.unit:22} {result.goal}", flush=True)


if __name__ == "__main__":
    main()
