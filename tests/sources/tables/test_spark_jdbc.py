"""A real PostgreSQL over JDBC."""

from __future__ import annotations

import re
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
    with pytest.raises(UserError, match=f"{setting}.*would answer in part"):
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
