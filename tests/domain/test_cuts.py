"""Cuts of tables: every key in one slice, none empty, as even as can be."""

from __future__ import annotations

from datetime import UTC, date, datetime
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.domain.cuts import (
    Bin,
    CutError,
    FewValues,
    KeyRange,
    KeySlice,
    balanced_cuts,
    cut_columns,
    dominant_tenant,
    even_cuts,
    few_values,
    slice_count,
)
from instep.domain.keys import INT64_MAX, INT64_MIN, Key, KeysDiffer, decode_bound, encode_bound, key_of
from instep.domain.planning import MAX_SLICES_PER_ENTITY
from tests.domain.key_strategies import keys_of, shapes


@st.composite
def histograms(draw: st.DrawFn) -> list[Bin]:
    keys = draw(shapes.flatmap(lambda shape: st.lists(keys_of(shape), max_size=12, unique=True)))
    return [Bin(key, draw(st.integers(0, 50) | st.just(10_000))) for key in sorted(keys)]


wanted = st.integers(1, 15)


def bins_of(rows: list[int]) -> list[Bin]:
    return [Bin(key_of(at), number) for at, number in enumerate(rows)]


def holders(slices: list[KeySlice], key: Key) -> list[int]:
    return [at for at, each in enumerate(slices) if each.range.holds(key)]


@given(histograms(), wanted, st.data())
def test_every_key_is_in_exactly_one_slice(bins: list[Bin], count: int, data: st.DataObject) -> None:
    """Also keys that no histogram knew, before, between and behind its own."""
    slices = balanced_cuts(bins, count)
    shape = list(bins[0].key.kinds) if bins else data.draw(shapes)
    key = (
        data.draw(keys_of(shape) | st.sampled_from([each.key for each in bins])) if bins else data.draw(keys_of(shape))
    )
    assert len(holders(slices, key)) == 1


@given(histograms(), wanted)
def test_bounds_leave_neither_gap_nor_overlap_and_grow(bins: list[Bin], count: int) -> None:
    ranges = [each.range for each in balanced_cuts(bins, count)]
    assert ranges[0].lower is None
    assert ranges[-1].upper is None
    for before, after in pairwise(ranges):
        assert before.upper is not None
        assert before.upper == after.lower
        assert after.upper is None or after.lower < after.upper


@given(histograms(), wanted)
def test_as_many_slices_as_wanted_or_as_there_are_keys_and_none_empty(bins: list[Bin], count: int) -> None:
    slices = balanced_cuts(bins, count)
    keys = sum(1 for each in bins if each.rows)
    assert len(slices) == max(1, min(count, keys))
    for each in slices:
        inside = sum(one.rows for one in bins if each.range.holds(one.key))
        assert each.rows == inside
        assert inside > 0 or not keys


@given(histograms(), wanted)
def test_no_other_cutting_has_a_smaller_largest_slice(bins: list[Bin], count: int) -> None:
    rows = [each.rows for each in bins]

    @cache
    def best(start: int, left: int) -> int:
        if left == 1:
            return sum(rows[start:])
        tries = (max(sum(rows[start:end]), best(end, left - 1)) for end in range(start, len(rows) + 1))
        return min(tries)

    largest = max(each.rows for each in balanced_cuts(bins, count))
    assert largest == best(0, count)
    assert not sum(rows) or largest < sum(rows) / count + max(rows)


@given(histograms(), wanted)
def test_bounds_come_back_from_their_texts(bins: list[Bin], count: int) -> None:
    for each in balanced_cuts(bins, count):
        texts = [encode_bound(each.range.lower), encode_bound(each.range.upper)]
        assert KeyRange(*map(decode_bound, texts)) == each.range


def test_other_cuts_on_a_retry_lose_rows_so_bounds_are_kept() -> None:
    """A bug of the original: cuts were computed again on retry, while finished slices were skipped."""
    first = balanced_cuts(bins_of([1] * 100), 4)
    # Rows came in between the two attempts: the second would cut elsewhere. Its first half is skipped as finished.
    again = balanced_cuts(bins_of([1] * 50 + [10] * 50), 4)
    lost = [at for at in range(100) if holders(first, key_of(at))[0] >= 2 > holders(again, key_of(at))[0]]
    assert lost
    stored = [(encode_bound(each.range.lower), encode_bound(each.range.upper)) for each in first]
    resumed = [KeySlice(KeyRange(decode_bound(lower), decode_bound(upper)), 0) for lower, upper in stored]
    assert all(holders(first, key_of(at)) == holders(resumed, key_of(at)) for at in range(100))


def test_five_rows_at_four_a_slice() -> None:
    """A bug of another original: the second slice was [6, 5)."""
    for count in range(1, 9):
        slices = balanced_cuts(bins_of([1] * 5), count)
        assert [each.rows for each in slices if each.rows <= 0] == []
        assert sum(each.rows for each in slices) == 5


