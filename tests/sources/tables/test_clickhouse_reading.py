"""What ClickHouse is asked for rows, and how an answer is read: without Spark, but for what Spark is told."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, cast

import pyarrow as pa
import pytest
from urllib3.exceptions import ProtocolError

from instep.clickhouse import embedded
from instep.clickhouse.location import Location
from instep.clickhouse.server import _copied
from instep.clickhouse.session import Overflow, records
from instep.domain.columns import INT64, Column
from instep.domain.cuts import KeyRange
from instep.domain.keys import key_of
from instep.domain.refs import Scope
from instep.domain.rows import RowColumns, Selection, Window
from instep.errors import Away, Transient, UserError
from instep.sources.tables import clickhouse
from instep.sources.tables.clickhouse import ClickHouseTable
from instep.sources.tables.clickhouse_reader import BLOCK_ROWS, LEAST_BLOCK_ROWS, PAUSES, Query, QueryReader
from instep.sources.tables.table_source import Sessions
from tests.sources.tables.clickhouse_tables import ask

_no_spark: Sessions = pytest.fail

ROWS = RowColumns(key=("id",), scope="path", watermark="at", deleted="gone")
SCOPE = Scope.parse("42")
COUNT = 200_000
FIRST = Window(None, 2**50)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """With a table of three tenants of equal size, one of which is asked for: `42/`."""
    folder = str(tmp_path_factory.mktemp("chdb"))
    ask(
        folder,
        "CREATE TABLE default.builds (path String, id Int64, at DateTime64(6, 'UTC'), gone Bool, text String) "
        "ENGINE = MergeTree ORDER BY (path, id) SETTINGS index_granularity = 1024",
        "INSERT INTO default.builds SELECT ['41/', '42/', '420/'][1 + number % 3], number, toDateTime64(number, 6), 0, "
        f"repeat(toString(number), 10) FROM numbers({COUNT})",
    )
    return folder


def answer(source: ClickHouseTable, wanted: Selection, rows: RowColumns = ROWS) -> list[dict[str, Any]]:
    columns, queries = source.queries(_no_spark, rows, wanted)
    reader = QueryReader(Location.of(source.uri), columns)
    return [row for each in queries for batch in reader.read(each) for row in batch.to_pylist()]


# -- what is asked -----------------------------------------------------------------------------


@pytest.mark.parametrize("sql", [None, "SELECT path, id, at, gone, upper(text) AS text FROM source -- all"])
@pytest.mark.parametrize(
    ("cut_by", "lower", "upper"),
    [(("id",), key_of(90_000), key_of(120_000)), (("path", "id"), key_of("42/", 90_000), key_of("42/", 120_000))],
    ids=["key", "tenant and key"],
)
def test_a_range_reads_only_granules_of_its_primary_key(
    folder: str, sql: str | None, cut_by: tuple[str, ...], lower: Any, upper: Any
) -> None:
    source = ClickHouseTable(folder, "builds", sql=sql)
    wanted = Selection(SCOPE, FIRST, cut_by, (KeyRange(lower, upper),))
    _, (request,) = source.queries(_no_spark, ROWS, wanted)
    with Location.of(folder).session() as session:
        plan = records(session, f"SELECT explain FROM (EXPLAIN indexes = 1 {request.sql})", **request.values)
        done = session._query(request.sql, request.values)  # type: ignore[attr-defined]  # it says what it has read
    text = "\n".join(each["explain"] for each in plan)
    condition = next(line for line in text.splitlines() if "Condition:" in line)
    assert "path in" in condition
    assert "id in" in condition
    assert "Prewhere" in text
    assert done.rows_read() == 10_000
    # Granules at both ends, and no other tenant.
    assert 10_000 <= done.storage_rows_read() <= 10_000 + 4 * 1024


def test_values_are_never_part_of_a_statement(folder: str) -> None:
    wanted = Selection(Scope("42/'; DROP TABLE x --/"), FIRST, ("text",), (KeyRange(key_of("'); x"), None),))
    _, (request,) = ClickHouseTable(folder, "builds").queries(_no_spark, ROWS, wanted)
    assert "DROP" not in request.sql
    assert "'); x" not in request.sql
    assert {"42/'; DROP TABLE x --/", "'); x"} <= set(request.values.values())
    assert answer(ClickHouseTable(folder, "builds"), wanted) == []


def test_all_rows_of_a_large_table_come_in_parts(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clickhouse, "_PARTITION_ROWS", 20_000)
    source = ClickHouseTable(folder, "builds")
    for ranges in ((), (KeyRange(),)):
        wanted = Selection(SCOPE, FIRST, ("id",), ranges)
        columns, queries = source.queries(_no_spark, ROWS, wanted)
        assert len(queries) == 4
        parts = [
            sum(batch.num_rows for batch in QueryReader(Location.of(folder), columns).read(each)) for each in queries
        ]
        assert sum(parts) == len(range(1, COUNT, 3))
        assert max(parts) < 20_000
    later = Selection(SCOPE, Window(0, 2**50))
    assert len(source.queries(_no_spark, ROWS, later)[1]) == 1


def test_neighbouring_ranges_share_a_part(folder: str) -> None:
    bounds = [None, *(key_of(number) for number in range(1000, 60_000, 1000)), None]
    ranges = tuple(KeyRange(lower, upper) for lower, upper in pairwise(bounds))
    wanted = Selection(SCOPE, None, ("id",), ranges)
    source = ClickHouseTable(folder, "builds")
    assert len(source.queries(_no_spark, ROWS, wanted)[1]) == 8
    assert sorted(row["id"] for row in answer(source, wanted)) == list(range(1, COUNT, 3))


def test_a_version_that_was_replaced_does_not_come_back(folder: str) -> None:
    ask(
        folder,
        "CREATE TABLE default.versions (id Int64, path String, at DateTime64(6, 'UTC'), gone Bool) "
        "ENGINE = ReplacingMergeTree(at) ORDER BY id",
        "SYSTEM STOP MERGES default.versions",
        "INSERT INTO default.versions SELECT number, '42/', toDateTime64(1, 6), 0 FROM numbers(3)",
        "INSERT INTO default.versions SELECT 1, '42/', toDateTime64(2, 6), 1",
    )
    source = ClickHouseTable(folder, "versions")
    whole = Selection(window=FIRST)
    assert sorted(row["id"] for row in answer(source, whole)) == [0, 2]
    by_query = ClickHouseTable(folder, "versions", sql="SELECT * FROM source WHERE id < 2")
    assert [row["id"] for row in answer(by_query, whole)] == [0]
    later = answer(source, Selection(window=Window(1_000_000, 2**50)))
    assert [(row["id"], row["gone"]) for row in later] == [(1, True)]


def test_the_state_of_a_table(folder: str) -> None:
    made = "CREATE OR REPLACE TABLE default.stated (id Int64) ENGINE = MergeTree ORDER BY id"
    source, fill = ClickHouseTable(folder, "stated"), "INSERT INTO default.stated SELECT number FROM numbers({})"
    seen = []
    steps = [
        made,
        fill.format(3),
        fill.format(3),
        "ALTER TABLE default.stated DELETE WHERE id = 1 SETTINGS mutations_sync = 2",
    ]
    for step in [*steps, made, fill.format(4)]:
        ask(folder, step)
        seen.append(source.state())
        assert seen[-1] is not None
        assert source.state() == seen[-1]
    # An empty table is the same one, whatever was in it.
    assert len(set(seen)) == len(seen) - 1
    assert ClickHouseTable(folder, "stated", sql="SELECT * FROM source").state() is None
    ask(folder, "CREATE TABLE default.volatile (id Int64) ENGINE = Memory")
    assert ClickHouseTable(folder, "volatile").state() is None


def test_a_folder_made_with_chdb_is_read(tmp_path: Path) -> None:
    from chdb.state.sqlitelike import connect

    embedded._end()
    with contextlib.closing(connect(str(tmp_path))) as connection:
        connection.query("CREATE DATABASE ours")
        connection.query("CREATE TABLE ours.t ENGINE = MergeTree ORDER BY id AS SELECT toInt64(7) AS id")
    source = ClickHouseTable(f"file://{tmp_path}", "ours.t")
    assert answer(source, Selection(), RowColumns(("id",))) == [{"id": 7}]


# -- how it is read ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Shaky:
    """A place whose answers need small blocks, or break so many times."""

    fits: int = BLOCK_ROWS
    breaks: list[Exception] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)

    @contextlib.contextmanager
    def session(self) -> Iterator[Shaky]:
        yield self

    def spool(self, sql: str, file: IO[bytes], *, block_rows: int) -> None:
        self.asked.append(block_rows)
        batch = pa.record_batch({"id": pa.array([len(self.asked)], pa.int64())})
        with pa.ipc.new_stream(cast(io.IOBase, file), batch.schema) as writer:
            # The first attempts get further than those after them.
            for _ in range(max(1, 5 - len(self.asked))):
                writer.write_batch(batch)
            if block_rows > self.fits:
                raise Overflow("too large")
            if self.breaks:
                raise self.breaks.pop()


def read(place: Shaky) -> list[Any]:
    reader = QueryReader(cast(Location, place), (Column("id", INT64),))
    return [row for batch in reader.read(Query("SELECT", {})) for row in batch.column(0).to_pylist()]


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Those of this module alone: a thread of another test may sleep, too."""
    slept: list[float] = []
    monkeypatch.setattr("instep.sources.tables.clickhouse_reader.time", SimpleNamespace(sleep=slept.append))
    return slept


