"""A simulated job ends soon after the lower bound, every slice is done once, and the same seed gives the same."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from bench.makespan import GOAL, Case, Result, Simulation, cases


@pytest.fixture(scope="module")
def results() -> Mapping[str, Result]:
    return {case.name: Simulation(case).run() for case in cases(100, 1_000)}


def test_with_equal_workers_the_makespan_is_near_the_bound(results: Mapping[str, Result]) -> None:
    promised = [each for each in results.values() if each.case.goal]
    assert [each.case.name for each in promised] == ["lognormal works, equal speeds", "Zipf works, equal speeds"]
    for each in promised:
        assert 1 <= each.ratio <= GOAL
        assert each.met


def test_every_slice_is_completed_once(results: Mapping[str, Result]) -> None:
    for each in results.values():
        assert each.completed >= len(each.case.works), "halves count too"
        assert each.ratio >= 1


def test_waits_are_those_for_the_ledger_once_there_is_work(results: Mapping[str, Result]) -> None:
    for each in results.values():
        assert 0 < each.wait(50) <= each.wait(99)


def test_the_same_seed_gives_the_same(results: Mapping[str, Result]) -> None:
    case = cases(100, 1_000)[0]
    again = Simulation(case).run()
    before = results[case.name]
    assert (again.makespan, again.waits) == (before.makespan, before.waits)


def test_bounds_by_hand() -> None:
    assert Case("", [9, 1, 1], [1.0, 1.0]).bound == 9
    assert Case("", [4, 4, 4, 4], [2.0, 2.0]).bound == 4
    assert Case("", [8, 2], [4.0, 1.0]).bound == 2