def test_rows_are_spread_evenly() -> None:
    assert [each.rows for each in balanced_cuts(bins_of([1] * 100), 4)] == [25] * 4
    assert [each.rows for each in balanced_cuts(bins_of([1] * 6), 4)] == [1, 1, 2, 2]


def test_a_key_is_never_cut_and_others_are_not_put_to_it() -> None:
    slices = balanced_cuts(bins_of([1, 1, 1_000, 1, 1]), 3)
    assert [each.rows for each in slices] == [2, 1_000, 2]


def test_a_large_histogram_of_one_giant_key() -> None:
    slices = balanced_cuts(bins_of([1] * 50_000 + [10**12] + [1] * 50_000), MAX_SLICES_PER_ENTITY)
    assert len(slices) == MAX_SLICES_PER_ENTITY
    assert max(each.rows for each in slices) == 10**12
    assert sorted(each.rows for each in slices)[-2] <= 20


def test_nothing_known_is_one_slice_of_everything() -> None:
    assert balanced_cuts([], 5) == [KeySlice(KeyRange(), 0)]
    assert balanced_cuts([Bin(key_of(1), 0)], 5) == [KeySlice(KeyRange(), 0)]
    assert KeyRange().holds(key_of("anything"))


def test_a_key_listed_twice_counts_once() -> None:
    bins = [Bin(key_of(1), 2), Bin(key_of(1), 3), Bin(key_of(2), 5)]
    assert balanced_cuts(bins, 5) == [KeySlice(KeyRange(None, key_of(2)), 5), KeySlice(KeyRange(key_of(2), None), 5)]


def test_bounds_of_the_first_columns_hold_whole_keys() -> None:
    part = KeyRange(key_of("b"), key_of("d"))
    found = [each for each in "abcde" if part.holds(key_of(each, 7, 8))]
    assert found == ["b", "c"]
    with pytest.raises(KeysDiffer):
        part.holds(key_of(1))


@pytest.mark.parametrize("bounds", [(2, 1), (1, 1)])
def test_a_range_is_never_empty(bounds: tuple[int, int]) -> None:
    with pytest.raises(CutError, match="empty"):
        KeyRange(*map(key_of, bounds))


def test_a_source_that_orders_in_another_way_is_found_out() -> None:
    with pytest.raises(CutError, match="comes after"):
        balanced_cuts([Bin(key_of("a"), 1), Bin(key_of("B"), 1)], 2)
    with pytest.raises(CutError, match="comes after"):
        balanced_cuts([Bin(key_of("a", 2), 1), Bin(key_of("a", 1), 1)], 2)


@pytest.mark.parametrize("count", [0, -1, MAX_SLICES_PER_ENTITY + 1])
def test_an_impossible_number_of_slices_is_refused(count: int) -> None:
    with pytest.raises(CutError, match="ask for 1 to 10,000"):
        balanced_cuts(bins_of([1]), count)
    with pytest.raises(CutError, match="ask for 1 to 10,000"):
        even_cuts(key_of(0), key_of(9), count)


def test_counts_are_not_negative() -> None:
    with pytest.raises(CutError, match="negative"):
        balanced_cuts(bins_of([-1]), 1)
    with pytest.raises(CutError, match="negative"):
        slice_count(-1)


# Even cuts


KINDS: list[st.SearchStrategy[Any]] = [
    st.integers(INT64_MIN, INT64_MAX) | st.integers(0, 20),
    st.dates(),
    st.datetimes(timezones=st.just(UTC)),
]


@given(st.sampled_from(KINDS).flatmap(lambda values: st.tuples(values, values, values)), wanted)
def test_even_cuts_cover_every_key_once(values: tuple[Any, Any, Any], count: int) -> None:
    low, high, key = sorted(map(key_of, values[:2]))[0], max(map(key_of, values[:2])), key_of(values[2])
    slices = even_cuts(low, high, count, rows=1_000)
    assert 1 <= len(slices) <= count
    assert len(holders(slices, key)) == 1
    assert (holders(slices, low), holders(slices, high)) == ([0], [len(slices) - 1])
    assert sum(each.rows for each in slices) == 1_000


def test_even_cuts_of_few_values_are_fewer() -> None:
    assert len(even_cuts(key_of(5), key_of(7), 10)) == 3
    assert even_cuts(key_of(5), key_of(5), 10) == [KeySlice(KeyRange(), 0)]


def test_even_cuts_at_the_ends_of_an_int64() -> None:
    bounds = [each.range.lower for each in even_cuts(key_of(INT64_MIN), key_of(INT64_MAX), 4)]
    assert bounds == [None, key_of(-(2**62)), key_of(0), key_of(2**62)]


