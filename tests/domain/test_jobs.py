"""States of jobs and slices: every pair is defined, every job ends, one place decides how."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from instep.domain.counts import Counts
from instep.domain.jobs import (
    JOB_MOVES,
    MAX_ATTEMPTS,
    SLICE_MOVES,
    JobState,
    SliceState,
    after_failure,
    end_of_job,
)


def test_every_state_says_where_it_can_go_and_only_ended_states_are_final() -> None:
    assert set(JOB_MOVES) == set(JobState)
    assert set(SLICE_MOVES) == set(SliceState)
    for state, moves in JOB_MOVES.items():
        # STOPPED has ended, and is the one end that a later run may take up again.
        assert (not moves) == (state.ended and state is not JobState.STOPPED)
    for slice_state, slice_moves in SLICE_MOVES.items():
        assert (not slice_moves) == slice_state.ended


def test_every_job_state_reaches_an_end() -> None:
    reached = {state for state in JobState if state.ended}
    while True:
        more = {state for state, moves in JOB_MOVES.items() if moves & reached} - reached
        if not more:
            break
        reached |= more
    assert reached == set(JobState)


tallies = st.dictionaries(st.sampled_from(SliceState), st.integers(0, 3))


@given(tallies, st.integers(0, 5), st.integers(0, 5), st.booleans())
def test_a_job_ends_exactly_when_no_slice_is_open(
    slices: dict[SliceState, int], good: int, failed: int, stopping: bool
) -> None:
    counts = Counts(read=good + failed, written=good, failed=failed)
    end = end_of_job(slices, counts, stopping=stopping)
    if stopping:
        assert end == (None if slices.get(SliceState.PROCESSING) else JobState.STOPPED)
        return
    still_open = slices.get(SliceState.PENDING, 0) + slices.get(SliceState.PROCESSING, 0)
    assert (end is None) == (still_open > 0)
    if end is JobState.COMPLETED:
        assert not failed
        assert not slices.get(SliceState.FAILED)


def test_a_job_is_failed_only_when_nothing_was_achieved() -> None:
    assert end_of_job({SliceState.FAILED: 2}, Counts()) is JobState.FAILED
    assert end_of_job({SliceState.COMPLETED: 1}, Counts(read=2, failed=2)) is JobState.FAILED
    assert end_of_job({SliceState.COMPLETED: 1, SliceState.FAILED: 1}, Counts()) is JobState.COMPLETED_WITH_ERRORS
    assert end_of_job({SliceState.COMPLETED: 1}, Counts(read=2, written=1, failed=1)) is JobState.COMPLETED_WITH_ERRORS
    assert end_of_job({SliceState.COMPLETED: 1}, Counts(read=1, skipped=1)) is JobState.COMPLETED


def test_a_transient_error_is_retried_until_the_attempts_are_spent() -> None:
    ends = [after_failure(attempt, transient=True) for attempt in range(1, MAX_ATTEMPTS + 1)]
    assert ends == [SliceState.PENDING, SliceState.PENDING, SliceState.FAILED]
    assert after_failure(1, transient=False) is SliceState.FAILED


@given(st.lists(st.builds(Counts, *[st.integers(0, 100)] * 3)))
def test_counts_add_up_field_by_field_and_survive_storage(parts: list[Counts]) -> None:
    total = sum(parts, Counts())
    assert total.read == sum(part.read for part in parts)
    assert total.skipped == sum(part.skipped for part in parts)
    assert Counts.from_dict(total.as_dict()) == total
