"""A set that is looked through in batches has what `is_in` has."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.arrow.sets import ValueSet

KINDS: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.int32(): st.integers(-3, 3),
    pa.string(): st.sampled_from(["", "a", "b", "\0", "ü"]),
    pa.binary(): st.binary(max_size=2),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(date(2026, 1, 1), date(2026, 1, 4)),
    pa.timestamp("us", "UTC"): st.sampled_from([datetime(2026, 1, day, tzinfo=UTC) for day in (1, 2, 3)]),
    pa.decimal128(10, 2): st.sampled_from([Decimal("1.00"), Decimal("-2.50"), Decimal("0.01")]),
}


@pytest.mark.parametrize("kind", KINDS, ids=str)
@given(data=st.data())
def test_a_set_has_what_is_in_it_and_no_null(kind: pa.DataType, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | KINDS[kind], max_size=8))
    asked = data.draw(st.lists(st.none() | st.sampled_from([*values, None]) | KINDS[kind], max_size=8))
    there = {each for each in values if each is not None}
    expected = [each in there for each in asked]
    column: Any = pa.array([None, *asked, None], kind)[1:-1]
    for stored in (pa.array(values, kind), pa.chunked_array([pa.array(values, kind), pa.array(values, kind)])):
        assert ValueSet(stored).contains(column).tolist() == expected


def test_an_empty_set_of_no_batches_has_nothing() -> None:
    assert ValueSet(pa.chunked_array([], pa.string())).contains(pa.array(["a", None])).tolist() == [False, False]


@given(
    st.lists(st.lists(st.none() | st.sampled_from("abcde"), max_size=6), max_size=4),
    st.lists(st.sampled_from("abcdef")),
)
def test_a_set_grows_batch_by_batch_and_has_each_value_once(batches: list[list[str | None]], asked: list[str]) -> None:
    grown = ValueSet(pa.array([], pa.string()))
    for at in range(0, len(batches), 2):
        grown = grown.with_values(pa.array(each, pa.string()) for each in batches[at : at + 2])
    there = {each for batch in batches for each in batch if each is not None}
    assert grown.contains(pa.array(asked, pa.string())).tolist() == [each in there for each in asked]
    assert len(grown) == len(there)
