"""Keys and versions of two sides are compared by sums first."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.pipeline.tables.key_comparison import LIFT, RANGES, Sums, compare_rows, kept

KINDS = [pa.int64(), pa.string(), pa.binary(), pa.decimal128(38, 2), pa.date32(), pa.timestamp("us", "UTC"), pa.bool_()]


def rows(*pairs: tuple[int, int]) -> pa.Table:
    keys, versions = ([each[at] for each in pairs] for at in range(2))
    return pa.table({"id": pa.array(keys, pa.int64()), "version": pa.array(versions, pa.int64())})


@given(
    st.dictionaries(st.integers(-50, 50), st.integers(-5, 5), max_size=60),
    st.dictionaries(st.integers(-50, 50), st.integers(-5, 5), max_size=60),
)
def test_what_differs_is_found_and_nothing_else(source: dict[int, int], target: dict[int, int]) -> None:
    ours, theirs = rows(*source.items()), rows(*target.items())
    ranges = frozenset(Sums.of(ours.to_batches()).differing(Sums.of(theirs.to_batches())))
    assert bool(ranges) == (source != target)
    parts = [pa.Table.from_batches(list(kept(iter(each.to_batches()), ranges)), each.schema) for each in (ours, theirs)]
    found = compare_rows(*parts)
    keys = [set(each.column("id").to_pylist()) for each in found]
    both = source.keys() & target.keys()
    assert keys == [
        source.keys() - target.keys(),
        target.keys() - source.keys(),
        {key for key in both if source[key] > target[key]},
        {key for key in both if source[key] < target[key] - LIFT},
    ]


def test_sums_do_not_depend_on_order_batches_or_tasks() -> None:
    table = rows(*((number, number % 7) for number in range(10_000)))
    shuffled = table.take(np.random.default_rng(1).permutation(10_000))
    parts = (shuffled.slice(0, 4_000), shuffled.slice(4_000))
    tasks = [Sums.of(part.to_batches(max_chunksize=77)).encode() for part in parts]
    found = Sums.decode(pa.Table.from_batches(tasks))
    assert not found.differing(Sums.of(table.to_batches()))
    assert found.in_ranges(range(RANGES)) == 10_000


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_key_of_any_type_is_told_apart(kind: pa.DataType) -> None:
    values: dict[pa.DataType, list[Any]] = {
        pa.string(): ["", "a", "ab", "ba", "\0"],
        pa.binary(): [b"", b"\0", b"\0\0"],
        pa.decimal128(38, 2): [Decimal("-1.50"), Decimal("1.50"), Decimal(0), Decimal("1e30")],
        pa.bool_(): [True, False],
    }
    plain = pa.array([0, 1, -1], pa.int32() if kind == pa.date32() else pa.int64())
    keys = pa.array(values[kind], kind) if kind in values else plain.cast(kind)
    table = pa.table({"key": keys, "version": pa.array([5] * len(keys), pa.int64())})
    for left_out in range(len(keys)):
        others = pa.concat_tables([table.slice(0, left_out), table.slice(left_out + 1)])
        assert Sums.of(table.to_batches()).differing(Sums.of(others.to_batches()))
        found = compare_rows(table, others)
        assert found.missing.column("key").to_pylist() == [keys[left_out].as_py()]
        assert [each.num_rows for each in found[1:]] == [0, 0, 0]


def test_of_a_key_that_is_there_twice_the_later_version_counts() -> None:
    found = compare_rows(rows((1, 3), (1, 9), (1, 5)), rows((1, 9)))
    assert [each.num_rows for each in found] == [0, 0, 0, 0]
