"""Whether a database has anything new, without Java."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import psycopg
import pyarrow as pa
import pytest

from instep.domain.refs import GLOBAL, Scope
from instep.domain.rows import RowColumns, Selection, Window
from instep.entities.tables.margins import Margins
from instep.errors import UserError
from instep.sources.tables import database_probe
from instep.sources.tables.spark_tables import SparkTable
from tests.contracts.table_source import NOW, check_looks
from tests.contracts.table_source_rows import ROWS, START, micros, some_rows, table_of
from tests.servers.jars import jar
from tests.servers.mariadb import running_mariadb
from tests.servers.postgres import PostgresServer, running_postgres
from tests.sources.tables.databases import options, put, put_in_mariadb
from tests.sources.tables.sessions import session

MOMENT = 1711852200_000001


class Needed(Exception):
    """Spark is."""


def spark() -> NoReturn:
    raise Needed


@pytest.fixture(scope="module")
def server() -> PostgresServer:
    return running_postgres()


@pytest.fixture
def table(server: PostgresServer) -> SparkTable:
    put(server, "asked % first", table_of(some_rows()))
    return SparkTable("jdbc", table='"asked % first"', options=options(server))


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["text", "char(24)"])
def test_the_answer_is_that_of_spark(server: PostgresServer, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However text is stored there; and it needs no session where the database can compare it."""
    jar("postgresql").needed()
    rows = some_rows()
    put(server, "asked_twice", table_of(rows), text=kind)
    source = SparkTable("jdbc", table="asked_twice", options=options(server))
    latest = max(micros(row["updated"]) for row in rows if row["updated"] and (row["path"] or "").startswith("42/"))
    scope, others = Scope("42/"), (Scope("42/"), Scope("43/"))
    asked = [(latest - 1, None), (latest, None), (0, others)]
    sessions = session if kind != "text" else spark
    quick = [source.changed(sessions, ROWS, scope, *each) for each in asked]
    monkeypatch.setattr(database_probe, "changed", lambda *_: None)
    assert quick == [source.changed(session, ROWS, scope, *each) for each in asked] == [True, False, True]


