"""States of instances and wants: where each can go, and what satisfies a want."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from instep.domain.instances import INSTANCE_TRANSITIONS, Instance, InstanceState, Reason
from instep.domain.wants import WANT_TRANSITIONS, Want, WantState, state_of, watermark_needed

NOT_SATISFYING = [each for each in InstanceState if each not in (InstanceState.LIVE, InstanceState.REFRESHING)]


def instance(state: InstanceState, watermark: int | None = None, waits: tuple[str, ...] = ()) -> Instance:
    return Instance("u", "A@global", "", 1, None, Reason.FIRST, state, 0, watermark=watermark, waits=waits)


def want(refs: int = 1, needed: int | None = None) -> Want:
    return Want("w", tuple(f"A@{each}" for each in range(refs)), "", WantState.IDLE, 0, needed)


def test_every_state_says_where_it_can_go_and_only_ended_wants_are_final() -> None:
    assert set(WANT_TRANSITIONS) == set(WantState)
    assert set(INSTANCE_TRANSITIONS) == set(InstanceState)
    for state, moves in WANT_TRANSITIONS.items():
        assert (moves <= {WantState.CANCELED}) == state.ended
        assert state not in moves
    final = {state for state, moves in INSTANCE_TRANSITIONS.items() if not moves}
    assert final == {InstanceState.TAINTED, InstanceState.EXPIRED, InstanceState.FAILED}


def test_the_watermark_that_a_want_needs() -> None:
    assert watermark_needed(1000, None, None) is None
    assert watermark_needed(1000, 300, None) == 700
    assert watermark_needed(1000, None, 500) == 500
    assert watermark_needed(1000, 300, 500) == 700
    assert watermark_needed(1000, 600, 500) == 500


def test_a_want_of_a_partition_never_built_is_idle() -> None:
    assert state_of(None, [None]) == (WantState.IDLE, ())


instances = st.none() | st.builds(
    instance,
    st.sampled_from(InstanceState),
    st.integers(0, 3),
    st.sampled_from([(), ("x",), ("x", "y")]),
)


@given(st.lists(instances, min_size=1, max_size=4), st.none() | st.integers(0, 3))
def test_the_state_follows_from_those_that_do_not_satisfy(current: list[Instance | None], needed: int | None) -> None:
    wish = want(len(current), needed)
    rest = [each for each in current if not wish.satisfied_by(each)]
    state, waits = state_of(needed, current)
    assert (state is WantState.SUCCESSFUL) == (not rest)
    assert (state is WantState.UPSTREAM_BUILDING) == any(each is not None and each.waits for each in rest)
    assert bool(waits) == (state is WantState.UPSTREAM_BUILDING)
    if state is WantState.IDLE:
        assert {each.state for each in rest if each} <= {*NOT_SATISFYING, InstanceState.LIVE} - {InstanceState.BUILDING}
    assert state in (WantState.SUCCESSFUL, WantState.UPSTREAM_BUILDING, WantState.BUILDING, WantState.IDLE)
    assert state_of(needed, current[::-1])[0] is state