def test_even_cuts_of_days_and_moments() -> None:
    days = even_cuts(key_of(date(2026, 1, 1)), key_of(date(2026, 1, 4)), 2)
    assert days[0].range.upper == key_of(date(2026, 1, 3))
    moments = even_cuts(key_of(datetime(1969, 12, 31, tzinfo=UTC)), key_of(datetime(1970, 1, 2, tzinfo=UTC)), 2)
    assert moments[0].range.upper == key_of(datetime(1970, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize("values", [("a",), (True,), (b"a",), (1, 2)])
def test_even_cuts_need_numbers_or_times(values: tuple[Any, ...]) -> None:
    with pytest.raises(CutError, match="even cuts need"):
        even_cuts(key_of(*values), key_of(*values), 2)


def test_even_cuts_need_the_least_key_first() -> None:
    with pytest.raises(CutError, match="greater than the greatest"):
        even_cuts(key_of(2), key_of(1), 2)


# How many, and by what


@pytest.mark.parametrize(
    ("rows", "slice_rows", "factor", "count"),
    [
        (0, 10_000, 1.0, 1),
        (10_000, 10_000, 1.0, 1),
        (10_001, 10_000, 1.0, 2),
        (10_000, 10_000, 2.0, 2),
        (10_000, 10_000, 0.5, 1),
        (10_000, 1_000, 100.0, 10),  # Never under 1,000 rows a slice
        (100_000, 50_000, 0.01, 2),  # or over 50,000,
        (10**12, 10_000, 1.0, 10_000),  # but for the limit of slices.
    ],
)
def test_auto_is_as_many_slices_as_the_rows_need(rows: int, slice_rows: int, factor: float, count: int) -> None:
    assert slice_count(rows, slice_rows=slice_rows, work_factor=factor) == count


@given(st.integers(0, 10**12), st.integers(0, 10**12), st.floats(0.01, 100))
def test_more_rows_are_never_fewer_slices(rows: int, more: int, factor: float) -> None:
    assert slice_count(rows, work_factor=factor) <= slice_count(rows + more, work_factor=factor)


def test_work_is_rows_by_the_factor_and_never_nothing() -> None:
    part = KeySlice(KeyRange(), 1_000)
    assert (part.work(1.5), part.work(1.0), part.work(0.5)) == (1_500, 1_000, 500)
    assert KeySlice(KeyRange(), 0).work(1.0) == 1


def test_cuts_are_made_by_the_first_column_after_the_scope() -> None:
    order, scope = ["traversal_path", "id", "partition_id"], ["traversal_path"]
    assert cut_columns(order, scope, dominated=False) == ("id",)
    assert cut_columns(order, scope, dominated=True) == ("traversal_path", "id")
    assert cut_columns(["id"], [], dominated=False) == ("id",)
    assert cut_columns(["id"], scope, dominated=True) == ("id",)
    assert cut_columns(["traversal_path"], scope, dominated=False) == ("traversal_path",)


def tenants(*rows: int) -> list[Bin]:
    return [Bin(key_of(f"{tenant:03}/", id_), 1) for tenant, count in enumerate(rows) for id_ in range(count)]


def test_a_dominant_tenant_is_found_and_split() -> None:
    bins = tenants(5, 900, 5, 90)
    assert dominant_tenant(bins, 1, 4) == key_of("001/")
    slices = balanced_cuts(bins, 4)
    assert max(each.rows for each in slices) == 250
    inside = [each for each in slices if each.range.lower and each.range.lower.prefix(1) == key_of("001/")]
    assert len(inside) == 3
    # By tenant alone it would stay whole.
    whole = balanced_cuts([Bin(each.key.prefix(1), 1) for each in bins], 4)
    assert max(each.rows for each in whole) == 900


def test_tenants_of_like_size_and_a_tenant_alone_do_not_dominate() -> None:
    assert dominant_tenant(tenants(10, 10, 10, 10), 1, 4) is None
    assert dominant_tenant(tenants(1_000), 1, 4) is None
    assert dominant_tenant([], 1, 4) is None


def test_few_values_for_many_rows_are_warned_of_in_words() -> None:
    found = few_values(["noteable_type"], values=10, rows=5_000_000, slices=20)
    assert found == FewValues(("noteable_type",), 10, 5_000_000, 20)
    assert str(found) == (
        "'noteable_type': 10 different values in 5,000,000 rows, so 20 slices cannot be even: the largest has at "
        "least 500,000 rows. Put a key column with more values first in `order`, or ask for fewer slices"
    )
    assert "1 different value in" in str(few_values(["kind"], values=1, rows=1_000, slices=2))


@pytest.mark.parametrize(
    ("values", "rows", "slices"),
    [
        (5_000_000, 5_000_000, 500),  # a real key
        (20, 20, 5),  # a tiny table
        (50, 5_000_000, 5),  # enough for five slices
        (10, 5_000_000, 1),  # nothing is cut
        (0, 0, 5),
    ],
)
def test_values_that_are_enough_are_not_warned_of(values: int, rows: int, slices: int) -> None:
    assert few_values(["id"], values=values, rows=rows, slices=slices) is None
