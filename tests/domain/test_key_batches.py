"""Keys of a queue: in batches, in stretches, and as a slice is stored."""

from __future__ import annotations

from itertools import chain, pairwise
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from instep.domain import cuts
from instep.domain.pending_queue import LARGEST_KEY, LOWEST_KEY, KeyRange, QueueKey, batches, before, share, stretches
from instep.domain.rows import RowSlice, decode_row_slice, encode_row_slice
from instep.domain.storable import is_storable

KEYS = st.sets(st.integers(-(2**63), LARGEST_KEY) | st.integers(-20, 20), max_size=60).map(sorted)


@given(KEYS, st.integers(1, 70))
def test_batches_have_all_keys_once_and_in_order(keys: list[int], size: int) -> None:
    found = batches(keys, size)
    assert list(chain(*found)) == keys
    assert all(0 < len(each) <= size for each in found)
    assert len(found) == -(-len(keys) // size)


@given(KEYS, st.integers(1, 10))
def test_stretches_hold_all_keys_and_leave_out_the_widest_gaps(keys: list[int], most: int) -> None:
    found = stretches(keys, most)
    assert len(found) <= most
    assert all(any(first <= key <= last for first, last in found) for key in keys)
    inner = sorted((after - before for (_, before), (after, _) in pairwise(found)), reverse=True)
    gaps = sorted((after - before for before, after in pairwise(keys)), reverse=True)
    assert inner == [each for each in gaps if each > 1][: most - 1]


TEXTS = st.sets(st.text(max_size=30) | st.uuids().map(str), max_size=60).map(sorted)


@given(KEYS | TEXTS)
def test_a_slice_keeps_its_keys(keys: list[QueueKey]) -> None:
    part = RowSlice(0, 1, None, ("id",), cuts.KeyRange(), tuple(keys))
    assert decode_row_slice(encode_row_slice(part)) == part


@given(TEXTS, st.integers(1, 10))
def test_stretches_of_texts_hold_all_of_them(keys: list[str], most: int) -> None:
    found = stretches(keys, most)
    assert len(found) <= most
    assert all(any(first <= key <= last for first, last in found) for key in keys)


def test_stretches_of_texts_leave_out_the_widest_gaps() -> None:
    keys = ["order-10", "order-11", "order-12", "order-7", "order-71"]
    assert stretches(keys, 2) == [("order-10", "order-12"), ("order-7", "order-71")]


@given(st.text(max_size=30).filter(is_storable) | st.uuids().map(str) | st.integers(LOWEST_KEY, LARGEST_KEY))
def test_a_bound_before_a_key_is_below_it(key: QueueKey) -> None:
    bound = before(key)
    assert (bound is None) == (key in ("", LOWEST_KEY, str(UUID(int=0))))
    assert KeyRange(bound, key).holds(key)
    assert not KeyRange(bound, key).holds(bound) if bound is not None else True


def test_the_part_that_is_done_is_told_of_texts_too() -> None:
    assert share(KeyRange("order-10", "order-90"), "order-50") == 0.5
    assert share(KeyRange(None, "b"), "1") == 0.5
    assert share(KeyRange(0, 10), 4) == 0.4


def test_keys_lie_apart_by_what_follows_the_first_of_them_if_others_begin_with_it() -> None:
    """As the bound before the lowest key may be."""
    after = before("gid://shop/product/1")
    assert after == "gid://shop/product/"
    assert 0 < share(KeyRange(after, "gid://shop/product/4"), "gid://shop/product/2") < 1
    keys = [f"gid://shop/product/{each}" for each in ("", "1", "2", "9")]
    assert stretches(keys, 2) == [(keys[0], keys[0]), (keys[1], keys[3])]
