"""The life of a key between its reading and its acknowledgement."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from instep.domain.key_leases import (
    ATTEMPTS,
    KEY_LEASE_TRANSITIONS,
    LONGEST_PAUSE,
    KeyLease,
    KeyLeaseState,
    Refusal,
    Terms,
    extend,
    fail,
    forget,
    lease,
    release,
    retry_share,
    unpark,
)

_NAMES = st.sampled_from(["lease", "retry", "extend", "fail", "fail unleased", "release", "forget", "unpark"])
_STEPS = st.lists(st.tuples(_NAMES, st.integers(0, LONGEST_PAUSE), st.integers(0, 1)), max_size=60)


def _step(hold: KeyLease | None, name: str, fence: int, shown: int, now: int) -> KeyLease | Refusal | None:
    match name:
        case "lease" | "retry":
            return lease(hold, Terms(fence, "ann", now, now + 60_000), retries=name == "retry") or hold
        case "extend":
            return extend(hold, shown, now + 60_000)
        case "fail":
            return fail(hold, shown, "no luck", now)
        case "fail unleased":
            return fail(hold, None, "no luck", now)
        case "release":
            return release(hold, shown, now)
        case "forget":
            return forget(hold, shown)
    return hold and unpark(hold, now)


def _state(hold: KeyLease | None) -> KeyLeaseState | None:
    return hold.state if hold is not None else None


@given(_STEPS)
def test_a_key_makes_only_the_moves_that_are_allowed(steps: list[tuple[str, int, int]]) -> None:
    hold: KeyLease | None = None
    now = 0
    for fence, (name, later, old) in enumerate(steps, 1):
        now += later
        after = _step(hold, name, fence, (hold.fence if hold else 0) - old, now)
        if isinstance(after, Refusal) or after == hold:
            continue
        assert _state(after) in KEY_LEASE_TRANSITIONS[_state(hold)], (hold, name, after)
        if hold is not None and after is not None:
            assert after.fence >= hold.fence
            assert 0 <= after.attempts - hold.attempts <= 1
        if hold is not None and hold.holder is not None and not hold.is_due(now):
            assert old == 0, "only its holder changes what is leased"
        if after is not None:
            assert (after.state is KeyLeaseState.PARKED) <= (after.attempts > 0 and after.attempts % ATTEMPTS == 0)
        hold = after


@given(st.integers(1, 5_000), st.floats(0, 1, exclude_max=True))
def test_a_tenth_of_all_that_is_given_may_be_retries(limit: int, draw: float) -> None:
    assert limit // 10 <= retry_share(limit, draw) <= min(limit, limit // 10 + 1)
    assert abs(sum(retry_share(limit, each / 10) for each in range(10)) - limit) < 1e-9, "on an average, exactly"


def test_a_key_released_by_a_person_has_all_its_attempts_again() -> None:
    hold: KeyLease | None = None
    states = []
    for attempt in range(2 * ATTEMPTS):
        failed = fail(hold, None, "no luck", attempt * 2 * LONGEST_PAUSE)
        assert isinstance(failed, KeyLease)
        states.append(failed.state)
        hold = unpark(failed, failed.since)
    assert states == 2 * ([KeyLeaseState.WAITING] * (ATTEMPTS - 1) + [KeyLeaseState.PARKED])


def test_a_lease_never_gets_shorter() -> None:
    leased = lease(None, Terms(1, "ann", 0, 60_000), retries=False)
    longer = extend(leased, 1, 90_000)
    assert isinstance(longer, KeyLease)
    assert longer.due == 90_000
    assert extend(longer, 1, 70_000) == longer
