"""The breaker against a model that remembers everything, its boundaries, and pauses within bounds."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from instep.domain.retries import FAILURES, PROBE_SECONDS, WINDOW_SECONDS, Backoff, Breaker


def failing(*times: float) -> Breaker:
    breaker = Breaker()
    for now in times:
        breaker = breaker.failed(now)
    return breaker


def test_the_constants_are_the_seeds() -> None:
    assert (FAILURES, WINDOW_SECONDS, PROBE_SECONDS) == (5, 30.0, 10.0)


def test_five_failures_open_it_until_a_probe_is_due() -> None:
    assert failing(0, 1, 2, 3).wait(3) == 0
    opened = failing(0, 1, 2, 3, 4)
    assert opened.wait(4) == 10
    assert opened.wait(13.5) == 0.5
    assert opened.wait(14) == 0
    assert opened.wait(1_000) == 0


def test_failures_count_together_within_the_window_only() -> None:
    assert failing(0, 1, 2, 3, 30).wait(30) == 10
    assert failing(0, 1, 2, 3, 30.001).wait(30.001) == 0
    assert failing(0, 1, 2, 3, 30.001, 31).wait(31) == 10


def test_a_failed_probe_opens_it_again_and_a_good_one_closes_it() -> None:
    opened = failing(0, 0, 0, 0, 0)
    again = opened.failed(10)
    assert again.wait(10) == 10
    assert again.failed(20).wait(25) == 5
    closed = opened.succeeded()
    assert closed == Breaker()
    assert closed.failed(10).wait(10) == 0


def test_a_try_that_began_before_it_opened_does_not_put_the_probe_off() -> None:
    assert failing(0, 0, 0, 0, 0).failed(9.999).wait(9.999) == pytest.approx(0.001)


def test_a_success_in_between_forgets_the_failures() -> None:
    assert failing(0, 1, 2, 3).succeeded().failed(4).wait(4) == 0


@dataclass
class _Model:
    """All failures since the last success, and when it opened last."""

    failures: list[float] = field(default_factory=list)
    opened: float | None = None

    def wait(self, now: float) -> float:
        return 0.0 if self.opened is None else max(0.0, self.opened + 10 - now)

    def failed(self, now: float) -> None:
        self.failures.append(now)
        if self.opened is not None:
            if self.wait(now) == 0:
                self.opened = now
        elif sum(now - each <= 30 for each in self.failures) >= 5:
            self.opened = now


class BreakerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.breaker = Breaker()
        self.model = _Model()
        self.now = 0.0

    # Quarters of seconds, so that boundaries are hit exactly.
    @rule(quarters=st.sampled_from([0, 1, 4, 39, 40, 41, 119, 120, 121]))
    def time_passes(self, quarters: int) -> None:
        self.now += quarters / 4

    @rule()
    def a_try_fails(self) -> None:
        self.breaker = self.breaker.failed(self.now)
        self.model.failed(self.now)

    @rule()
    def a_try_succeeds(self) -> None:
        self.breaker = self.breaker.succeeded()
        self.model = _Model()

    @invariant()
    def waits_as_the_model(self) -> None:
        assert self.breaker.wait(self.now) == self.model.wait(self.now)
        assert 0 <= self.breaker.wait(self.now) <= PROBE_SECONDS

    @invariant()
    def remembers_little(self) -> None:
        assert len(self.breaker.failures) < FAILURES


TestBreakerMachine = BreakerMachine.TestCase


@given(
    st.floats(0.001, 10),
    st.floats(0.001, 100),
    st.integers(1, 10_000),
    st.sampled_from(["full", "equal"]),
    st.integers(0, 10**6),
)
def test_pauses_stay_within_their_bounds(
    base: float, maximum: float, tried: int, jitter: Literal["full", "equal"], seed: int
) -> None:
    longest = min(maximum, base * 2 ** min(tried - 1, 60))
    pause = Backoff(base, maximum, random.Random(seed).random, jitter).pause(tried)
    assert (longest / 2 if jitter == "equal" else 0) <= pause <= longest


@pytest.mark.parametrize(("jitter", "expected"), [("full", [0.0] * 5), ("equal", [0.25, 0.5, 1.0, 2.0, 4.0])])
def test_the_shortest_pauses_double_up_to_the_maximum(jitter: Literal["full", "equal"], expected: list[float]) -> None:
    backoff = Backoff(0.5, 8.0, lambda: 0.0, jitter)
    assert [backoff.pause(tried) for tried in range(1, 6)] == expected
    assert backoff.pause(6) == expected[-1]


def test_jitter_spreads_workers_that_failed_together() -> None:
    pauses = {Backoff(1.0, 8.0, random.Random(seed).random).pause(3) for seed in range(50)}
    assert len(pauses) == 50
    assert max(pauses) - min(pauses) > 1
