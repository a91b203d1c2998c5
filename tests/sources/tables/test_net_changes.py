"""What is left of changes of rows: whatever their order, and however often a table is written anew."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from instep.arrow.keys import row_numbers
from instep.sources.tables.lake import PORTION_BYTES, in_portions
from instep.sources.tables.lakes import SignedRows
from instep.sources.tables.net_changes import NetChanges

Change = tuple[int, str | None, int]


def signed(changes: Sequence[Change]) -> SignedRows:
    keys, texts, signs = zip(*changes, strict=True) if changes else ((), (), ())
    columns: list[Any] = [pa.array(keys, pa.int64()), pa.array(texts, pa.string())]
    return SignedRows(pa.RecordBatch.from_arrays(columns, ["id", "text"]), np.array(signs, np.int64))


def left(*batches: Sequence[Change]) -> tuple[set[tuple[int, str]], set[int]]:
    """Rows that came, and keys that are gone."""
    changes = [signed(each) for each in batches]
    net = NetChanges.of([[each] for each in changes], ["id"])
    come, gone = list[Any](), list[Any]()
    # Each portion by itself, in any order.
    for number in reversed(range(len(changes))):
        for rows, went in net.select([changes[number]], ["id"], number):
            for row, is_gone in zip(rows.to_pylist(), went.tolist(), strict=True):
                (gone if is_gone else come).append((row["id"], row["text"]))
    assert (len(come), len(gone)) == (len(net.come), len(net.gone))
    assert len(set(come)) == len(come)
    return set(come), {key for key, _ in gone}


def test_a_changed_row_comes_and_its_key_is_not_gone() -> None:
    assert left([(1, "old", -1), (1, "new", 1), (2, "gone", -1), (3, None, 1)]) == ({(1, "new"), (3, None)}, {2})


def test_what_is_written_anew_has_not_changed() -> None:
    assert left([(1, "a", -1), (2, None, -1)], [(2, None, 1), (1, "a", 1)]) == (set(), set())


def test_a_row_that_is_changed_back_has_not_changed() -> None:
    assert left([(1, "a", -1), (1, "b", 1), (1, "b", -1), (1, "a", 1)]) == (set(), set())


def test_of_nothing_nothing_is_left() -> None:
    assert left([]) == (set(), set())
    assert NetChanges.of([], ["id"]).rows == 0


@pytest.mark.parametrize("seed", range(20))
def test_histories_of_any_length_leave_what_differs_between_their_ends(seed: int) -> None:
    drawn = random.Random(seed)
    before = {key: drawn.choice("abc") for key in range(30)}
    now, changes = dict(before), list[Change]()
    for _ in range(200):
        key = drawn.randrange(40)
        if key in now:
            changes.append((key, now.pop(key), -1))
        if drawn.random() < 0.7:
            now[key] = drawn.choice("abc")
            changes.append((key, now[key], 1))
    drawn.shuffle(changes)
    cut = drawn.randrange(len(changes))
    come = {(key, text) for key, text in now.items() if before.get(key) != text}
    assert left(changes[:cut], changes[cut:]) == (come, before.keys() - now.keys())


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.bool_(), [True, False]),
        (pa.int32(), [0, 1, -1]),
        (pa.int64(), [2**53, 2**53 + 1]),
        (pa.float32(), [0.5, float("nan"), -0.5]),
        (pa.float64(), [0.1, 0.2, float("inf")]),
        (pa.decimal128(38, 2), [Decimal("0.01"), Decimal("1.00"), Decimal(10) ** 30]),
        (pa.string(), ["", "a", "aa", "\0"]),
        (pa.binary(), [b"", b"a", b"\0"]),
        (pa.date32(), [date(2026, 1, 1), date(1, 1, 1)]),
        (pa.timestamp("us", "UTC"), [datetime(2026, 1, 1, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)]),
    ],
)
def test_each_value_of_each_type_and_a_null_has_a_number_of_its_own(kind: Any, values: list[Any]) -> None:
    column: Any = pa.array([None, *values, None, *values], kind)
    numbers = row_numbers([column]).tolist()
    half = len(values) + 1
    assert numbers[:half] == numbers[half:]
    assert len(set(numbers)) == half
    # As a part of a longer one, and where there is no null.
    assert row_numbers([column.slice(1)]).tolist() == numbers[1:]
    assert row_numbers([pa.array(values, kind)]).tolist() == numbers[1:half]


def test_columns_do_not_stand_for_one_another() -> None:
    one, other = pa.array([1, None]), pa.array([None, 1])
    assert len(set(row_numbers([one, other]).tolist())) == 2


def test_a_row_without_a_key_has_nothing_that_could_go() -> None:
    net = NetChanges.of([[signed([(1, "a", -1)]), signed([(None, "b", -1)])]], ["id"])  # type: ignore[list-item]  # no key
    assert (len(net.come), len(net.gone), len(net.gone_keys)) == (0, 1, 1)


def test_portions_have_some_bytes_each_and_all_files_in_their_order() -> None:
    sizes = [PORTION_BYTES // 3] * 7 + [2 * PORTION_BYTES, 1]
    found = in_portions(list(enumerate(sizes)), lambda each: each[1])
    assert [[size for _, size in each] for each in found] == [sizes[:4], sizes[4:8], sizes[8:]]
    assert [each for some in found for each in some] == list(enumerate(sizes))
    assert in_portions([], len) == []
