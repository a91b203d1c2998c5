"""Two workers on one slice: every order of their store and target calls, with crashes or a stall anywhere."""

from __future__ import annotations

import pytest

from .exhaustive import Scope, explore


@pytest.mark.proof
@pytest.mark.parametrize(
    ("scope", "states"),
    [
        pytest.param(Scope(crashes=2), 2_000, marks=pytest.mark.long),
        pytest.param(Scope(crashes=2, one_host=True), 2_000, marks=pytest.mark.long),
        # A worker is stopped until it is taken for dead, and wakes up before any later call of the other.
        pytest.param(Scope(stalls=1, switches=1), 4_000, marks=pytest.mark.long),
        # The slice is worn out in between: looked up, then split or given up.
        (Scope(stalls=1, switches=1, documents=2, attempts=2), 4_000),
        pytest.param(Scope(stalls=1, switches=1, attempts=3), 4_000, marks=pytest.mark.long),
        pytest.param(Scope(crashes=2, attempts=3), 2_000, marks=pytest.mark.long),
    ],
    ids=str,
)
def test_nothing_breaks_in_a_small_scope(scope: Scope, states: int) -> None:
    found = explore(scope)
    told = [f"{[tuple(each) for each in choices]}: {broken}" for choices, broken in found.broken]
    assert told == []
    print(f"{scope}: {found.runs:,} runs, {found.states:,} states, {dict(found.counters)}")
    assert found.states > states, "less was looked at than there was"
    assert found.counters["refused by ledger"]
    assert found.counters["takeovers"]
