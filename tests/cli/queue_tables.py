"""Tables for a pending queue, small and the same on every engine: 1,000 items, of which every hundredth is not done."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from instep.clickhouse.location import Location
from tests.servers.postgres import running_postgres

PENDING = list(range(1000, 0, -100))

_schemas = itertools.count(1)


@dataclass(frozen=True)
class Tables:
    """`on` is what the project says of them, `extra` what else it has to."""

    on: str
    run: Callable[[str], object]
    extra: str = ""

    def project(self, folder: Path, *, more: str = "") -> None:
        (folder / "instep.yaml").write_text(
            "name: shop\n"
            "queues:\n"
            "  bills:\n"
            f"    on: {self.on}\n"
            "    key: id\n"
            "    keys: {from: 1, below: 1000000}\n"
            "    source: {table: items, event_time: at}\n"
            "    covered_by: [{table: done, where: ok = 1}, {table: also}, {table: also, where: id < 0}]\n"
            f"    settle: 1h\n{self.extra}{more}"
        )


def sqlite_tables(folder: Path) -> Tables:
    path = folder / "shop.db"

    def run(statement: str) -> object:
        with sqlite3.connect(path) as connection:
            return connection.execute(statement).fetchall()

    numbers = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)"
    for each in (
        "CREATE TABLE items (id INTEGER PRIMARY KEY, at TEXT)",
        "CREATE TABLE done (id INTEGER PRIMARY KEY, ok INTEGER)",
        "CREATE TABLE also (id INTEGER PRIMARY KEY)",
        f"{numbers} INSERT INTO items SELECT i, '2026-01-01' FROM n",
        "INSERT INTO items VALUES (3700000000000000000, '2026-01-01')",
        f"{numbers} INSERT INTO done SELECT i, i % 50 <> 0 FROM n",
        f"{numbers} INSERT INTO also SELECT i FROM n WHERE i % 100 = 50",
    ):
        run(each)
    return Tables("sqlite:///shop.db", run)


def chdb_tables(folder: Path) -> Tables:
    (folder / "store").mkdir()

    def run(statement: str) -> object:
        with Location.of(str(folder / "store")).session() as session:
            session.command(statement)
        return None

    for each in (
        "CREATE TABLE items (id UInt64, at DateTime) ENGINE = MergeTree ORDER BY at",
        "CREATE TABLE done (id UInt64, ok UInt8) ENGINE = MergeTree ORDER BY id",
        "CREATE TABLE also (id UInt64) ENGINE = MergeTree ORDER BY id",
        "INSERT INTO items SELECT number + 1, '2026-01-01 00:00:00' FROM numbers(1000)",
        "INSERT INTO items VALUES (3700000000000000000, '2026-01-01 00:00:00')",
        "INSERT INTO done SELECT number + 1, (number + 1) % 50 != 0 FROM numbers(1000)",
        "INSERT INTO also SELECT number + 1 FROM numbers(1000) WHERE (number + 1) % 100 = 50",
    ):
        run(each)
    return Tables("chdb:///store", run)


def postgres_tables(folder: Path) -> Tables:
    server, schema = running_postgres(), f"shop_{next(_schemas)}"

    def run(statement: str) -> object:
        return server.execute(f"SET search_path = {schema}; {statement}", database="postgres")

    server.execute(f"CREATE SCHEMA {schema}")
    for each in (
        "CREATE TABLE items (id bigint PRIMARY KEY, at timestamptz)",
        "CREATE TABLE done (id bigint PRIMARY KEY, ok int)",
        "CREATE TABLE also (id bigint PRIMARY KEY)",
        "INSERT INTO items SELECT i, '2026-01-01' FROM generate_series(1, 1000) i",
        "INSERT INTO items VALUES (3700000000000000000, '2026-01-01')",
        "INSERT INTO done SELECT i, (i % 50 <> 0)::int FROM generate_series(1, 1000) i",
        "INSERT INTO also SELECT i FROM generate_series(1, 1000) i WHERE i % 100 = 50",
    ):
        run(each)
    return Tables(server.url("postgres"), run, f"    schema: {schema}\n")
