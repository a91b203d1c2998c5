"""Cuts: nothing lost, nothing twice, one bucket each, bounds without gap or overlap."""

from __future__ import annotations

from itertools import groupby, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.domain.manifest import Action, DocumentChange, decode_changes
from instep.domain.planning import (
    MAX_SLICES_PER_ENTITY,
    MAX_SLICES_PER_JOB,
    Pace,
    PlanTooLarge,
    SliceSizing,
    check_limits,
    cut_documents,
    learned_pace,
    wave_work,
)


def change(number: int, size: int, bucket: int, action: Action = Action.INSERT) -> DocumentChange:
    return DocumentChange(action, f"doc_{number:08d}", f"file:///{number}", size, "1", bucket, "", "new")


changes = st.lists(
    st.tuples(st.integers(0, 10_000_000), st.integers(0, 3), st.sampled_from(list(Action))), max_size=60
).map(lambda rows: [change(n, size, bucket, action) for n, (size, bucket, action) in enumerate(rows)])


@given(changes, st.integers(1, 100_000), st.floats(0.1, 10))
def test_slices_cover_every_change_once_and_stay_in_one_bucket(
    wanted: list[DocumentChange], slice_rows: int, work_factor: float
) -> None:
    slices = cut_documents(wanted, SliceSizing(800, slice_rows, work_factor))
    found = [each for part in slices for each in decode_changes(part.payload)]
    assert sorted(found) == sorted(wanted)
    assert [part.index for part in slices] == list(range(len(slices)))
    for part in slices:
        inside = decode_changes(part.payload)
        assert {each.bucket for each in inside} == {part.bucket}
        assert part.units == len(inside) > 0
        assert part.work > 0


@given(changes)
def test_bounds_of_a_bucket_are_open_ended_and_leave_neither_gap_nor_overlap(wanted: list[DocumentChange]) -> None:
    slices = cut_documents(wanted, SliceSizing(800))
    for _, group in groupby(slices, key=lambda part: part.bucket):
        parts = list(group)
        assert parts[0].lower == ""
        assert parts[-1].upper == ""
        for before, after in pairwise(parts):
            assert before.upper == after.lower != ""
        for part in parts:
            for each in decode_changes(part.payload):
                assert part.lower <= each.document_id
                assert not part.upper or each.document_id < part.upper


@pytest.mark.parametrize(
    ("slice_rows", "factor", "expected"),
    [(10_000, 1.0, 10_000), (10_000, 1.5, 6_666), (10_000, 0.1, 50_000), (1_000, 2.0, 1_000), (50_000, 0.6, 50_000)],
)
def test_slice_size_is_divided_by_the_work_factor_within_its_limits(
    slice_rows: int, factor: float, expected: int
) -> None:
    assert SliceSizing(800, slice_rows, factor).rows_per_slice == expected


def test_slices_grow_rather_than_pass_the_limit_for_one_entity() -> None:
    many = [change(n, 800 * 9_999, 0) for n in range(10_050)]
    slices = cut_documents(many, SliceSizing(800))
    assert len(slices) <= MAX_SLICES_PER_ENTITY
    assert sum(part.units for part in slices) == len(many)


def test_a_job_over_the_limit_is_refused_with_the_numbers() -> None:
    with pytest.raises(PlanTooLarge, match=r"60,000 slices; the limit is 50,000"):
        check_limits([30_000, 30_000])
    check_limits([MAX_SLICES_PER_JOB])


def test_a_document_larger_than_a_slice_gets_one_of_its_own() -> None:
    slices = cut_documents([change(1, 10, 0), change(2, 100_000_000, 0), change(3, 10, 0)], SliceSizing(800))
    assert [part.units for part in slices] == [1, 1, 1]


def test_pace_follows_what_is_measured() -> None:
    pace = Pace(1.0, 1_000)
    assert pace.seconds(5_000) == 6.0
    assert wave_work(pace, 10) == 10_000
    assert learned_pace(pace, 3_000, 1.0).work_per_second == 2_000
    assert learned_pace(pace, 0, 1.0) == pace
