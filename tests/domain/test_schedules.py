"""Ticks of schedules: each moment lies between two of them, in every zone, on days with 23 and 25 hours too."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.domain.schedules import Schedule, ScheduleError

YEARS = st.integers(1_700_000_000_000, 2_000_000_000_000)
CRONS = st.sampled_from(["* * * * *", "*/5 * * * *", "0 3 * * *", "30 2 * * *", "0 0 * * MON-FRI", "59 23 31 12 *"])
ZONES = st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kolkata", "America/New_York", "Australia/Lord_Howe"])


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)


def shown(tick: int) -> str:
    return datetime.fromtimestamp(tick / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


@given(YEARS, CRONS, ZONES)
def test_each_moment_lies_between_two_ticks(now: int, cron: str, zone: str) -> None:
    schedule = Schedule(cron, zone)
    latest, following = schedule.latest(now), schedule.next(now)
    assert latest <= now < following
    assert schedule.latest(latest) == latest == schedule.latest(following - 1)
    assert schedule.latest(following) == following == schedule.next(latest)


#: Hours that come twice, and the moments around them.
REPEATED = st.sampled_from(["2026-10-25T00:00Z", "2026-11-01T05:00Z", "2026-04-04T14:30Z"])
OFTEN = st.sampled_from(["30 2 * * *", "45 1 * * *", "30 1 * * SUN", "*/15 1-3 * * *", "0 * * * *", "*/20 * * * *"])


@given(REPEATED, st.integers(-60, 300), OFTEN, ZONES)
def test_ticks_never_go_back_in_an_hour_that_comes_twice(hour: str, minutes: int, cron: str, zone: str) -> None:
    schedule, now = Schedule(cron, zone), at(hour) + minutes * 60_000
    latest, following = schedule.latest(now), schedule.next(now)
    assert latest <= now < following
    assert schedule.latest(now - 60_000) <= latest <= schedule.latest(now + 60_000)
    assert schedule.latest(following - 1) == latest
    assert schedule.latest(following) == following


@given(YEARS)
def test_every_five_minutes_are_even_parts_of_the_hour(now: int) -> None:
    assert Schedule("*/5 * * * *").latest(now) == now - now % 300_000


@pytest.mark.parametrize(
    ("zone", "now", "tick"),
    [
        ("UTC", "2026-11-27T02:59:59.999Z", "2026-11-26 03:00:00"),
        ("UTC", "2026-11-27T03:00:00Z", "2026-11-27 03:00:00"),
        ("Europe/Berlin", "2026-11-27T02:00:00Z", "2026-11-27 02:00:00"),
        ("Europe/Berlin", "2026-07-27T02:00:00Z", "2026-07-27 01:00:00"),
    ],
)
def test_ticks_are_by_the_clock_of_the_zone(zone: str, now: str, tick: str) -> None:
    assert shown(Schedule("0 3 * * *", zone).latest(at(now))) == tick


@pytest.mark.parametrize(
    ("day", "ticks"),
    [
        ("2026-03-28T12:00:00Z", ["2026-03-29 01:00:00", "2026-03-30 00:30:00"]),
        ("2026-10-24T12:00:00Z", ["2026-10-25 00:30:00", "2026-10-26 01:30:00"]),
    ],
    ids=["skipped hour", "repeated hour"],
)
def test_a_daily_tick_comes_once_a_day_when_clocks_are_changed(day: str, ticks: list[str]) -> None:
    schedule, found, now = Schedule("30 2 * * *", "Europe/Berlin"), [], at(day)
    for _ in ticks:
        now = schedule.next(now)
        found.append(shown(now))
    assert found == ticks


@pytest.mark.parametrize(
    ("cron", "zone", "why"),
    [
        ("* * * *", "UTC", "five fields"),
        ("*/5 * * * * *", "UTC", "five fields"),
        ("", "UTC", "five fields"),
        ("61 * * * *", "UTC", "bad minute"),
        ("0 0 30 2 *", "UTC", "bad day-of-month"),
        ("* * * * *", "Mars/Olympus", "not a time zone"),
        ("* * * * *", "../../etc/passwd", "not a time zone"),
        ("* * * * *", "", "not a time zone"),
    ],
)
def test_what_is_no_schedule_is_refused(cron: str, zone: str, why: str) -> None:
    with pytest.raises(ScheduleError, match=why):
        Schedule(cron, zone)
