"""Rows find the slice whose range holds their key."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.arrow.types import arrow_type
from instep.domain.columns import BOOL, BYTES, DATE, INT32, INT64, STRING, TIMESTAMP, ColumnType, decimal_type
from instep.domain.cuts import KeyRange
from instep.domain.keys import Key, key_of
from instep.errors import UserError
from instep.pipeline.tables.routing import NOWHERE, router

_MOMENTS = st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30), timezones=st.just(UTC))

#: Few values that are near each other, so that rows meet bounds, and some at the limits.
VALUES: dict[ColumnType, st.SearchStrategy[Any]] = {
    BOOL: st.booleans(),
    INT32: st.integers(-3, 3) | st.sampled_from([-(2**31), 2**31 - 1]),
    INT64: st.integers(-3, 3) | st.sampled_from([-(2**63), 2**63 - 1]),
    # Beyond the basic plane text sorts after what UTF-16 has before it; and a zero at the end counts.
    STRING: st.text(st.sampled_from("a\0b\uffee\U0001f4a1\xe9e\u0301"), max_size=3) | st.text(max_size=3),
    BYTES: st.binary(max_size=2) | st.sampled_from([b"\x7f", b"\x80", b"\xff\x00"]),
    DATE: st.dates() | st.sampled_from([date.min, date.max, date(1970, 1, 1)]),
    TIMESTAMP: _MOMENTS | st.sampled_from([datetime(2026, 1, 1, tzinfo=UTC), datetime(1969, 12, 31, tzinfo=UTC)]),
    decimal_type(38, 3): st.decimals(-2, 2, places=3, allow_nan=False)
    | st.sampled_from([Decimal("-99999999999999999999999999999999999.999"), Decimal("1.5"), Decimal("1.50")]),
}


@st.composite
def cut(draw: st.DrawFn) -> tuple[list[ColumnType], list[KeyRange], list[tuple[Any, ...]]]:
    """Columns, some slices of a plan, and rows; bounds may be of the first columns only."""
    types = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=3))
    named = draw(st.integers(1, len(types)))
    keys = draw(st.lists(st.builds(key_of, *[VALUES[kind] for kind in types[:named]]), max_size=6))
    bounds: list[Key | None] = [None, *sorted(set(keys)), None]
    plan = [KeyRange(lower, upper) for lower, upper in pairwise(bounds)]
    some = draw(st.lists(st.sampled_from(plan), unique=True))
    seen = [key.values for key in keys]
    own = st.tuples(*[st.none() | VALUES[kind] for kind in types])
    on_a_bound = st.sampled_from(seen).flatmap(
        lambda values: st.tuples(*map(st.just, values), *[VALUES[kind] for kind in types[named:]])
    )
    return types, some, draw(st.lists(own | on_a_bound if seen else own, max_size=12))


def places(types: Sequence[ColumnType], slices: Sequence[KeyRange], rows: Sequence[tuple[Any, ...]]) -> list[int]:
    columns = [pa.array([row[at] for row in rows], arrow_type(kind)) for at, kind in enumerate(types)]
    found: list[int] = router(slices, types).places(columns, len(rows)).tolist()
    return found


def holds(each: KeyRange, row: tuple[Any, ...]) -> bool:
    """What `KeyRange.holds` says; and for rows with a null, which have no key, the same with null before all values."""
    if None not in row:
        return each.holds(key_of(*row))

    def reaches(bound: Key) -> bool:
        named = [(value is not None, value) for value in row[: len(bound)]]
        for (there, value), limit in zip(named, bound.values, strict=True):
            if not there or value != limit:
                return there and key_of(value) > key_of(limit)
        return True

    return (each.lower is None or reaches(each.lower)) and (each.upper is None or not reaches(each.upper))


@given(cut())
def test_a_row_is_placed_where_its_key_is_held_and_nowhere_else(
    drawn: tuple[list[ColumnType], list[KeyRange], list[tuple[Any, ...]]],
) -> None:
    types, slices, rows = drawn
    expected = [next((n for n, each in enumerate(slices) if holds(each, row)), NOWHERE) for row in rows]
    assert places(types, slices, rows) == expected


def test_the_order_of_text_is_that_of_its_bytes() -> None:
    whole = [KeyRange(None, key_of("\uffee")), KeyRange(key_of("\uffee"), None)]
    assert places([STRING], whole, [("\U0001f4a1",), ("z",), ("\uffee",), (None,)]) == [1, 0, 1, 0]


def test_bounds_may_name_more_or_fewer_columns() -> None:
    some = [KeyRange(None, key_of(5)), KeyRange(key_of(5, "b"), None)]
    rows = [(4, "z"), (5, None), (5, ""), (5, "b"), (6, None), (None, "b")]
    assert places([INT64, STRING], some, rows) == [0, NOWHERE, NOWHERE, 1, 1, 0]


def test_a_whole_table_is_one_slice() -> None:
    assert router([KeyRange()], []).places([], 3).tolist() == [0, 0, 0]


def test_many_slices_and_columns() -> None:
    keys = [key_of(a, b, f"{c}") for a in range(10) for b in range(10) for c in range(10)]
    plan = [KeyRange(lower, upper) for lower, upper in pairwise([None, *keys, None])]
    rows = [(a, b, f"{c}") for a in range(10) for b in range(10) for c in range(10)]
    assert places([INT64, INT64, STRING], plan, rows) == list(range(1, 1001))


@pytest.mark.parametrize("bound", ["text", 2**40, b"\0", Decimal("0.5")])
def test_bounds_of_another_type_are_refused(bound: Any) -> None:
    with pytest.raises(UserError, match="that is int32 now"):
        router([KeyRange(key_of(bound), None)], [INT32])
