"""The order of claims, when and how many at once, and how far that is from the best."""

from __future__ import annotations

import itertools
import math
from heapq import heapify, heapreplace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.domain.jobs import SlicePlan
from instep.domain.planning import (
    SLICE_ROWS_MAX,
    WAVE_SECONDS,
    Pace,
    claim_order,
    claimable_at,
    fair_share,
    learned_pace,
    lpt_bound,
    too_long,
    wave_work,
)


def planned(index: int, work: int, priority: int = 40) -> SlicePlan:
    return SlicePlan(index, 0, "", "", 1, work, priority, b"")


plans = st.lists(st.tuples(st.integers(1, 5), st.sampled_from([20, 40, 100])), max_size=30).flatmap(
    lambda rows: st.permutations([planned(index, *row) for index, row in enumerate(rows)])
)


@given(plans)
def test_claims_go_by_priority_then_work_then_number(slices: list[SlicePlan]) -> None:
    order = claim_order(slices)
    assert sorted(order) == list(range(len(slices)))
    keys = [(-slices[at].priority, -slices[at].work, slices[at].index) for at in order]
    assert keys == sorted(keys)


def test_a_document_that_is_larger_than_any_slice_comes_last_of_its_priority() -> None:
    giant, urgent = planned(0, SLICE_ROWS_MAX + 1), planned(1, SLICE_ROWS_MAX + 1, priority=50)
    slices = [giant, planned(2, 1), urgent, planned(3, SLICE_ROWS_MAX)]
    assert [slices[at].index for at in claim_order(slices)] == [1, 3, 2, 0]


@given(plans)
def test_the_order_of_claims_does_not_depend_on_the_order_of_the_list(slices: list[SlicePlan]) -> None:
    named = [slices[at].index for at in claim_order(slices)]
    again = sorted(slices, key=lambda each: each.index)
    assert named == [again[at].index for at in claim_order(again)]


@given(st.integers(1, 300), st.integers(0, 10**13), st.integers(0, 60_000))
def test_the_first_half_is_claimable_at_once_and_the_rest_evenly_up_to_the_stagger(
    count: int, now: int, stagger: int
) -> None:
    times = [claimable_at(place, count, now, stagger) for place in range(count)]
    assert times == sorted(times)
    at_once = math.ceil(count / 2)
    assert set(times[:at_once]) == {now}
    later = times[at_once:]
    if later:
        assert later[-1] == now + stagger
        steps = [after - before for before, after in itertools.pairwise([now, *later])]
        assert max(steps) - min(steps) <= 1
    assert stagger or set(times) == {now}


def test_a_small_stagger_by_hand() -> None:
    assert [claimable_at(place, 5, 100, 10) for place in range(5)] == [100, 100, 100, 105, 110]
    assert [claimable_at(place, 1, 100, 10) for place in range(1)] == [100]


@given(st.integers(0, 10**6), st.integers(0, 10**5))
def test_a_fair_share_leaves_one_for_every_other_worker_while_there_is_one(pending: int, workers: int) -> None:
    share = fair_share(pending, workers)
    assert share >= 1
    assert (share - 1) * max(1, workers) < max(1, pending) <= share * max(1, workers)


@given(st.integers(1, 2_000), st.integers(1, 50))
def test_fair_shares_end_in_single_slices(pending: int, workers: int) -> None:
    """Guided self-scheduling: shares never grow, and the last `workers` slices go one by one."""
    shares = []
    while pending:
        shares.append(fair_share(pending, workers))
        assert shares[-1] == 1 or pending > workers
        pending -= shares[-1]
    assert pending == 0
    assert shares == sorted(shares, reverse=True)


def shortest_makespan(works: list[int], workers: int) -> int:
    """By trying every way to deal out the work."""
    return min(
        max(sum(work for work, who in zip(works, deal, strict=True) if who == worker) for worker in range(workers))
        for deal in itertools.product(range(workers), repeat=len(works))
    )


def makespan(works: list[int], workers: int) -> int:
    """Each worker takes the next one as soon as it is free."""
    free = [0] * workers
    heapify(free)
    for work in works:
        heapreplace(free, free[0] + work)
    return max(free)


@given(st.lists(st.integers(1, 20), min_size=1, max_size=6), st.integers(1, 3))
def test_the_bound_is_below_the_best_and_the_order_of_claims_near_it(works: list[int], workers: int) -> None:
    best = shortest_makespan(works, workers)
    assert lpt_bound(works, workers) <= best
    order = claim_order([planned(index, work) for index, work in enumerate(works)])
    reached = makespan([works[at] for at in order], workers)
    assert best <= reached <= (4 / 3 - 1 / (3 * workers)) * best + 1e-9


def test_the_bound_by_hand() -> None:
    assert lpt_bound([], 3) == 0
    assert lpt_bound([9, 1, 1], 3) == 9
    assert lpt_bound([4, 4, 4, 4], 2) == 8
    assert lpt_bound([5], 0) == 5


def test_the_pace_follows_the_measured_speed() -> None:
    pace = Pace(1.0, 1_000)
    assert pace.seconds(5_000) == 6.0
    assert wave_work(pace, 10) == 10_000
    assert learned_pace(pace, 3_000, 1.0).work_per_second == 2_000
    assert learned_pace(pace, 0, 1.0) == pace


@pytest.mark.parametrize("start", [0.0, 60.0])
@pytest.mark.parametrize(("idle", "waves"), [(True, 2), (False, 15)])
def test_a_slice_of_several_waves_is_too_long_unless_it_cannot_be_cut(start: float, idle: bool, waves: int) -> None:
    pace = Pace(start, 1_000)
    limit = round(waves * WAVE_SECONDS * 1_000)
    assert not too_long(limit, 2, pace, idle=idle)
    assert too_long(limit + 1, 2, pace, idle=idle)
    assert not too_long(limit * 100, 1, pace, idle=idle)
    assert not too_long(limit * 100, 0, pace, idle=idle)