def test_blocks_are_halved_until_they_fit(pauses: list[float]) -> None:
    place = Shaky(fits=30_000)
    assert read(place) == [3, 3]
    assert place.asked == [100_000, 50_000, 25_000]
    small = Shaky(fits=LEAST_BLOCK_ROWS)
    assert len(read(small)) == 1
    assert small.asked[-1] == LEAST_BLOCK_ROWS
    with pytest.raises(Overflow):
        read(Shaky(fits=LEAST_BLOCK_ROWS - 1))
    assert pauses == []


@pytest.mark.parametrize("error", [Transient("once more"), Away("gone for a moment")])
def test_a_transient_error_is_retried_and_no_row_comes_twice(error: Exception, pauses: list[float]) -> None:
    assert read(Shaky(breaks=[error] * 3)) == [4]
    assert pauses == list(PAUSES)
    lasting = Shaky(breaks=[error] * 4)
    with pytest.raises(type(error)):
        read(lasting)
    assert len(lasting.asked) == 4


def test_an_error_of_the_user_is_not_retried(pauses: list[float]) -> None:
    place = Shaky(breaks=[UserError("no such table")])
    with pytest.raises(UserError):
        read(place)
    assert len(place.asked) == 1


def stream(rows: int) -> bytes:
    sink = pa.BufferOutputStream()
    batch = pa.record_batch({"id": pa.array(range(rows), pa.int64())})
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


