"""A real PostgreSQL over JDBC."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import reduce

import pyarrow as pa
import pytest

from instep.domain.keys import key_of
from instep.domain.refs import Scope
from instep.domain.rows import RowColumns, Selection, Window
from instep.errors import UserError
from instep.pipeline.engine.sparkapi import explained
from instep.sources.tables.spark_jdbc import JdbcTable
from instep.sources.tables.spark_tables import SparkTable
from instep.sources.tables.table_source import Sessions, TableSource
from tests.contracts.table_source import Make, TableSourceContract, check_in_short
from tests.contracts.table_source_rows import ROWS, SHARP, TEXTS, cuts, micros, some_rows, table_of
from tests.servers.jars import jar
from tests.servers.mariadb import running_mariadb
from tests.servers.postgres import PostgresServer, running_postgres
from tests.sources.tables.databases import options, put, put_in_mariadb
from tests.sources.tables.sessions import session

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def server() -> PostgresServer:
    jar("postgresql").needed()
    return running_postgres()


@pytest.fixture
def sessions() -> Sessions:
    return session


def test_a_database_in_short(server: PostgresServer, sessions: Sessions) -> None:
    rows = some_rows()
    put(server, "in short", table_of(rows))
    check_in_short(SparkTable("jdbc", table='"in short"', options=options(server)), sessions, rows)


@pytest.mark.proof
class TestPostgres(TableSourceContract):
    @pytest.fixture
    def sessions(self) -> Sessions:
        return session

    @pytest.fixture
    def make(self, server: PostgresServer) -> Make:
        def made(table: pa.Table, *, name: str = "table") -> TableSource:
            put(server, f"a {name}", table)
            return SparkTable("jdbc", table=f'"a {name}"', options=options(server))

        return made


def arrived(server: PostgresServer, table: str) -> int:
    """Rows that have been read of a table since it was made, by the database's own count."""
    server.execute("SELECT pg_stat_force_next_flush()")
    found = server.execute(
        f"SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables WHERE relname = '{table}'"
    )
    return int(str(found[0][0]))


@pytest.mark.proof
@pytest.mark.parametrize("text", ["text", pytest.param("varchar(80)", marks=pytest.mark.long), "char(24)"])
def test_text_is_compared_by_its_bytes(server: PostgresServer, sessions: Sessions, text: str) -> None:
    table = pa.table({"id": list(range(len(TEXTS + SHARP))), "name": list(TEXTS + SHARP)})
    put(server, "texts", table, text=text)
    source = SparkTable("jdbc", table="texts", options=options(server))
    rows = RowColumns(("name", "id"))
    bins = source.histogram(sessions, rows, Selection(), ("name",), bins=100).bins
    if not text.startswith("char("):
        assert [each.key for each in bins] == sorted(key_of(each) for each in TEXTS + SHARP)
    found: list[int] = []
    for one in cuts([each.key for each in bins[::4]]):
        came = source.frame(sessions, rows, Selection(cut_by=("name",), ranges=(one,))).toArrow()
        assert all(one.holds(key_of(name)) for name in came.column("name").to_pylist())
        found += came.column("id").to_pylist()
    assert sorted(found) == table.column("id").to_pylist()


@pytest.mark.proof
@pytest.mark.parametrize("collation", ["utf8mb4_general_ci", "utf8mb4_uca1400_as_cs"])
def test_a_database_that_compares_text_otherwise_loses_nothing(sessions: Sessions, collation: str) -> None:
    """One takes 'a' for 'A', 'é' and 'a ', the other sorts by a language."""
    jar("mariadb").needed()
    texts = TEXTS + SHARP
    source = SparkTable("jdbc", table="texts", options=put_in_mariadb(running_mariadb(), "texts", texts, collation))
    rows = RowColumns(("name", "id"), scope="name")
    bins = source.histogram(sessions, rows, Selection(), ("name",), bins=100).bins
    assert [each.key for each in bins] == sorted(key_of(each) for each in texts)
    frames = []
    for at, one in enumerate(cuts([each.key for each in bins[::4]])):
        frame = source.frame(sessions, rows, Selection(cut_by=("name",), ranges=(one,)))
        frames.append(frame.selectExpr(f"{at} AS at", "id"))
    found = reduce(lambda some, more: some.unionAll(more), frames).toArrow()
    assert sorted(found.column("id").to_pylist()) == list(range(len(texts)))
    # Spark's own comparison would have lost some: that is what this test is about.
    pushed = re.findall(r"PushedFilters: \[(.*?)\]", explained(frames[3]))
    assert not any("*" in each for each in pushed), pushed  # With a star are those that the database decides.


