"""How fast work goes now: steady, slow to start, paused, resumed, in bursts, and while a clock stands still."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.domain.speed import NOTHING_LATELY, WINDOW, Cpu, Lately, Meter, seconds_left

NOW = 1_800_000_000_000
MINUTE = 60_000


def metered(*advances: tuple[float, int], until: float | None = None) -> float | None:
    """The rate after advances by so many units at so many seconds."""
    meter = Meter(0.0)
    for at, units in advances:
        meter.advance(units, at)
    return meter.rate(advances[-1][0] if until is None else until)


# Of slices.


def test_nothing_lately_is_no_rate() -> None:
    assert NOTHING_LATELY.rate(NOW) is None
    assert Lately(0, NOW - 1_000).rate(NOW) is None


def test_speed_counts_from_the_first_claim_in_the_window() -> None:
    """So the time before a start, or a resume, is left out; and one slice is enough."""
    assert Lately(30, NOW - 10_000).rate(NOW) == 3.0
    assert Lately(30, NOW - WINDOW).rate(NOW) == Lately(30, NOW - 10 * WINDOW).rate(NOW) == 0.1


@pytest.mark.parametrize("since", [NOW, NOW + 5])
def test_a_clock_that_stands_still_or_lags_says_nothing(since: int) -> None:
    assert Lately(30, since).rate(NOW) is None


def test_parts_add_up() -> None:
    parts = [Lately(10, NOW - 9_000), NOTHING_LATELY, Lately(20, NOW - 10_000)]
    assert sum(parts, NOTHING_LATELY) == Lately(30, NOW - 10_000)


def test_time_left() -> None:
    assert seconds_left(100, 40, 2.0) == 30.0
    assert seconds_left(100, 100, 2.0) is None
    assert seconds_left(100, 140, 2.0) is None
    assert seconds_left(None, 40, 2.0) is None
    assert seconds_left(100, 40, None) is None


# Of who is told of each advance.


def test_a_steady_rate_is_found_at_once_and_stays() -> None:
    steady = [(float(second), 20) for second in range(1, 3_600)]
    for end in (4, 10, 60, 299, 300, 301, 3_599):
        assert metered(*steady[:end]) == pytest.approx(20, rel=0.01)


def test_only_the_window_counts() -> None:
    slow = [(float(second), 1) for second in range(1, 3_000)]
    quick = [(float(second), 50) for second in range(3_000, 3_302)]
    assert metered(*slow, *quick) == pytest.approx(50, rel=0.01)
    assert metered(*slow, until=2_999 + 2 * WINDOW / 1_000) is None, "it has come to a halt"


def test_a_slow_start_is_left_out_once_as_much_time_has_passed() -> None:
    start = [(40.0 + 5 * step, 50) for step in range(20)]
    assert metered(start[0]) == 50 / 40, "all that is known"
    assert metered(*start[:10]) == pytest.approx(10, rel=0.01)


def test_work_done_before_a_resume_does_not_count_as_speed() -> None:
    assert metered((0.1, 1_000_000)) is None
    assert metered((0.1, 1_000_000), (10.1, 100)) == 10
    assert metered((0.1, 1_000_000), (10.1, 100), (20.1, 100), (30.1, 100)) == pytest.approx(10)


def test_a_pause_shows_and_is_forgotten() -> None:
    before = [(10.0 * step, 100) for step in range(1, 31)]
    assert metered(*before, until=300.0) == pytest.approx(10)
    halting = metered(*before, until=420.0)
    assert halting is not None
    assert 5 < halting < 8
    after = [(1_200.0 + 10 * step, 100) for step in range(31)]
    assert metered(*before, *after) == pytest.approx(10, rel=0.05)


def test_waves_of_several_workers_at_once_are_no_bursts() -> None:
    waves = [(10.0 * wave + 0.3 * worker, 100) for wave in range(1, 12) for worker in range(4)]
    for end in (8, 12, 20, 44):
        assert metered(*waves[:end]) == pytest.approx(40, rel=0.12)


def test_a_single_advance_counts_from_the_beginning_and_a_standing_clock_says_nothing() -> None:
    assert metered((10.0, 30)) == 3
    assert metered((0.0, 30), (0.0, 30)) is None
    assert Meter(5.0).rate(5.0) is None
    assert Meter(5.0).rate(50.0) is None


@given(st.lists(st.tuples(st.floats(0, 400), st.integers(0, 1_000)), min_size=1, max_size=200))
def test_the_rate_is_never_negative_and_keeps_few_marks(advances: list[tuple[float, int]]) -> None:
    meter, now = Meter(0.0), 0.0
    for pause, units in advances:
        now += pause
        meter.advance(units, now)
        rate = meter.rate(now)
        assert rate is None or rate > 0
        assert len(meter._marks) <= WINDOW / 2_000 + 3
    assert meter.done == sum(units for _, units in advances)


def test_the_share_of_the_driver_counts_its_cpu_once_and_that_of_all_tasks() -> None:
    first, second = Cpu(1.0, 3.0), Cpu(2.0, 5.0)  # The driver's is of the whole run.
    assert second.after(first) == Cpu(2.0, 8.0)
    assert second.after(None) == second
    assert second.after(first).share == 0.2
