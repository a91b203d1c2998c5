"""How the documents of a wave are dealt to tasks: evenly, whatever buckets, slices and sizes are like."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.domain.manifest import Action, DocumentChange
from instep.domain.waves import WaveSlice, assign_tasks


def slices_of(sizes: Sequence[int], *, buckets: int, in_a_slice: int) -> list[WaveSlice]:
    """Documents of so many bytes, which are as much work each, in slices of their buckets."""
    found = list[WaveSlice]()
    for bucket in range(buckets):
        mine = [
            DocumentChange(Action.INSERT, f"d{at}", f"file:///d{at}", size - 1, "1", bucket, "", "new")
            for at, size in enumerate(sizes)
            if at % buckets == bucket
        ]
        for start in range(0, len(mine), in_a_slice):
            some = mine[start : start + in_a_slice]
            found.append(WaveSlice(f"s{len(found)}", 1, bucket, sum(each.size + 1 for each in some), some))
    return found


class Columns(list[DocumentChange]):
    """Changes that tell their work without one being made, as those in columns do."""

    def __iter__(self) -> Iterator[DocumentChange]:
        raise AssertionError("a document is made")

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        return Columns(found) if isinstance(at, slice) else found

    def sizes(self) -> list[int]:
        return [each.size + 1 for each in super().__iter__()]


def documents(share: Sequence[WaveSlice]) -> list[str]:
    return [each.document_id for part in share for each in part.changes]


def work(share: Sequence[WaveSlice]) -> int:
    return sum(each.work for each in share)


EQUAL = [200] * 1_600
ZIPF = [max(1, 100_000 // place) for place in range(1, 1_601)]


@pytest.mark.parametrize("buckets", [1, 2, 16])
@pytest.mark.parametrize("in_a_slice", [1, 7, 1_600])
@pytest.mark.parametrize("tasks", [2, 4, 20])
def test_equal_documents_are_equal_shares_and_every_task_has_one(buckets: int, in_a_slice: int, tasks: int) -> None:
    shares = assign_tasks(slices_of(EQUAL, buckets=buckets, in_a_slice=in_a_slice), tasks)
    assert len(shares) == tasks
    assert max(map(work, shares)) / (sum(EQUAL) / tasks) < 1.02


def test_a_document_that_is_half_of_all_work_is_alone_and_begun_first() -> None:
    giant, *others = assign_tasks(slices_of([*EQUAL, sum(EQUAL)], buckets=16, in_a_slice=100), 8)
    assert documents(giant) == ["d1600"]
    assert len(others) >= 4
    assert max(map(work, others)) < sum(EQUAL) / 4 * 1.02


def test_few_tasks_meet_in_a_bucket() -> None:
    shares = assign_tasks(slices_of(EQUAL, buckets=16, in_a_slice=10), 4)
    assert [len({each.bucket for each in share}) for share in shares] == [4, 4, 4, 4]


@given(
    st.lists(st.one_of(st.integers(1, 50), st.sampled_from(ZIPF)), min_size=1, max_size=60),
    st.integers(1, 5),
    st.integers(1, 20),
    st.integers(1, 12),
)
def test_each_document_has_one_task_and_no_share_is_larger_than_an_even_one_by_more_than_a_document(
    sizes: list[int], buckets: int, in_a_slice: int, tasks: int
) -> None:
    slices = slices_of(sizes, buckets=buckets, in_a_slice=in_a_slice)
    shares = assign_tasks(slices, tasks)
    assert 1 <= len(shares) <= tasks
    assert all(documents(share) for share in shares)
    assert Counter(each for share in shares for each in documents(share)) == Counter(
        each.document_id for part in slices for each in part.changes
    )
    assert {(part.slice_id, part.fence) for share in shares for part in share} == {
        (p.slice_id, p.fence) for p in slices
    }
    rounding = sum(map(len, shares))
    assert max(map(work, shares)) <= sum(sizes) / tasks + max(sizes) + rounding
    assert list(map(work, shares)) == sorted(map(work, shares), reverse=True)


@given(st.lists(st.integers(1, 10_000), min_size=2, max_size=60), st.integers(1, 5))
def test_documents_in_columns_are_dealt_as_others_are(sizes: list[int], tasks: int) -> None:
    slices = slices_of(sizes, buckets=2, in_a_slice=20)
    columns = [replace(each, changes=Columns(each.changes)) for each in slices]
    dealt = [
        [(part.slice_id, part.work, len(part.changes)) for part in share] for share in assign_tasks(columns, tasks)
    ]
    assert dealt == [
        [(part.slice_id, part.work, len(part.changes)) for part in share] for share in assign_tasks(slices, tasks)
    ]