class Broken(io.BytesIO):
    """A connection that ends in the middle."""

    def read(self, size: int | None = -1) -> bytes:
        if piece := super().read(size):
            return piece
        raise ProtocolError("InvalidChunkLength")


def test_an_answer_that_a_server_broke_off_is_no_answer() -> None:
    good = stream(1000)
    copy = io.BytesIO()
    assert _copied(io.BytesIO(good), copy) is None
    assert copy.getvalue() == good
    said = b"Code: 241. DB::Exception: Memory limit exceeded. (MEMORY_LIMIT_EXCEEDED)"
    for answered in (io.BytesIO(good[:-300] + said), Broken(good[:-300] + b"\r\n__exception__\r\n" + said)):
        assert (_copied(answered, io.BytesIO()) or "").startswith("Code: 241.")
    assert _copied(Broken(good), io.BytesIO()) == "InvalidChunkLength"
    assert _copied(io.BytesIO(good[:-1]), io.BytesIO()) == "the answer was broken off"
    assert _copied(io.BytesIO(b""), io.BytesIO()) is not None


def test_a_password_is_not_shown() -> None:
    source = ClickHouseTable("http://anna:open-sesame@127.0.0.1:9/db", "t")
    with pytest.raises(Away) as raised:
        source.columns(_no_spark)
    shown = (
        f"{source!r} {source.text} {QueryReader(Location.of(source.uri), ())!r} {raised.value} {raised.value.__cause__}"
    )
    assert "127.0.0.1:9/db" in shown
    assert "sesame" not in shown
