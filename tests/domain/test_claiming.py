"""The order of claims, when and how many at once, and how far that is from the best."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from heapq import heapify, heapreplace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.domain.jobs import SlicePlan
from instep.domain.planning import (
    LEAST_TASK_SECONDS,
    SLICE_ROWS_MAX,
    TASK_SECONDS,
    WAVE_SECONDS,
    Pace,
    claim_order,
    claimable_at,
    fair_share,
    learned_pace,
    lpt_bound,
    most_claims,
    tasks_of,
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


@pytest.mark.parametrize("work", [10_000, 777])
def test_the_first_claims_of_equal_documents_are_spread_over_all_buckets(work: int) -> None:
    """As planned they come bucket by bucket: a wave of 64 lay in one."""
    slices = [SlicePlan(at, at // 100, "", "", 1, work, 40, b"") for at in range(1_600)]
    first = claim_order(slices)[:64]
    assert Counter(slices[at].bucket for at in first) == dict.fromkeys(range(16), 4)


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
    assert wave_work(pace) == 10_000
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


SECOND = Pace(0.0, 4_000.0, 4)


@pytest.mark.parametrize(
    ("seconds", "tasks"),
    [(0.01, 1), (0.06, 1), (0.13, 2), (0.25, 4), (0.5, 4), (2, 4), (2.1, 8), (10, 20), (9.9, 20), (100, 200)],
)
def test_tasks_last_two_seconds_are_as_many_for_each_core_and_few_of_little(seconds: float, tasks: int) -> None:
    assert tasks_of(round(seconds * SECOND.work_per_second), SECOND) == tasks


@given(st.integers(1, 10**9), st.integers(1, 10**6), st.integers(1, 512))
def test_no_core_is_idle_where_a_task_pays_and_no_task_outlasts_its_goal(work: int, speed: int, cores: int) -> None:
    pace = Pace(0.0, float(speed), cores)
    tasks = tasks_of(work, pace)
    of_a_task = work * cores / speed / tasks
    assert tasks % cores == 0 or of_a_task < 2 * LEAST_TASK_SECONDS
    assert of_a_task <= TASK_SECONDS * 1.001


@pytest.mark.parametrize(("cores", "most"), [(1, 64), (7, 64), (8, 128), (32, 512), (4_096, 512)])
def test_a_machine_with_more_cores_claims_more_at_once(cores: int, most: int) -> None:
    assert most_claims(64, Pace(0.0, 1.0, cores)) == most
