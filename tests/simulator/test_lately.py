"""The model of the ledger sums up slices that were completed lately."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from instep.domain.speed import NOTHING_LATELY, WINDOW, Lately
from tests.simulator.model.lately import Completed

NOW = 1_800_000_000_000


@given(st.lists(st.tuples(st.integers(0, WINDOW), st.integers(0, 3 * WINDOW), st.integers(0, 100)), max_size=30))
def test_the_kept_sums_equal_a_sum_over_all_slices(slices: list[tuple[int, int, int]]) -> None:
    now, completed, every = NOW, Completed(), []
    for pause, took, units in slices:
        now += pause
        every.append((now, now - took, units))
        completed.add(*every[-1])
        found = [(claimed, units) for ended, claimed, units in every if ended >= now - WINDOW]
        assert completed.lately(now) == Lately(sum(units for _, units in found), min(claimed for claimed, _ in found))
    assert completed.lately(now + WINDOW + 1) == NOTHING_LATELY
