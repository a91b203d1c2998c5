"""Files that Spark reads: what is known without it, what it need not read, and what is odd about them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from instep.domain.cuts import KeyRange
from instep.domain.keys import key_of
from instep.domain.refs import GLOBAL, Scope
from instep.domain.rows import RowColumns, Selection, Window
from instep.errors import UserError
from instep.pipeline.engine.sparkapi import explained
from instep.sources.tables.spark_tables import SparkTable
from tests.contracts.table_source import NOW, check_looks, check_selected
from tests.contracts.table_source_rows import COLUMNS, ROWS, START, a_row, cuts, micros, some_rows, table_of
from tests.sources.tables.sessions import session

pytestmark = pytest.mark.spark

PLAIN = RowColumns(("id",))


def no_spark() -> Any:
    raise AssertionError("Spark was asked for")


def written(folder: Path, *tables: pa.Table, row_group_size: int | None = None) -> SparkTable:
    folder.mkdir(exist_ok=True)
    for number, table in enumerate(tables):
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=row_group_size)
    return SparkTable("parquet", (str(folder),))


def rows_of(source: SparkTable, rows: RowColumns = PLAIN, selection: Selection | None = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = source.frame(session, rows, selection or Selection()).toArrow().to_pylist()
    return found


# -- Parquet without Spark ----------------------------------------------------------------------------


def test_changes_are_known_from_footers(tmp_path: Path) -> None:
    source = written(tmp_path / "t", table_of(some_rows(100)), table_of(some_rows(300)), row_group_size=50)
    assert source.columns(no_spark) == COLUMNS
    latest = micros(START) + 306
    assert source.changed(no_spark, ROWS, GLOBAL, latest - 1)
    assert not source.changed(no_spark, ROWS, GLOBAL, latest)
    assert not source.changed(no_spark, ROWS, Scope("7/"), 0)
    # Without statistics of the watermark, Spark is asked.
    pq.write_table(table_of(some_rows(9)), tmp_path / "t" / "9.parquet", write_statistics=["id"])
    with pytest.raises(AssertionError, match="Spark was asked for"):
        source.changed(no_spark, ROWS, GLOBAL, latest)
    assert source.changed(no_spark, ROWS, GLOBAL, latest - 1)
    assert not source.changed(session, ROWS, GLOBAL, latest)


def test_a_window_is_asked_for_unless_the_footers_prove_it(tmp_path: Path) -> None:
    """A filter with constants of its own is compiled in every run."""
    source = written(tmp_path / "t", table_of([a_row(1), a_row(2)]), table_of([a_row(5), a_row(6)]))

    def read(first: int, last: int) -> tuple[bool, list[int]]:
        window = Window(micros(START) + first - 1, micros(START) + last)
        frame = source.frame(session, ROWS, Selection(window=window))
        return "Filter" in explained(frame), sorted(row["id"] for row in frame.toArrow().to_pylist())

    assert read(5, 6) == read(3, 9) == (False, [5, 6])
    assert read(6, 9) == (True, [6])
    assert read(5, 5) == (True, [5])
    assert read(7, 9) == (True, [])
    more = tmp_path / "t" / "more.parquet"
    pq.write_table(table_of([a_row(7)]), more, write_statistics=["id"])
    assert read(5, 9) == (True, [5, 6, 7])
    pq.write_table(table_of([a_row(7), a_row(8, updated=None)]), more)
    assert read(5, 9) == (True, [5, 6, 7])


def test_a_file_that_is_added_is_seen_and_hidden_ones_are_not(tmp_path: Path) -> None:
    source = written(tmp_path / "t", table_of([a_row(1)]))
    before = source.state()
    for hidden in ("_SUCCESS", ".part.crc", "_temporary/0.parquet"):
        path = tmp_path / "t" / hidden
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"not Parquet")
    assert source.state() == before
    assert source.columns(no_spark) == COLUMNS
    pq.write_table(table_of([a_row(5)]), tmp_path / "t" / "more.parquet")
    assert source.state() != before
    assert source.changed(no_spark, ROWS, GLOBAL, micros(START) + 4)


def test_folders_named_by_values_have_columns_of_them(tmp_path: Path) -> None:
    for number in range(2):
        (tmp_path / "t" / f"part={number}").mkdir(parents=True)
        pq.write_table(table_of([a_row(number)]), tmp_path / "t" / f"part={number}" / "0.parquet")
    source = SparkTable("parquet", (str(tmp_path / "t"),))
    assert [str(each) for each in source.columns(session)][-1] == "part int32"
    assert not source.changed(no_spark, ROWS, GLOBAL, NOW)
    assert [row["id"] for row in rows_of(source, PLAIN, Selection(cut_by=("part",), ranges=cuts([key_of(1)])[1:]))] == [
        1
    ]


def test_columns_by_footers_are_those_of_spark(tmp_path: Path) -> None:
    table = pa.table(
        {
            "tiny": pa.array([1], pa.int8()),
            "unsigned": pa.array([2**32 - 1], pa.uint32()),
            "wall": pa.array([datetime(2024, 3, 31, 2, 30, 0, 1)], pa.timestamp("us")),
            "millis": pa.array([0], pa.timestamp("ms", "UTC")),
            "nested": pa.array([{"a": [1, None]}]),
            "list": pa.array([["x"]]),
            "text": pa.array(["x"], pa.large_string()),
            "word": pa.array(["x"]).dictionary_encode(),
            "half": pa.array([1.5], pa.float32()),
            "byte": pa.array([2**8 - 1], pa.uint8()),
            "short": pa.array([2**16 - 1], pa.uint16()),
            "long": pa.array([2**64 - 1], pa.uint64()),
            "fixed": pa.array([b"ab"], pa.binary(2)),
            "nothing": pa.nulls(1),
        }
    )
    source = written(tmp_path / "t", table)
    known = source.columns(no_spark)
    # With an option, Spark is asked.
    asked = SparkTable("parquet", source.path, options={"pathGlobFilter": "*.parquet"})
    assert asked.columns(session) == known
    assert [str(each.type) for each in known] == [
        *("int32", "int64", "timestamp", "timestamp", "string", "string", "string", "string", "float32"),
        *("int32", "int32", "decimal(20,0)", "bytes", "int32"),
    ]
    (row,) = rows_of(source, RowColumns(("text",)))
    assert (row["byte"], row["short"], row["long"], row["fixed"]) == (2**8 - 1, 2**16 - 1, 2**64 - 1, b"ab")
    more = written(tmp_path / "more", table.drop_columns(["nested", "list"]), table.select(["text"]))
    assert (max(rows_of(more, RowColumns(("text",))), key=lambda row: row["byte"] or 0)) == {
        name: value for name, value in row.items() if name not in ("nested", "list")
    }
    assert (row["unsigned"], row["nested"], row["list"]) == (2**32 - 1, '{"a":[1,null]}', '["x"]')


def test_times_within_structures_keep_their_microseconds(tmp_path: Path) -> None:
    wall = datetime(2024, 3, 31, 2, 30, 0, 1)
    kind = pa.struct([("at", pa.timestamp("us", "UTC")), ("walls", pa.list_(pa.timestamp("us")))])
    odd = pa.array([{"at": wall.replace(tzinfo=UTC), "walls": [wall]}], kind)
    (row,) = rows_of(written(tmp_path / "t", pa.table({"id": [1], "odd": odd})))
    assert row["odd"] == '{"at":"2024-03-31T02:30:00.000001Z","walls":["2024-03-31T02:30:00.000001"]}'


@pytest.mark.parametrize("zone", ["UTC", "Europe/Paris"])
def test_a_time_without_a_zone_is_one_in_utc(tmp_path: Path, zone: str) -> None:
    """At this time the clocks of Paris are put forward: it is not on them."""
    wall = datetime(2024, 3, 31, 2, 30, 0, 1)
    source = written(tmp_path / "t", pa.table({"id": [1], "at": pa.array([wall], pa.timestamp("us"))}))
    rows = RowColumns(("id",), watermark="at")
    moment = 1711852200_000001
    session().conf.set("spark.sql.session.timeZone", zone)
    try:
        found = rows_of(source, rows, Selection(window=Window(moment - 1, moment)))
        assert [micros(row["at"]) for row in found] == [moment]
        assert rows_of(source, rows, Selection(window=Window(moment, moment + 1))) == []
        found = rows_of(source, rows, Selection(cut_by=("at",), ranges=cuts([key_of(found[0]["at"])])[1:]))
        assert len(found) == 1
    finally:
        session().conf.set("spark.sql.session.timeZone", "UTC")
    assert source.changed(no_spark, rows, GLOBAL, moment - 1)
    assert not source.changed(no_spark, rows, GLOBAL, moment)


def test_times_in_nanoseconds_are_read_as_pandas_writes_them(tmp_path: Path) -> None:
    """Spark would refuse them. What is below a microsecond is cut off."""
    counts = [-1, 1_711_852_200_000_001_999, None]
    columns = {
        "id": [1, 2, 3],
        "at": pa.array(counts, pa.timestamp("ns", "UTC")),
        "wall": pa.array(counts, pa.timestamp("ns")),
        "list": [["x"], [], None],
    }
    moments = [datetime(1970, 1, 1, tzinfo=UTC), datetime(2024, 3, 31, 2, 30, 0, 1, UTC), None]
    source = written(tmp_path / "t", pa.table(columns), pa.table({"id": [9]}))
    assert [str(each) for each in source.columns(session)] == [
        *("id int64", "at timestamp", "wall timestamp", "list string"),
    ]
    session().conf.set("spark.sql.session.timeZone", "Europe/Paris")
    try:
        found = sorted(rows_of(source), key=itemgetter("id"))
        by_sql = SparkTable("parquet", source.path, sql="SELECT id, typeof(wall) AS kind FROM source WHERE id = 1")
        assert [row["kind"] for row in rows_of(by_sql)] == ["timestamp_ntz"]
    finally:
        session().conf.set("spark.sql.session.timeZone", "UTC")
    for name in ("at", "wall"):
        assert [row[name] for row in found] == [*moments, None]
    assert [row["list"] for row in found] == ['["x"]', "[]", None, None]

    alone = written(tmp_path / "alone", pa.table(columns))
    rows, moment = RowColumns(("id",), watermark="at"), 1_711_852_200_000_001
    assert alone.columns(no_spark) == alone.columns(session)
    assert alone.changed(no_spark, rows, GLOBAL, moment - 1)
    assert [row["id"] for row in rows_of(alone, rows, Selection(window=Window(moment - 1, moment)))] == [2]
    assert rows_of(alone, rows, Selection(window=Window(moment, moment + 1))) == []
    histogram = alone.histogram(no_spark, rows, Selection(), ("wall",), bins=4)
    assert [each.key for each in histogram.bins] == [key_of(each) for each in moments if each]
    assert alone.extremes(session, rows, Selection(), "at") == tuple(key_of(each) for each in moments if each)
    parted = tmp_path / "parted" / "day=1"
    parted.mkdir(parents=True)
    pq.write_table(pa.table(columns), parted / "0.parquet")
    (row,) = (each for each in rows_of(SparkTable("parquet", (str(parted.parent),))) if each["id"] == 2)
    assert (row["wall"], row["day"]) == (moments[1], 1)


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        (pa.list_(pa.timestamp("ns")), "microseconds"),
        (pa.float16(), "such as text"),
        (pa.time32("s"), "such as text"),
        (pa.time64("us"), "such as text"),
        (pa.struct([("at", pa.map_(pa.string(), pa.time64("ns")))]), "such as text"),
        (pa.decimal256(50, 2), "such as text"),
    ],
    ids=str,
)
@pytest.mark.parametrize("options", [{}, {"mergeSchema": "true"}], ids=["plain", "merged"])
def test_a_column_of_a_type_that_spark_has_not_is_named(
    tmp_path: Path, kind: pa.DataType, hint: str, options: dict[str, str]
) -> None:
    """In whichever file it is; Spark would not say which column it is."""
    path = written(tmp_path / "t", pa.table({"id": [1]}), pa.table({"id": [1], "odd": pa.array([None], kind)})).path
    with pytest.raises(UserError, match=r"column 'odd' has the type .* which Spark cannot read") as raised:
        SparkTable("parquet", path, options=options).columns(session)
    assert hint in (raised.value.hint or "")


def test_a_file_of_no_bytes_is_not_taken_for_one_without_rows(tmp_path: Path) -> None:
    """As one is that was cut off when the disk was full: Spark reads the others, and says nothing."""
    source = written(tmp_path / "t", table_of(some_rows(10)))
    (tmp_path / "t" / "9.parquet").touch()
    for asked in (rows_of, lambda table: table.columns(session)):
        with pytest.raises(UserError, match=r"9\.parquet: it is empty"):
            asked(source)
    (tmp_path / "none").mkdir()
    with pytest.raises(UserError, match="there are no files with columns"):
        rows_of(SparkTable("parquet", (str(tmp_path / "none"),)))


def test_a_key_of_unsigned_numbers_is_cut_and_found(tmp_path: Path) -> None:
    numbers = [0, 7, 2**63, 2**64 - 1]
    source = written(tmp_path / "t", pa.table({"id": pa.array(numbers, pa.uint64())}))
    found = source.histogram(no_spark, PLAIN, Selection(), ("id",), bins=10)
    assert [each.key for each in found.bins] == [key_of(Decimal(number)) for number in numbers]
    for at, number in enumerate(numbers):
        one = KeyRange(found.bins[at].key, found.bins[at + 1].key if at < 3 else None)
        assert rows_of(source, selection=Selection(cut_by=("id",), ranges=(one,))) == [{"id": Decimal(number)}]


# -- what is not read ---------------------------------------------------------------------------------


def spoilt(path: Path, groups: Sequence[int]) -> None:
    """Nothing can be read of these row groups any more."""
    metadata = pq.read_metadata(path)
    data = bytearray(path.read_bytes())
    for at in groups:
        chunks = [metadata.row_group(at).column(column) for column in range(metadata.num_columns)]
        start = min(min(filter(None, (each.dictionary_page_offset, each.data_page_offset))) for each in chunks)
        length = sum(each.total_compressed_size for each in chunks)
        data[start : start + length] = b"\xff" * length
    path.write_bytes(data)


@pytest.mark.parametrize(
    "sql",
    [
        None,
        pytest.param("SELECT * FROM source", marks=pytest.mark.proof),
        "SELECT *, id + 1 AS next FROM source WHERE id >= 0",
    ],
)
@pytest.mark.parametrize(
    ("cut_by", "lower", "upper"),
    [
        (("id",), key_of(250), key_of(290)),
        (("path", "id"), key_of("2/", 250), key_of("2/", 290)),
        (("updated",), key_of(a_row(250)["updated"]), key_of(a_row(290)["updated"])),
    ],
)
def test_row_groups_without_such_rows_are_not_read(
    tmp_path: Path, sql: str | None, cut_by: Any, lower: Any, upper: Any
) -> None:
    rows = [a_row(number, path=f"{number // 100}/", gone=False) for number in range(400)]
    source = written(tmp_path / "t", table_of(rows), row_group_size=100)
    source = SparkTable("parquet", source.path, sql=sql)
    spoilt(tmp_path / "t" / "0.parquet", [0, 1, 3])
    wanted = Selection(window=Window(None, NOW), cut_by=cut_by, ranges=cuts([lower, upper])[1:2])
    frame = source.frame(session, ROWS, wanted)
    assert sorted(frame.toArrow().column("id").to_pylist()) == list(range(250, 290))
    pushed = explained(frame).partition("PushedFilters: ")[2].splitlines()[0]
    assert f"GreaterThanOrEqual({cut_by[0]}," in pushed
    assert "LessThan" in pushed
    other = source.frame(session, ROWS, Selection(cut_by=cut_by, ranges=cuts([lower, upper])[:1]))
    with pytest.raises(Exception, match=r"(?i)parquet|page|read|corrupt"):
        other.toArrow()


# -- sql and transform --------------------------------------------------------------------------------


def test_sql_sees_the_table_as_source_and_leaves_no_view(tmp_path: Path) -> None:
    base = written(tmp_path / "t", table_of(some_rows(50)))
    sql = "WITH few AS (SELECT * FROM source WHERE number > 0) SELECT id, name, '{x}' AS braces FROM few; "
    source = SparkTable("parquet", base.path, sql=sql)
    assert [str(each) for each in source.columns(session)] == ["id int64", "name string", "braces string"]
    assert {row["braces"] for row in rows_of(source)} <= {"{x}"}
    assert session().catalog.listTables() == []
    with pytest.raises(UserError, match="nosuch") as raised:
        SparkTable("parquet", base.path, sql="SELECT nosuch FROM source").columns(session)
    assert "\n\tat" not in str(raised.value)


def test_rows_are_selected_before_the_transform(tmp_path: Path) -> None:
    rows = some_rows(50)
    base = written(tmp_path / "t", table_of(rows))
    source = SparkTable(
        "parquet",
        base.path,
        transform=lambda frame: frame.withColumn("length", frame["number"] * 2),
        transform_name="m:f",
    )
    assert str(source.columns(session)[-1]) == "length int32"
    assert source.changed(no_spark, ROWS, GLOBAL, 0)
    check_selected(source, session, rows, Selection(Scope("42/"), Window(None, NOW)))


@pytest.mark.parametrize(
    ("transform", "said"),
    [
        (lambda frame: frame.drop("path"), "no column 'path' after m:f"),
        (lambda frame: None, "m:f: the transform returned NoneType, not a DataFrame"),
        (lambda frame: dict[str, Any]()["setting"], "m:f: the transform raised KeyError: 'setting'"),
        (lambda frame: frame.selectExpr("*", "INTERVAL 1 DAY AS span"), "column 'span' has the type interval day"),
        (lambda frame: frame.selectExpr("*", "id AS Name"), "two columns called 'Name'"),
    ],
)
def test_a_transform_that_breaks_the_table(tmp_path: Path, transform: Any, said: str) -> None:
    base = written(tmp_path / "t", table_of([a_row(1)]))
    source = SparkTable("parquet", base.path, transform=transform, transform_name="m:f")
    with pytest.raises(UserError) as raised:
        source.frame(session, ROWS, Selection())
    assert said in str(raised.value)
    assert len(str(raised.value).splitlines()) <= 2


# -- bad and other files ------------------------------------------------------------------------------


def test_a_missing_path_or_another_format_is_an_error(tmp_path: Path) -> None:
    for source in (SparkTable("parquet", (str(tmp_path / "none"),)), SparkTable("csv", (str(tmp_path / "none"),))):
        with pytest.raises(UserError, match=r"there is nothing at .*none"):
            source.columns(session)
        with pytest.raises(UserError, match=r"there is nothing at .*none"):
            source.state()
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="there are no files with columns"):
        SparkTable("parquet", (str(tmp_path / "empty"),)).columns(session)
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.parquet").write_text("this is no Parquet")
    with pytest.raises(UserError, match="cannot be read") as raised:
        SparkTable("parquet", (str(tmp_path / "text"),)).columns(session)
    assert "\n\tat" not in str(raised.value)


@pytest.mark.parametrize("format", ["delta", "iceberg", "nosuch.format"])
def test_a_jar_that_is_missing(tmp_path: Path, format: str) -> None:
    with pytest.raises(UserError, match=f"Spark has no {format}") as raised:
        SparkTable(format, (str(tmp_path),)).columns(session)
    assert "`spark: {jars: […]}`" in (raised.value.hint or "")


def test_a_type_that_was_widened_and_a_column_that_came_later(tmp_path: Path) -> None:
    first = pa.table({"id": pa.array([1, 2], pa.int32()), "old": ["a", "b"]})
    then = pa.table({"id": pa.array([2**40], pa.int64()), "new": ["c"]})
    source = written(tmp_path / "t", first, then)
    assert {str(each) for each in source.columns(session)} == {"id int64", "old string", "new string"}
    found = sorted(
        rows_of(source, PLAIN, Selection(cut_by=("id",), ranges=cuts([key_of(2)])[1:])), key=itemgetter("id")
    )
    assert [(row["id"], row["old"], row["new"]) for row in found] == [(2, "b", None), (2**40, None, "c")]


def test_text_of_another_collation_is_compared_by_its_bytes(tmp_path: Path) -> None:
    base = written(tmp_path / "t", pa.table({"id": [1, 2, 3], "name": ["B", "a", "b"]}))
    source = SparkTable("parquet", base.path, sql="SELECT id, name COLLATE UTF8_LCASE AS name FROM source")
    assert [str(each) for each in source.columns(session)] == ["id int64", "name string"]
    rows = RowColumns(("name",))
    assert [str(each.key) for each in source.histogram(session, rows, Selection(), ("name",), bins=9).bins] == [
        *("('B')", "('a')", "('b')"),
    ]
    found = rows_of(source, rows, Selection(cut_by=("name",), ranges=cuts([key_of("a")])[:1]))
    assert [row["id"] for row in found] == [1]


@pytest.mark.parametrize("format", ["json", "csv"])
def test_text_files_with_types_by_sql(tmp_path: Path, format: str) -> None:
    rows = [{**row, "name": f"n{row['id']}"} for row in some_rows(100) if row["path"]]
    written(tmp_path / "t", table_of(rows).drop_columns(["data"]))
    frame = session().read.parquet(str(tmp_path / "t"))
    pattern = "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"
    frame.write.format(format).options(header="true", timestampFormat=pattern).save(str(tmp_path / "text"))
    casts = ", ".join(f"CAST({each} AS {kind}) AS {each}" for each, kind in frame.dtypes)
    source = SparkTable(
        format, (str(tmp_path / "text"),), options={"header": "true"}, sql=f"SELECT {casts} FROM source"
    )
    assert source.columns(session) == COLUMNS[:-1]
    for wanted in (Selection(Scope("42/"), Window(None, NOW)), Selection(window=Window(micros(START) + 5, NOW))):
        check_selected(source, session, rows, wanted)
    found = rows_of(source, ROWS, Selection(cut_by=("path", "id"), ranges=cuts([key_of("42/9970/", 20)])[1:]))
    assert len(found) == sum((row["path"], row["id"]) >= ("42/9970/", 20) for row in rows)
    assert source.changed(session, ROWS, GLOBAL, 0)
    assert source.state() is not None


def test_a_large_table_is_sampled(tmp_path: Path) -> None:
    numbers = [number * number for number in range(200_000)]
    source = written(tmp_path / "t", pa.table({"id": numbers}))
    found = source.histogram(session, PLAIN, Selection(), ("id",), bins=100)
    assert found.rows == sum(each.rows for each in found.bins) == 200_000
    assert 90 <= len(found.bins) <= 201
    # The bin that begins at the middle of the table, within what a sample can miss.
    before = sum(each.rows for each in found.bins if each.key < key_of(100_000**2))
    assert 95_000 < before < 105_000


def test_the_shown_path_holds_no_secret() -> None:
    source = SparkTable("parquet", ("s3a://user:hunter2@bucket/t?sig=hunter3", "/data/t"), options={"key": "hunter4"})
    assert source.text == "s3a://bucket/t, /data/t"
    assert "hunter" not in repr(source)


def test_a_look_by_spark(tmp_path: Path) -> None:
    """Of a query over all rows, which is for no single file to answer."""

    def make(table: pa.Table, *, name: str) -> SparkTable:
        written(tmp_path / name, table)
        return SparkTable("parquet", (str(tmp_path / name),), sql="SELECT * FROM source LIMIT 1000000")

    check_looks(make, make(table_of(some_rows()), name="looked_at"), session, some_rows())
