"""Columns of ClickHouse as ours, without Spark: names of types, expressions, and what ClickHouse gives for them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from instep.arrow.types import arrow_schema
from instep.clickhouse.location import Location
from instep.clickhouse.session import quoted
from instep.domain.columns import INT64, STRING
from instep.errors import UserError
from instep.sources.tables.clickhouse import ClickHouseTable
from instep.sources.tables.clickhouse_reader import as_ours
from instep.sources.tables.clickhouse_types import source_column
from instep.sources.tables.table_source import Sessions

#: A literal of ClickHouse, the type it has there, ours, and the value that comes.
VALUES = [
    ("-128", "Int8", "int32", -128),
    ("255", "UInt8", "int32", 255),
    ("65535", "UInt16", "int32", 65_535),
    ("4294967295", "UInt32", "int64", 4_294_967_295),
    ("18446744073709551615", "UInt64", "decimal(20,0)", "18446744073709551615"),
    ("1.5", "BFloat16", "float32", 1.5),
    ("1.5", "Float32", "float32", 1.5),
    ("1.5", "Float64", "float64", 1.5),
    ("1.25", "Decimal(9, 2)", "decimal(9,2)", "1.25"),
    ("'99999999999999999999999999999999.999999'", "Decimal(38, 6)", "decimal(38,6)", "9" * 32 + ".999999"),
    ("true", "Bool", "bool", True),
    ("'ä'", "String", "string", "ä"),
    ("'ä'", "LowCardinality(String)", "string", "ä"),
    ("'ä'", "LowCardinality(Nullable(String))", "string", "ä"),
    ("NULL", "Nullable(UInt64)", "decimal(20,0)", None),
    ("NULL", "LowCardinality(Nullable(String))", "string", None),
    ("NULL", "Nullable(UUID)", "string", None),
    ("'ab'", "FixedString(3)", "bytes", b"ab\0"),
    ("'A1B2C3D4-0000-0000-0000-00000000ABCD'", "UUID", "string", "a1b2c3d4-0000-0000-0000-00000000abcd"),
    ("'b)'", "Enum8('a, (' = 1, 'b)' = 2)", "string", "b)"),
    ("'1970-01-02'", "Date", "date", "1970-01-02"),
    ("'1901-01-02'", "Date32", "date", "1901-01-02"),
    ("1", "DateTime('Asia/Kathmandu')", "timestamp", "1970-01-01 00:00:01+00:00"),
    ("'2024-02-03 04:05:06.789'", "DateTime64(3, 'UTC')", "timestamp", "2024-02-03 04:05:06.789000+00:00"),
    ("'2024-02-03 04:05:06.123456789'", "DateTime64(9, 'UTC')", "timestamp", "2024-02-03 04:05:06.123456+00:00"),
    ("[1, 18446744073709551615]", "Array(UInt64)", "string", "[1,18446744073709551615]"),
    ("[1.5, nan, -inf]", "Array(Float64)", "string", '[1.5,"nan","-inf"]'),
    ("map('a', 1)", "Map(String, UInt8)", "string", '{"a":1}'),
    ("tuple(1, 'x')", "Tuple(a UInt8, b String)", "string", '{"a":1,"b":"x"}'),
    ('\'{"a": {"b": 1}}\'', "JSON", "string", '{"a":{"b":1}}'),
    ("7", "SimpleAggregateFunction(max, UInt8)", "int32", 7),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Location:
    return Location.of(str(tmp_path_factory.mktemp("chdb")))


@pytest.mark.parametrize(("literal", "stored", "ours", "value"), VALUES, ids=lambda each: str(each)[:30])
def test_a_value_comes_as_it_is(place: Location, literal: str, stored: str, ours: str, value: object) -> None:
    column = source_column("a`b", stored)
    assert column is not None
    assert str(column.column.type) == ours
    schema = arrow_schema([column.column])
    with place.session() as session:
        answer = session.arrow(
            f"SELECT {column.value} FROM (SELECT CAST({literal}, {{t:String}}) AS {quoted('a`b')})", t=stored
        )
    (found,) = pa.Table.from_batches([as_ours(each, schema) for each in answer.to_batches()]).column(0).to_pylist()
    assert (found if isinstance(value, bool | int | float | bytes | None) else str(found)) == value


@pytest.mark.parametrize(
    "stored",
    [
        "Int128",
        "UInt256",
        "Decimal(76, 2)",
        "IPv4",
        "Time",
        "Nullable(Nothing)",
        "Variant(Int8, String)",
        "AggregateFunction(sum, UInt8)",
        "Point",
    ],
)
def test_other_types_are_none_of_ours(stored: str) -> None:
    assert source_column("x", stored) is None


def test_a_column_without_a_type_of_ours_is_named(place: Location) -> None:
    with place.session() as session:
        session.command("CREATE OR REPLACE TABLE default.wide (id Int64, big Int256) ENGINE = MergeTree ORDER BY id")
    with pytest.raises(UserError, match=r"'big'.*Int256.*is not supported"):
        ClickHouseTable(place.uri, "wide").columns(_no_spark)
    narrower = ClickHouseTable(place.uri, "wide", sql="SELECT id, toString(big) AS big FROM source;")
    assert [(each.name, each.type) for each in narrower.columns(_no_spark)] == [("id", INT64), ("big", STRING)]
    twice = ClickHouseTable(place.uri, "wide", sql="SELECT id, 1 AS ID FROM source -- the end")
    with pytest.raises(UserError, match="two columns called 'ID'"):
        twice.columns(_no_spark)


def test_a_missing_table_or_folder_is_named(place: Location, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nowhere") as raised:
        ClickHouseTable(place.uri, "nowhere").columns(_no_spark)
    assert "`table`" in str(raised.value)
    with pytest.raises(UserError, match="no such folder"):
        ClickHouseTable(str(tmp_path / "x"), "t").columns(_no_spark)
    assert not (tmp_path / "x").exists()


def test_text_that_is_none_comes_as_its_bytes() -> None:
    """Its writer tells which rows have it."""
    column = source_column("t", "String")
    assert column is not None
    batch = pa.record_batch([pa.array([b"\xff\x00", None], pa.binary())], ["x"])
    found = as_ours(batch, arrow_schema([column.column]))
    assert found.column(0).cast(pa.binary()).to_pylist() == [b"\xff\x00", None]


_no_spark: Sessions = pytest.fail