def test_times_of_mariadb(sessions: Sessions) -> None:
    jar("mariadb").needed()
    given = put_in_mariadb(running_mariadb(), "times", ["a", "b", "c"], "utf8mb4_bin")
    source = SparkTable("jdbc", table="times", options=given)
    moment = 1711852200_000001
    rows = RowColumns(("id",), watermark="at")
    assert [str(each) for each in source.columns(sessions)][2:] == ["wall timestamp", "at timestamp"]
    found = source.frame(sessions, rows, Selection(window=Window(moment, moment + 1_000_000))).toArrow().to_pylist()
    assert [(row["id"], micros(row["wall"]), micros(row["at"])) for row in found] == [(1, moment, moment + 1_000_000)]
    walls = RowColumns(("id",), watermark="wall")
    for window, number in ((Window(moment - 1, moment), 3), (Window(moment, moment + 1), 0)):
        assert len(source.frame(sessions, walls, Selection(window=window)).toArrow()) == number


def test_a_server_that_cuts_answers_off_does_not_cut_off_ours(sessions: Sessions) -> None:
    jar("mariadb").needed()
    server = running_mariadb()
    given = put_in_mariadb(server, "short", ["a", "b", "c", "d"], "utf8mb4_bin")
    server.execute("SET GLOBAL sql_select_limit = 2")
    try:
        source = SparkTable("jdbc", table="short", options=given)
        assert len(source.frame(sessions, RowColumns(("id",)), Selection()).toArrow()) == 4
        assert source.histogram(sessions, RowColumns(("id",)), Selection(), ("id",), bins=10).rows == 4
    finally:
        server.execute("SET GLOBAL sql_select_limit = DEFAULT")


@pytest.mark.parametrize(
    ("given", "setting"),
    [
        ({"url": "jdbc:mysql://db/x?useSSL=true&maxRows=1000"}, "maxRows"),
        ({"url": "jdbc:mariadb://db/x?sessionVariables=sql_select_limit=7"}, "sql_select_limit"),
        ({"sessionInitStatement": "SET SQL_SELECT_LIMIT = 7"}, "SQL_SELECT_LIMIT"),
        ({"url": "jdbc:sqlserver://db", "sessionInitStatement": "set rowcount 10"}, "rowcount"),
        ({"url": "jdbc:clickhouse://db/x?skip_unavailable_shards=1"}, "skip_unavailable_shards"),
        ({"url": "jdbc:clickhouse://db/x?clickhouse_setting_read_overflow_mode=break"}, "read_overflow_mode"),
        ({"url": "jdbc:clickhouse://db/x?custom_settings=result_overflow_mode%3Dbreak"}, "result_overflow_mode"),
        ({"sql": "SELECT * FROM source SETTINGS timeout_overflow_mode = 'break'"}, "timeout_overflow_mode"),
    ],
)
def test_options_under_which_an_answer_may_lack_rows_are_refused(given: dict[str, str], setting: str) -> None:
    options = {"url": "jdbc:mysql://db/x", **given}
    with pytest.raises(UserError, match=f"{setting}.*would return only a part of the rows"):
        JdbcTable.of({name: each for name, each in options.items() if name != "sql"}, "t", given.get("sql"))


