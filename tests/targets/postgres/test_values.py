"""Values come back bit by bit, and what PostgreSQL cannot hold is refused by the name of its column."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from instep.domain.columns import (
    BOOL,
    BYTES,
    DATE,
    FLOAT32,
    FLOAT64,
    INT32,
    INT64,
    STRING,
    TIMESTAMP,
    Column,
    ColumnType,
    decimal_type,
)
from instep.errors import UserError
from instep.targets.postgres import encoding, staging
from instep.targets.postgres.target import PostgresTarget
from instep.targets.table_target import OWN, TableChange, TableSpec, arrow_schema

INF = float("inf")

#: Of each type what is most likely to change on the way: -0.0, 2⁻¹⁴⁹ and the first and last of all kinds.
EDGES: dict[ColumnType, Sequence[Any]] = {
    BOOL: [True, False],
    INT32: [-(2**31), 2**31 - 1, 0],
    INT64: [-(2**63), 2**63 - 1, 0, -1],
    FLOAT32: [float("nan"), INF, -INF, -0.0, 2.0**-149, 3.4028234663852886e38],
    FLOAT64: [float("nan"), INF, -INF, -0.0, 5e-324, 1.7976931348623157e308, 0.1],
    decimal_type(38, 38): [Decimal(f"{sign}0.{'9' * 38}") for sign in ("", "-")] + [Decimal("1E-38"), Decimal(0)],
    decimal_type(38, 0): [Decimal("9" * 38), Decimal("-" + "9" * 38), Decimal(0)],
    decimal_type(38, 10): [Decimal("1234567890123456789012345678.0123456789"), Decimal("-0.0000000001")],
    STRING: ["", " ", "NULL", "\\N", "\\.", "\x01\x7f", "\u0080é💡\U0010ffff", "a\r\nb\tc", "{}%s%%", "x" * 100_000],
    BYTES: [b"", bytes(range(256)), b"\0", b"\\x00", b"\xff" * 100_000],
    # 1 January 4713 BC; of 294246 and 5874897 the last days that Arrow and PostgreSQL have.
    DATE: [-2_440_588, -719_163, -1, 0, 2_932_896, 2_145_042_905],
    TIMESTAMP: [-210_866_803_200_000_000, -62_135_596_800_000_001, -1, 0, 253_402_300_799_999_999, 2**63 - 1],
}
COLUMNS = tuple(Column(f"{at} {kind}", kind) for at, kind in enumerate(EDGES))
SPEC = TableSpec(OWN, (Column("key", INT64), *COLUMNS), ("key",))

NAMES = TableSpec(
    OWN, (Column("key", STRING), Column("text", STRING), Column("date", DATE), Column("at", TIMESTAMP)), ("key",)
)


def column(kind: ColumnType, values: Sequence[Any], type_: pa.DataType) -> pa.Array[Any]:
    """Dates and moments are given as numbers: Python does not have all of them."""
    if kind in (DATE, TIMESTAMP):
        return pa.array(values, pa.int32() if kind == DATE else pa.int64()).view(type_)
    return pa.array(values, type_)


def rows(spec: TableSpec, values: Mapping[str, Sequence[Any]]) -> pa.RecordBatch:
    schema = arrow_schema(spec)
    number = len(next(iter(values.values())))
    same = {"_ref": "r", "_instance": "i", "_version": 1, "_deleted": False}
    known = {name: [value] * number for name, value in same.items()} | dict(values)
    arrays = [
        column(each.type, known.get(each.name, [None] * number), schema.field(each.name).type)
        for each in spec.all_columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def written(target: PostgresTarget, spec: TableSpec, batches: Iterator[pa.RecordBatch]) -> pa.Table:
    target.create("Odd__1", [spec])
    base = target.fence("Odd__1", 1)
    part = target.writer("Odd__1", base).stage(TableChange(OWN, batch) for batch in batches)
    target.commit("Odd__1", base=base, epoch=1, attempt="1", staged=[part], marks=[])
    return target.read("Odd__1").sort_by("key")


def assert_same(found: pa.Table, expected: pa.Table) -> None:
    """Bit by bit: NaN is NaN, and 0.0 not -0.0."""
    assert found.schema == expected.schema
    for name in expected.schema.names:
        one, other = found[name].combine_chunks(), expected[name].combine_chunks()
        if pa.types.is_floating(one.type):
            bits = {pa.float32(): pa.int32(), pa.float64(): pa.int64()}[one.type]
            one, other = one.view(bits), other.view(bits)
        assert one.equals(other), name


def table_of_edges(number: int, chance: random.Random) -> pa.RecordBatch:
    values: dict[str, Sequence[Any]] = {
        each.name: [chance.choice([None, *EDGES[each.type]]) for _ in range(number)] for each in COLUMNS
    }
    return rows(SPEC, {"key": range(number), **values})


@pytest.mark.parametrize("nulls", [False, True], ids=["no nulls", "nulls"])
def test_the_first_and_the_last_value_of_every_type(target: PostgresTarget, nulls: bool) -> None:
    number = max(map(len, EDGES.values()))
    fill = [None] if nulls else []
    values: dict[str, Sequence[Any]] = {
        each.name: [[*EDGES[each.type], *fill][at % (len(EDGES[each.type]) + nulls)] for at in range(number + nulls)]
        for each in COLUMNS
    }
    batch = rows(SPEC, {"key": range(number + nulls), **values})
    assert_same(written(target, SPEC, iter([batch])), pa.Table.from_batches([batch]))


def test_slices_of_batches_and_more_than_is_sent_at_once(
    target: PostgresTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staging, "_BUFFER", 200_000)
    monkeypatch.setattr(encoding, "_BYTES", 100_000)
    whole = table_of_edges(60, random.Random(3))
    bounds = [0, 1, 9, 32, 60]
    parts = (whole.slice(at, end - at) for at, end in itertools.pairwise(bounds))
    assert_same(written(target, SPEC, parts), pa.Table.from_batches([whole]))


def test_the_server_understands_them_as_we_do(target: PostgresTarget) -> None:
    values: dict[str, Sequence[Any]] = {
        "key": ["x", "y"],
        "text": ["é", ""],
        "date": [-719_163, 2_932_896],
        "at": [-62_135_596_800_000_001, 1],
    }
    written(target, NAMES, iter([rows(NAMES, values)]))
    with target.place.session() as session:
        session.run("SET timezone = 'UTC'")
        found = session.run(
            'SELECT "text", "date"::text, "at"::text FROM {table} ORDER BY "key"', table=session.name("Odd__1")
        )
    assert found == [
        ("é", "0001-12-31 BC", "0001-12-31 23:59:59.999999+00 BC"),
        ("", "9999-12-31", "1970-01-01 00:00:00.000001+00"),
    ]


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("text", "a\0b", r"U\+0000"),
        ("key", "\0", r"U\+0000"),
        ("key", "k" * 3_000, "2500 bytes"),
        ("date", -2_440_589, "4714 BC"),
        ("date", 2_145_042_906, "5874897"),
        ("at", -210_866_803_200_000_001, "4714 BC"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_column(
    target: PostgresTarget, name: str, value: Any, says: str
) -> None:
    target.create("Odd__1", [NAMES])
    good: dict[str, list[Any]] = {"key": ["a", "b", "c"], "text": ["x", "y", None], "date": [1, 2, None]}
    bad = (
        {**good, name: [*good.get(name, ["2", "3", None])[:2], value]}
        if name != "at"
        else {**good, "at": [1, 2, value]}
    )
    writer = target.writer("Odd__1", target.fence("Odd__1", 1))
    writer.stage(iter([TableChange(OWN, rows(NAMES, good))]))
    with pytest.raises(UserError, match=rf"column '{name}' has .*{says}.* in 1 rows") as error:
        writer.stage(iter([TableChange(OWN, rows(NAMES, bad))]))
    assert "kkk" not in str(error.value)


def test_a_key_that_just_fits(target: PostgresTarget) -> None:
    keys = sorted("".join(random.Random(at).choices("abcdefghij0123456789", k=2_500)) for at in range(3))
    assert written(target, NAMES, iter([rows(NAMES, {"key": keys})]))["key"].to_pylist() == keys


def test_text_that_is_no_unicode_is_refused(target: PostgresTarget) -> None:
    target.create("Odd__1", [NAMES])
    batch = rows(NAMES, {"key": ["a"], "text": ["x"]})
    broken = pa.array([b"\xff"]).view(pa.string())
    batch = batch.set_column(1, "text", broken)
    with pytest.raises(UserError, match="PostgreSQL refused"):
        target.writer("Odd__1", target.fence("Odd__1", 1)).stage(iter([TableChange(OWN, batch)]))