@pytest.mark.parametrize("stored", [pa.timestamp("us"), pa.timestamp("us", "UTC")], ids=str)
@pytest.mark.parametrize("zone", ["Asia/Kolkata", "UTC"])
def test_a_moment_is_the_same_in_every_zone(
    server: PostgresServer, stored: pa.DataType, zone: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", zone)
    put(server, "moments", pa.table({"id": [1, 2], "at": pa.array([0, MOMENT], stored)}))
    source = SparkTable("jdbc", table="moments", options=options(server))
    rows = RowColumns(("id",), watermark="at")
    assert [source.changed(spark, rows, GLOBAL, MOMENT - each) for each in (1, 0)] == [True, False]


@pytest.mark.parametrize("column", ["at", "wall"])
def test_mariadb_answers_too(column: str) -> None:
    given = put_in_mariadb(running_mariadb(), "asked", ["42/a", "42/b", "é/c"], "utf8mb4_general_ci")
    source = SparkTable("jdbc", table="asked", options=given)
    latest = MOMENT + (2_000_000 if column == "at" else 0)
    everywhere, scoped = RowColumns(("id",), watermark=column), RowColumns(("id",), scope="name", watermark=column)
    assert [source.changed(spark, everywhere, GLOBAL, latest - each) for each in (1, 0)] == [True, False]
    found = {path: source.changed(spark, scoped, Scope(path), 0) for path in ("42/", "4/", "é/", "e/", "É/")}
    assert found == {"42/": True, "4/": False, "é/": True, "e/": False, "É/": False}
    assert not source.changed(spark, scoped, Scope("42/"), 0, (Scope("42/"), Scope("é/")))


def test_a_query_of_the_user_is_asked_over(table: SparkTable) -> None:
    rows = replace(ROWS, scope=None)
    for sql, there in (("SELECT * FROM source WHERE id % 7 = 1;", True), ("SELECT * FROM source WHERE false", False)):
        assert replace(table, sql=sql).changed(spark, rows, GLOBAL, 0) is there


@pytest.mark.parametrize(
    "declared",
    [
        {"watermark": "id"},
        {"watermark": "nothing"},
        {"scope": "number"},
        {"key": ("lost",)},
        {"key": ("span",)},
    ],
    ids=str,
)
def test_what_spark_would_refuse_is_for_spark_to_refuse(server: PostgresServer, declared: dict[str, object]) -> None:
    put(server, "odd", table_of(some_rows(3)))
    server.execute("ALTER TABLE odd ADD span interval")
    source = SparkTable("jdbc", table="odd", options=options(server))
    with pytest.raises(Needed):
        source.changed(spark, replace(ROWS, **declared), Scope("no/"), 0)  # type: ignore[arg-type]  # as it is declared


@pytest.mark.parametrize(
    "given",
    [
        {"password": "s3cret-and-wrong"},
        {"url": "jdbc:postgresql://127.0.0.1:1/postgres"},
        {"url": "jdbc:postgresql://127.0.0.1,127.0.0.2/postgres"},
        {"url": "jdbc:sqlserver://127.0.0.1:1;databaseName=x"},
        {"url": "jdbc:mysql://127.0.0.1:1/x"},
        {"sslcert": "/some/file"},
        {"sessionInitStatement": "SET search_path = other"},
        {"preferTimestampNTZ": "false"},
        {"customSchema": "id STRING"},
        {"user": ""},
    ],
    ids=str,
)
def test_a_connection_that_only_java_can_make_is_left_to_it(
    table: SparkTable, server: PostgresServer, given: dict[str, str]
) -> None:
    with pytest.raises(Needed):
        replace(table, options={**options(server), **given}).changed(spark, ROWS, GLOBAL, 0)


def test_options_of_no_matter_and_a_schema_are_understood(table: SparkTable, server: PostgresServer) -> None:
    server.execute(
        "DROP SCHEMA IF EXISTS other CASCADE; CREATE SCHEMA other; CREATE TABLE other.t (id int, at timestamptz)"
    )
    rows = RowColumns(("id",), watermark="at")
    given = options(server)
    given["url"] += "?currentSchema=other&ApplicationName=x&sslmode=prefer&user=" + given.pop("user")
    source = SparkTable("jdbc", table="t", options={**given, "fetchsize": "7"})
    assert not source.changed(spark, rows, GLOBAL, 0)
    server.execute("INSERT INTO other.t VALUES (1, now())")
    assert source.changed(spark, rows, GLOBAL, 0)


def test_without_the_driver_spark_is_asked_and_the_extra_is_named(
    table: SparkTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert table.missing_extra is None
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.setattr(database_probe, "find_spec", lambda _: None)
    assert table.missing_extra == "postgres"
    assert replace(table, options={"url": "jdbc:mariadb://h/x"}).missing_extra == "mysql"
    assert replace(table, options={"url": "jdbc:oracle:thin:@h"}).missing_extra is None
    with pytest.raises(Needed):
        table.changed(spark, ROWS, GLOBAL, 0)


def test_an_option_that_would_cut_answers_off_is_refused_before(table: SparkTable) -> None:
    with pytest.raises(UserError, match="would return only a part of the rows"):
        replace(table, options={**table.options, "maxRows": "1", "url": "jdbc:postgresql://h/x?maxRows=1"}).changed(
            spark, ROWS, GLOBAL, 0
        )


def test_a_look_needs_no_spark(server: PostgresServer, table: SparkTable) -> None:
    def make(rows: pa.Table, name: str) -> SparkTable:
        put(server, name, rows)
        return SparkTable("jdbc", table=name, options=options(server))

    check_looks(make, table, spark, some_rows())


@pytest.mark.parametrize("column", ["wall", "at"])
def test_a_look_at_mariadb_needs_no_spark(column: str) -> None:
    """Both of its types of times, one of which depends on the session's zone."""
    server = running_mariadb()
    given = put_in_mariadb(server, "looked_at", ["a", "b", "c"], "utf8mb4_general_ci")
    server.execute("INSERT INTO sources.looked_at VALUES (9, 'none', NULL, NULL)")
    moments = "wall = '2024-03-31 02:30:00.000001', at = FROM_UNIXTIME(1711852200.000001)"
    server.execute(f"UPDATE sources.looked_at SET {moments} WHERE id < 9")
    source = SparkTable("jdbc", table="looked_at", options=given)
    rows = RowColumns(("id",), watermark=column)
    margin = Selection(window=Window(MOMENT - 1, MOMENT + 5, unmarked=True))
    look = source.look(spark, rows, margin, floor=MOMENT, target=MOMENT + 5)
    assert look[:3] == (MOMENT, 1, 4)
    found = source.marks(spark, rows, margin, 4)
    assert found is not None
    assert sorted(each[:2] for each in found) == [("0", MOMENT), ("1", MOMENT), ("2", MOMENT), ("9", None)]
    assert source.marks(spark, rows, margin, 3) is None
    server.execute("UPDATE sources.looked_at SET name = 'other' WHERE id = 9")
    after = source.look(spark, rows, margin, floor=MOMENT, target=MOMENT + 5)
    assert after[:3] == look[:3]
    assert after.digest != look.digest


def test_rows_of_a_transaction_that_was_open_during_a_run_are_seen_by_the_next(server: PostgresServer) -> None:
    """They get their watermark before others that can be seen already."""
    put(server, "commits", table_of(some_rows(20)))
    rows = RowColumns(("id",), watermark="updated")
    source = SparkTable("jdbc", table="commits", options=options(server))
    clock = SimpleNamespace(now=lambda: NOW // 1_000)
    setup = SimpleNamespace(
        source=source, spark=spark, rows=rows, ref=SimpleNamespace(scope=GLOBAL), lag=60_000, others=lambda _: None
    )
    asking = Margins(cast("Any", setup), cast("Any", clock), NOW)
    checkpoint = cast("Any", SimpleNamespace(watermark=NOW // 1_000))
    insert = "INSERT INTO commits (id, updated) VALUES (%s, %s)"
    with psycopg.connect(server.url("postgres")) as slow, psycopg.connect(server.url("postgres")) as quick:
        slow.execute(insert, [900, START + timedelta(microseconds=500)])
        quick.execute(insert, [901, START + timedelta(microseconds=700)])
        quick.commit()
        seen = asking.before_all()
        assert seen.floor == micros(START) + 700
        assert asking.next(seen, checkpoint)[0].window is None
        slow.commit()
        step, after = asking.next(seen, checkpoint)
        assert step.window == Window(micros(START) + 499, NOW)
        assert step.late is not None
        assert (step.late.rows, step.late.examples) == (1, ("900",))
        assert asking.next(after, checkpoint)[0].window is None