def test_each_range_is_a_partition_and_only_its_rows_arrive(server: PostgresServer, sessions: Sessions) -> None:
    put(server, "pushed", table_of(some_rows(1000)))
    server.execute("CREATE INDEX ON pushed (id)")
    server.execute("ANALYZE pushed")
    source = SparkTable("jdbc", table="pushed", options=options(server))
    ranges = cuts([key_of(100), key_of(110), key_of(120), key_of(130)])[1:4]
    frame = source.frame(sessions, ROWS, Selection(cut_by=("id",), ranges=ranges))
    before = arrived(server, "pushed")
    assert len(frame.toArrow()) == 30
    assert frame.rdd.getNumPartitions() == 3
    assert arrived(server, "pushed") - before <= 100


def test_scope_and_window_are_asked_of_the_database(server: PostgresServer, sessions: Sessions) -> None:
    put(server, "indexed", table_of(some_rows(5000)))
    server.execute("CREATE INDEX ON indexed (updated)")
    server.execute("ANALYZE indexed")
    source = SparkTable("jdbc", table="indexed", options=options(server))
    low = 1709294400123456 + 4000
    frame = source.frame(sessions, ROWS, Selection(Scope("42/"), Window(low, low + 20)))
    before = arrived(server, "indexed")
    assert 0 < len(frame.toArrow()) <= 20
    assert arrived(server, "indexed") - before <= 40


def test_a_query_runs_in_the_database(server: PostgresServer, sessions: Sessions) -> None:
    put(server, "queried", table_of(some_rows(20)))
    sql = "WITH few AS (SELECT * FROM source WHERE number < 0) SELECT id, one.n AS n FROM few, (SELECT 7 AS n) AS one;"
    source = SparkTable("jdbc", table="queried", options=options(server), sql=sql)
    assert [str(each) for each in source.columns(sessions)] == ["id int64", "n int32"]
    assert source.extremes(sessions, RowColumns(("id",)), Selection(), "n") == (key_of(7), key_of(7))


@pytest.mark.proof
def test_types_of_the_database(server: PostgresServer, sessions: Sessions) -> None:
    server.execute(
        "DROP TABLE IF EXISTS kinds; CREATE TABLE kinds "
        "(id uuid, small smallint, at timestamp, attz timestamptz, doc jsonb, tags text[]); "
        "INSERT INTO kinds SELECT gen_random_uuid(), 3, '2024-03-31 02:30:00.000001', "
        "'2024-03-31 02:30:00.000001+00', '{\"a\": 1}', ARRAY['x'] FROM generate_series(1, 50)"
    )
    source = SparkTable("jdbc", table="kinds", options=options(server))
    assert {each.name: str(each.type) for each in source.columns(sessions)} == {
        "id": "string",
        "small": "int32",
        "at": "timestamp",
        "attz": "timestamp",
        "doc": "string",
        "tags": "string",
    }
    rows = RowColumns(("id",), watermark="at")
    bins = source.histogram(sessions, rows, Selection(), ("id",), bins=100).bins
    came = [
        source.frame(sessions, rows, Selection(cut_by=("id",), ranges=(one,))).toArrow() for one in cuts([bins[20].key])
    ]
    assert [len(each) for each in came] == [20, 30]
    row = came[0].to_pylist()[0]
    assert row["at"] == row["attz"]
    assert row["tags"] == '["x"]'
    moment = 1711852200_000001
    assert source.changed(sessions, rows, Scope(), moment - 1)
    assert not source.changed(sessions, rows, Scope(), moment)


def test_a_password_is_in_no_message(server: PostgresServer, sessions: Sessions) -> None:
    wrong = {**options(server), "password": "s3cret-and-wrong"}
    wrong["url"] += "?password=hunter3&sslpassword=hunter4"
    for table in ("nothing", "select broken"):
        for given in (wrong, options(server)):
            source = SparkTable("jdbc", table=table, options=given)
            with pytest.raises(UserError) as raised:
                source.frame(sessions, ROWS, Selection())
            said = f"{raised.value}{source!r}"
            assert "127.0.0.1" in said
            assert "\n\tat " not in said
            assert not any(each in said for each in ("s3cret", "hunter"))


