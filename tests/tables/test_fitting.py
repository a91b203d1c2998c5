"""Values in their declared types, and those that have none; ids of rows."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.domain.columns import BYTES, DATE, INT32, INT64, STRING, TIMESTAMP, Column, ColumnType, decimal_type
from instep.errors import UserError
from instep.pipeline.tables.values import fitted, row_ids

MOMENT = datetime(2026, 1, 2, 3, 4, 5, 6, UTC)


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        (pa.array([1, None], pa.int16()), INT64, [1, None]),
        (pa.array([Decimal("1.5")]), decimal_type(20, 4), [Decimal("1.5000")]),
        (pa.array([7]), decimal_type(20, 1), [Decimal("7.0")]),
        (pa.array([MOMENT.replace(tzinfo=None)], pa.timestamp("us")), TIMESTAMP, [MOMENT]),
        (pa.array([MOMENT], pa.timestamp("us", "Asia/Tokyo")), TIMESTAMP, [MOMENT]),
        (pa.array(["é"], pa.large_string()), STRING, ["é"]),
    ],
)
def test_fitting_values_stay_unchanged(values: pa.Array[Any], kind: ColumnType, expected: list[Any]) -> None:
    found = fitted(values, Column("x", kind))
    assert (found.values.to_pylist(), found.misfits) == (expected, {})


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (pa.array([2**31, -(2**31) - 1]), INT32),
        (pa.array([Decimal("100"), Decimal("0.001")]), decimal_type(3, 1)),
        (pa.array([2**60, -(2**60)], pa.timestamp("us", "UTC")), TIMESTAMP),
        (pa.array([10_000_000, -10_000_000], pa.date32()), DATE),
        (pa.array(["7x", ""]), INT64),
        (pa.array([b"\xff", b"a\xc3"]).cast(pa.string(), safe=False), STRING),
    ],
    ids=["int32", "decimal", "timestamp", "date", "text", "not utf-8"],
)
def test_each_value_that_does_not_fit_is_found_by_itself(values: pa.Array[Any], kind: ColumnType) -> None:
    good = fitted(pa.array([None] * 5, values.type), Column("x", kind)).values
    mixed = pa.concat_arrays([values[:1], pa.array([None] * 5, values.type), values[1:]])
    for offset in (0, 1):
        found = fitted(mixed[offset:], Column("x", kind))
        assert sorted(found.misfits) == ([0, 6] if offset == 0 else [5])
        assert all(f"column 'x' is not of the type {kind}: " in reason for reason in found.misfits.values())
        assert found.values.null_count == len(mixed) - offset
        assert found.values.type == good.type


@given(st.lists(st.none() | st.integers(-(2**33), 2**33), max_size=40))
def test_fitting_and_misfitting_values_are_separated(values: list[int | None]) -> None:
    found = fitted(pa.array(values, pa.int64()), Column("x", INT32))
    fits = [each is None or -(2**31) <= each < 2**31 for each in values]
    assert sorted(found.misfits) == [row for row, fit in enumerate(fits) if not fit]
    assert found.values.to_pylist() == [each if fit else None for each, fit in zip(values, fits, strict=True)]


def test_a_type_that_no_value_fits_is_the_users_to_mend() -> None:
    with pytest.raises(UserError, match=r"column 'x' came as struct.*declared as int64"):
        fitted(pa.array([{"a": 1}]), Column("x", INT64))


def test_the_id_of_a_row_is_its_key_as_text() -> None:
    columns: list[pa.Array[Any]] = [
        pa.array([1, -(2**63), None]),
        pa.array(["a,b", "", "é"]),
        pa.array([b"\x00\xff", b"", None]),
        pa.array([date(2026, 1, 2), None, date.min]),
        pa.array([MOMENT] * 3, pa.timestamp("us", "UTC")),
        pa.array([True, False, None]),
        pa.array([Decimal("1.50"), Decimal(-2), None], pa.decimal128(10, 2)),
    ]
    at = "2026-01-02 03:04:05.000006Z"
    assert row_ids(columns).to_pylist() == [
        f"1,a,b,00ff,2026-01-02,{at},true,1.50",
        f"-9223372036854775808,,,null,{at},false,-2.00",
        f"null,é,null,0001-01-01,{at},null,null",
    ]


def test_an_id_that_no_ledger_can_keep_is_its_beginning_and_a_digest() -> None:
    keys: list[str | None] = ["k" * 80, "k" * 81, "k" * 5_000, "a\0b", "a?b", None]
    kept, *short, plain, null = map(str, row_ids([pa.array(keys, pa.string())]).to_pylist())
    assert (kept, plain, null) == (keys[0], "a?b", "null")
    assert [each.partition("…")[0] for each in short] == ["k" * 40, "k" * 40, "a?b"]
    assert len(set(short)) == 3
    assert all(len(each) <= 80 for each in short)


@given(st.lists(st.none() | st.binary(max_size=5)), st.integers(0, 3))
def test_bytes_are_hexadecimal_wherever_they_lie(values: list[bytes | None], offset: int) -> None:
    found = row_ids([pa.array(values, pa.binary())[offset:]]).to_pylist()
    assert found == ["null" if each is None else each.hex() for each in values[offset:]]
    assert fitted(pa.array(values, pa.binary()), Column("x", BYTES)).misfits == {}
