"""Keys of a queue: in batches, in stretches, and as a slice is stored."""

from __future__ import annotations

from itertools import chain, pairwise

from hypothesis import given
from hypothesis import strategies as st

from instep.domain.cuts import KeyRange
from instep.domain.pending_queue import LARGEST_KEY, batches, stretches
from instep.domain.rows import RowSlice, decode_row_slice, encode_row_slice

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


@given(KEYS)
def test_a_slice_keeps_its_keys(keys: list[int]) -> None:
    part = RowSlice(0, 1, None, ("id",), KeyRange(), tuple(keys))
    assert decode_row_slice(encode_row_slice(part)) == part