def test_a_driver_that_is_not_there(sessions: Sessions) -> None:
    source = SparkTable("jdbc", table="t", options={"url": "jdbc:nosuch://host/db"})
    with pytest.raises(UserError, match="no JDBC driver for nosuch://host/db") as raised:
        source.columns(sessions)
    assert "jars" in (raised.value.hint or "")
    named = SparkTable("jdbc", table="t", options={"url": "jdbc:nosuch://host/db", "driver": "com.nosuch.Driver"})
    with pytest.raises(UserError, match=r"com\.nosuch\.Driver") as raised:
        named.columns(sessions)
    assert "jars" in (raised.value.hint or "")


#: What becomes of each type of PostgreSQL: its column, a value, and our type with what arrives.
KINDS_OF_POSTGRES: dict[str, tuple[str, str, object]] = {
    "date": ("'1582-10-10'", "date", date(1582, 10, 10)),
    "timestamp": ("'1582-10-10 01:02:03.000004'", "timestamp", datetime(1582, 10, 10, 1, 2, 3, 4, UTC)),
    "timestamptz": ("'0001-01-02 01:00:00+02'", "timestamp", datetime(1, 1, 1, 23, tzinfo=UTC)),
    "numeric(12,2)": ("1.5", "decimal(12,2)", Decimal("1.50")),
    "numeric": ("0.123456789012345678", "decimal(38,18)", Decimal("0.123456789012345678")),
    "real": ("'NaN'", "float32", None),
    "bit(1)": ("B'1'", "bool", True),
    "bit varying": ("B'101'", "string", "101"),
    "uuid": ("'A0EEBC99-9c0b-4ef8-bb6d-6bb9bd380a11'", "string", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    "jsonb": ("'{\"a\":1}'", "string", '{"a": 1}'),
    "money": ("1234.5", "string", "$1,234.50"),
    "int[]": ("'{1,2,null}'", "string", "[1,2,null]"),
    "numeric[]": ("'{0.1234567890123456789012345}'", "string", "[0.1234567890123456789012345]"),
    "date[]": ("'{1582-10-10}'", "string", '["1582-10-10"]'),
    "interval[]": ("'{1 day}'", "string", '["1 day"]'),
    "bytea": (r"'\x00ff'", "bytes", b"\x00\xff"),
    "oid": ("4000000000", "decimal(20,0)", Decimal(4_000_000_000)),
}
#: The same of MariaDB.
KINDS_OF_MARIADB: dict[str, tuple[str, str, object]] = {
    "bigint unsigned": ("18446744073709551615", "decimal(20,0)", Decimal(18446744073709551615)),
    "int unsigned": ("4294967295", "int64", 4294967295),
    "tinyint": ("-5", "int32", -5),
    "tinyint(1)": ("7", "bool", True),
    "bit(1)": ("1", "bool", True),
    "date": ("'1582-10-10'", "date", date(1582, 10, 10)),
    "datetime(6)": ("'1582-10-10 01:02:03.000004'", "timestamp", datetime(1582, 10, 10, 1, 2, 3, 4, UTC)),
    "json": ("'{\"a\":1}'", "string", '{"a":1}'),
    "enum('a','b')": ("'b'", "string", "b"),
    "set('a','b')": ("'a,b'", "string", "a,b"),
    "decimal(38,10)": ("1.5", "decimal(38,10)", Decimal("1.5000000000")),
    "varbinary(8)": ("X'00ff'", "bytes", b"\x00\xff"),
}
REFUSED_OF_POSTGRES = ("interval", "time", "timetz", "bit(3)", "numeric(50,3)")
REFUSED_OF_MARIADB = ("time", "year", "bit(8)", "decimal(65,30)")
#: Values that are only seen when they are read.
ERRORS_OF_POSTGRES = {
    "date": "'infinity'",
    "timestamptz": "'-infinity'",
    "numeric": "0.1234567890123456789",
    "numeric(38,18)": "'NaN'",
}


def kinds(execute: Callable[[str], object], table: str, wanted: Mapping[str, tuple[str, str, object]]) -> None:
    columns = ", ".join(f"c{at} {kind}" for at, kind in enumerate(wanted))
    execute(f"DROP TABLE IF EXISTS {table}")
    execute(f"CREATE TABLE {table} (id bigint, {columns})")
    execute(f"INSERT INTO {table} VALUES (1, {', '.join(given for given, _, _ in wanted.values())})")
    execute(f"INSERT INTO {table} (id) VALUES (2)")


def arrives(source: SparkTable, sessions: Sessions, wanted: Mapping[str, tuple[str, str, object]]) -> None:
    """Each value as it is, and null as null."""
    found = {kind: str(each.type) for kind, each in zip(wanted, source.columns(sessions)[1:], strict=True)}
    assert found == {kind: ours for kind, (_, ours, _) in wanted.items()}
    given, nulls = source.frame(sessions, RowColumns(("id",)), Selection()).toArrow().sort_by("id").to_pylist()
    came = dict(zip(wanted, list(given.values())[1:], strict=True))
    assert {kind: came[kind] for kind in wanted if came[kind] == came[kind]} == {
        kind: value for kind, (_, _, value) in wanted.items() if value is not None
    }
    assert set(list(nulls.values())[1:]) == {None}


def test_every_type_of_postgresql_comes_exactly(server: PostgresServer, sessions: Sessions) -> None:
    kinds(server.execute, "kinds_of_all", KINDS_OF_POSTGRES)
    source = SparkTable("jdbc", table="kinds_of_all", options=options(server))
    arrives(source, sessions, KINDS_OF_POSTGRES)


def test_every_type_of_mariadb_comes_exactly(sessions: Sessions) -> None:
    jar("mariadb").needed()
    server = running_mariadb()
    given = put_in_mariadb(server, "other", ["a"], "utf8mb4_bin")
    kinds(server.execute, "sources.kinds_of_all", KINDS_OF_MARIADB)
    arrives(SparkTable("jdbc", table="kinds_of_all", options=given), sessions, KINDS_OF_MARIADB)


def test_types_that_would_not_come_exactly_are_refused_by_name(server: PostgresServer, sessions: Sessions) -> None:
    jar("mariadb").needed()
    mariadb = running_mariadb()
    given = put_in_mariadb(mariadb, "other", ["a"], "utf8mb4_bin")
    for execute, prefix, refused, how in (
        (server.execute, "", REFUSED_OF_POSTGRES, options(server)),
        (mariadb.execute, "sources.", REFUSED_OF_MARIADB, given),
    ):
        for at, kind in enumerate(refused):
            execute(f"DROP TABLE IF EXISTS {prefix}refused_{at}")
            execute(f"CREATE TABLE {prefix}refused_{at} (id bigint, odd {kind})")
            with pytest.raises(UserError, match=r"column 'odd' has the type (\w+)") as raised:
                SparkTable("jdbc", table=f"refused_{at}", options=how).columns(sessions)
            assert "CAST(" in (raised.value.hint or ""), kind


def test_a_value_that_does_not_fit_is_an_error_that_names_the_column(
    server: PostgresServer, sessions: Sessions
) -> None:
    for at, (kind, value) in enumerate(ERRORS_OF_POSTGRES.items()):
        server.execute(f"DROP TABLE IF EXISTS odd_{at}; CREATE TABLE odd_{at} (id bigint, odd {kind})")
        server.execute(f"INSERT INTO odd_{at} VALUES (1, {value})")
        source = SparkTable("jdbc", table=f"odd_{at}", options=options(server))
        with pytest.raises(Exception, match="column odd has"):
            source.frame(sessions, RowColumns(("id",)), Selection()).collect()
    jar("mariadb").needed()
    mariadb = running_mariadb()
    given = put_in_mariadb(mariadb, "other", ["a"], "utf8mb4_bin")
    mariadb.execute("DROP TABLE IF EXISTS sources.zero")
    mariadb.execute("CREATE TABLE sources.zero (id bigint, odd date)")
    mariadb.execute("SET STATEMENT sql_mode = '' FOR INSERT INTO sources.zero VALUES (1, '2024-00-10')")
    with pytest.raises(Exception, match="column odd has 2024-00-10"):
        SparkTable("jdbc", table="zero", options=given).frame(sessions, RowColumns(("id",)), Selection()).collect()
