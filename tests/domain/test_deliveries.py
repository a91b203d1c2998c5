"""What becomes of requests: whatever happens in whatever order, none is lost and none is in work twice."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.domain import request_rules
from instep.domain.request_rules import Policy, Slot
from instep.errors import Conflict, Fenced

POLICY = Policy(max_attempts=3, backoff=(5, 50), ack_wait=20)
MOVES = st.lists(
    st.tuples(
        st.sampled_from(
            ["request", "take", "ack", "retry", "postpone", "dead", "extend", "reconcile", "requeue", "late"]
        ),
        st.integers(0, 30),
    ),
    max_size=60,
)


def _move(slot: Slot, name: str, number: int, now: int) -> Slot:
    fence = slot.fence
    match name:
        case "request":
            return request_rules.request(slot, number, now)
        case "take":
            return request_rules.take(slot, POLICY, now) or request_rules.reconcile(slot, now)
        case "ack":
            return request_rules.acknowledge(slot, fence, slot.working or 0, now)
        case "retry":
            return request_rules.retry(slot, fence, POLICY.pause(max(1, slot.attempts)), "bad", now)
        case "postpone":
            return request_rules.postpone(slot, fence, number, now)
        case "dead":
            return request_rules.bury(slot, fence, slot.working or 0, "bad", now)
        case "extend":
            return request_rules.extend(slot, fence, POLICY, now)
        case "reconcile":
            return request_rules.reconcile(slot, now)
        case "requeue":
            return request_rules.requeue(slot, now)
    return request_rules.acknowledge(slot, fence - 1, number, now)


@given(MOVES)
def test_the_newest_request_is_always_somewhere(moves: list[tuple[str, int]]) -> None:
    slot, now, asked = Slot(), 0, -1
    for name, number in moves:
        now += number
        before = slot
        try:
            slot = _move(slot, name, number, now)
        except (Fenced, Conflict):
            continue
        asked = max(asked, number) if name == "request" else asked
        buried = -1 if slot.buried is None else slot.buried.watermark
        places = [slot.done, slot.waiting, slot.working, buried]
        assert slot.seen == asked == max(each for each in places if each is not None)
        assert slot.fence in (before.fence, before.fence + 1)
        assert slot.done >= before.done
        assert 0 <= slot.attempts <= POLICY.max_attempts
        if before.working is not None and now < before.due and slot.fence != before.fence:
            raise AssertionError("taken from somebody who is not silent")


@given(MOVES)
def test_every_sequence_of_deliveries_ends(moves: list[tuple[str, int]]) -> None:
    slot, now = Slot(), 0
    for name, number in moves:
        now += number
        try:
            slot = _move(slot, name, number, now)
        except (Fenced, Conflict):
            continue
    for _ in range(2 * POLICY.max_attempts + 2):  # what is in work, and then what waits
        now = max(now, slot.due)
        slot = request_rules.take(slot, POLICY, now) or request_rules.reconcile(slot, now)
    assert slot.idle


@given(MOVES, st.integers(-1, 40))
def test_forgetting_ends_older_requests_and_keeps_newer_ones(moves: list[tuple[str, int]], asked: int) -> None:
    slot, now = Slot(), 0
    for name, number in moves:
        now += number
        with suppress(Fenced, Conflict):
            slot = _move(slot, name, number, now)
    gone = request_rules.forget(slot, asked)
    assert request_rules.forget(gone, asked) is gone
    assert gone.idle
    assert gone.buried is None
    assert request_rules.request(gone, asked, now) is gone
    if slot.working is not None:
        fence, watermark = slot.fence, slot.working
        answers: list[Callable[[], Slot]] = [
            lambda: request_rules.acknowledge(gone, fence, watermark, now),
            lambda: request_rules.retry(gone, fence, 1, "bad", now),
            lambda: request_rules.postpone(gone, fence, 1, now),
            lambda: request_rules.bury(gone, fence, watermark, "bad", now),
            lambda: request_rules.extend(gone, fence, POLICY, now),
        ]
        for late in answers:
            with pytest.raises(Fenced):
                late()
    newer = request_rules.request(gone, gone.seen + 1, now)
    taken = request_rules.take(newer, POLICY, now)
    assert taken is not None
    assert taken.fence > slot.fence
    assert (taken.working, taken.attempts) == (gone.seen + 1, 1)


def test_pauses_follow_the_policy() -> None:
    assert [POLICY.pause(attempt) for attempt in (1, 2, 3)] == [5, 50, 50]


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_attempts": 0},
        {"backoff": ()},
        {"backoff": (-1,)},
        {"ack_wait": 0},
        {"group": "a"},
        {"limit": 1},
        {"group": "a b", "limit": 1},
    ],
)
def test_an_invalid_policy_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"a policy needs|a group has"):
        Policy(**wrong)  # type: ignore[arg-type]  # wrong on purpose
