"""Types of columns: a closed set with one text each, and which holds all values of which."""

from __future__ import annotations

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.domain.columns import (
    BOOL,
    BYTES,
    DATE,
    FLOAT32,
    FLOAT64,
    INT32,
    INT64,
    MAX_PRECISION,
    STRING,
    TIMESTAMP,
    Column,
    ColumnType,
    ColumnTypeError,
    TypeName,
    decimal_type,
    widens,
)

PLAIN = [BOOL, INT32, INT64, FLOAT32, FLOAT64, STRING, BYTES, DATE, TIMESTAMP]

decimals = st.integers(1, MAX_PRECISION).flatmap(
    lambda precision: st.integers(0, precision).map(lambda scale: decimal_type(precision, scale))
)
types = st.sampled_from(PLAIN) | decimals


@given(types)
def test_a_type_is_its_text(column: ColumnType) -> None:
    assert ColumnType.parse(str(column)) == column


def test_the_set_is_closed() -> None:
    assert {each.name for each in PLAIN} | {TypeName.DECIMAL} == set(TypeName)
    for text in ("uuid", "INT64", "decimal", "decimal(0,0)", "decimal(39,0)", "decimal(5,6)", "decimal(5)", ""):
        with pytest.raises(ColumnTypeError):
            ColumnType.parse(text)
    with pytest.raises(ColumnTypeError, match="neither"):
        ColumnType(TypeName.INT64, 5)


def test_floating_point_is_not_for_keys() -> None:
    assert [each for each in [*PLAIN, decimal_type(5, 2)] if not each.keys] == [FLOAT32, FLOAT64]


@given(types, types, types)
def test_widening_is_a_strict_order(a: ColumnType, b: ColumnType, c: ColumnType) -> None:
    assert not widens(a, a)
    assert not (widens(a, b) and widens(b, a))
    if widens(a, b) and widens(b, c):
        assert widens(a, c)


@pytest.mark.parametrize(
    ("stored", "declared", "wide"),
    [
        (INT32, INT64, True),
        (INT32, FLOAT64, True),
        (INT64, FLOAT64, False),  # 2**53 + 1 has no such number.
        (INT32, FLOAT32, False),
        (FLOAT32, FLOAT64, True),
        (INT64, INT32, False),
        (INT64, decimal_type(19, 0), True),
        (INT64, decimal_type(20, 2), False),
        (INT32, decimal_type(12, 2), True),
        (FLOAT32, decimal_type(38, 0), False),
        (decimal_type(10, 2), decimal_type(12, 4), True),
        (decimal_type(10, 2), decimal_type(12, 5), False),
        (decimal_type(10, 2), decimal_type(12, 1), False),
        (DATE, TIMESTAMP, False),
        (INT64, STRING, False),
        (STRING, BYTES, False),
    ],
)
def test_column_types_that_widen(stored: ColumnType, declared: ColumnType, *, wide: bool) -> None:
    assert widens(stored, declared) is wide


@given(decimals, decimals, st.data())
def test_a_wider_decimal_holds_every_value(stored: ColumnType, declared: ColumnType, data: st.DataObject) -> None:
    largest = 10**stored.precision - 1
    value = Decimal((0, tuple(map(int, str(data.draw(st.integers(0, largest) | st.just(largest))))), -stored.scale))
    if widens(stored, declared):
        _, digits, _ = value.as_tuple()
        assert declared.scale >= stored.scale
        assert len(digits) - stored.scale <= declared.precision - declared.scale


def test_a_column_is_shown_in_readable_text() -> None:
    assert str(Column("price", decimal_type(10, 2))) == "price decimal(10,2)"
