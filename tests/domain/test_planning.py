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
    SLICE_ROWS_DEFAULT,
    SLICE_ROWS_MAX,
    SLICE_ROWS_MIN,
    PlanTooLarge,
    SliceSizing,
    check_limits,
    cut_documents,
)


def change(number: int, size: int, bucket: int, action: Action = Action.INSERT) -> DocumentChange:
    return DocumentChange(action, f"doc_{number:08d}", f"file:///{number}", size, "1", bucket, "", "new")


changes = st.lists(
    st.tuples(st.integers(0, 10_000_000), st.integers(0, 3), st.sampled_from(list(Action))), max_size=60
).map(lambda rows: [change(n, size, bucket, action) for n, (size, bucket, action) in enumerate(rows)])


ROW_BYTES = 800


@given(changes, st.integers(1, 100_000), st.floats(0.1, 10))
def test_slices_cover_every_change_once_and_stay_in_one_bucket(
    wanted: list[DocumentChange], slice_rows: int, work_factor: float
) -> None:
    slices = cut_documents(wanted, SliceSizing(ROW_BYTES, slice_rows, work_factor))
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
    slices = cut_documents(wanted, SliceSizing(ROW_BYTES))
    buckets = [(bucket, list(group)) for bucket, group in groupby(slices, key=lambda part: part.bucket)]
    assert len(buckets) == len({each.bucket for each in wanted})
    for _, parts in buckets:
        assert parts[0].lower == ""
        assert parts[-1].upper == ""
        for before, after in pairwise(parts):
            assert before.upper == after.lower != ""
        for part in parts:
            assert not part.lower or not part.upper or part.lower < part.upper
            for each in decode_changes(part.payload):
                assert part.lower <= each.document_id
                assert not part.upper or each.document_id < part.upper


@given(st.integers(1, 30), st.integers(1, 12), st.integers(1, 3))
def test_documents_of_one_size_are_cut_evenly_and_the_rest_is_a_slice_of_its_own(
    count: int, in_a_slice: int, buckets: int
) -> None:
    """The original cut 5 documents at 4 a slice into [0, 4), [4, 5) and then [6, 5)."""
    size = ROW_BYTES * (SLICE_ROWS_MIN // in_a_slice)
    wanted = [change(n, size, n % buckets) for n in range(count)]
    slices = cut_documents(wanted, SliceSizing(ROW_BYTES, SLICE_ROWS_MIN))
    for bucket in range(buckets):
        here = len(range(bucket, count, buckets))
        full, rest = divmod(here, in_a_slice)
        assert [part.units for part in slices if part.bucket == bucket] == [in_a_slice] * full + [rest] * bool(rest)


def test_five_documents_at_four_a_slice() -> None:
    wanted = [change(n, ROW_BYTES * 250, 0) for n in range(5)]
    slices = cut_documents(wanted, SliceSizing(ROW_BYTES, SLICE_ROWS_MIN))
    edge = wanted[4].document_id
    assert [(part.lower, part.upper, part.units) for part in slices] == [("", edge, 4), (edge, "", 1)]


@pytest.mark.parametrize(
    ("slice_rows", "factor", "expected"),
    [(10_000, 1.0, 10_000), (10_000, 1.5, 6_666), (10_000, 0.1, 50_000), (1_000, 2.0, 1_000), (50_000, 0.6, 50_000)],
)
def test_slice_size_is_divided_by_the_work_factor_within_its_limits(
    slice_rows: int, factor: float, expected: int
) -> None:
    assert SliceSizing(ROW_BYTES, slice_rows, factor).rows_per_slice == expected


@given(st.integers(1, 10**9), st.floats(1e-6, 1e6))
def test_slice_size_never_leaves_its_limits(slice_rows: int, factor: float) -> None:
    assert SLICE_ROWS_MIN <= SliceSizing(ROW_BYTES, slice_rows, factor).rows_per_slice <= SLICE_ROWS_MAX
    assert SliceSizing(ROW_BYTES).rows_per_slice == SLICE_ROWS_DEFAULT == 10_000


@pytest.mark.parametrize("share", [0.51, 0.999, 1.5])
@pytest.mark.parametrize("buckets", [1, 97])
def test_slices_grow_rather_than_pass_the_limit_for_one_entity(share: float, buckets: int) -> None:
    """Also when all rows would fit in fewer slices, and only do not because documents stay whole."""
    size = round(ROW_BYTES * SLICE_ROWS_MIN * share)
    many = [change(n, size, n % buckets) for n in range(10_050)]
    slices = cut_documents(many, SliceSizing(ROW_BYTES, SLICE_ROWS_MIN))
    assert MAX_SLICES_PER_ENTITY / 4 < len(slices) <= MAX_SLICES_PER_ENTITY
    assert sum(part.units for part in slices) == len(many)


def test_slices_up_to_the_limit_for_one_entity_do_not_grow() -> None:
    many = [change(n, ROW_BYTES * SLICE_ROWS_MIN, 0) for n in range(MAX_SLICES_PER_ENTITY)]
    assert len(cut_documents(many, SliceSizing(ROW_BYTES, SLICE_ROWS_MIN))) == MAX_SLICES_PER_ENTITY


def test_a_job_over_the_limit_is_refused_with_the_numbers() -> None:
    with pytest.raises(PlanTooLarge, match=r"60,000 slices; the limit is 50,000"):
        check_limits([30_000, 30_000])
    with pytest.raises(PlanTooLarge, match="50,001"):
        check_limits([MAX_SLICES_PER_JOB, 1])
    check_limits([MAX_SLICES_PER_JOB])


def test_a_document_larger_than_a_slice_gets_one_of_its_own() -> None:
    slices = cut_documents([change(1, 10, 0), change(2, 100_000_000, 0), change(3, 10, 0)], SliceSizing(ROW_BYTES))
    assert [part.units for part in slices] == [1, 1, 1]
