"""States of jobs and slices: every pair is defined, every job ends, one place decides how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.domain.counts import Counts
from instep.domain.jobs import (
    JOB_TRANSITIONS,
    SLICE_TRANSITIONS,
    Claim,
    Job,
    JobPart,
    JobState,
    PartStatus,
    Phase,
    SliceState,
    end_of_job,
    end_of_part,
    ended_badly,
)
from instep.domain.refs import PartitionRef


def test_every_state_says_where_it_can_go_and_only_ended_states_are_final() -> None:
    assert set(JOB_TRANSITIONS) == set(JobState)
    assert set(SLICE_TRANSITIONS) == set(SliceState)
    for state, moves in JOB_TRANSITIONS.items():
        # STOPPED has ended, and is the one end that a later run may take up again.
        assert (not moves) == (state.ended and state is not JobState.STOPPED)
    for slice_state, slice_moves in SLICE_TRANSITIONS.items():
        assert (not slice_moves) == slice_state.ended


def test_every_job_state_reaches_an_end() -> None:
    reached = {state for state in JobState if state.ended}
    while True:
        more = {state for state, moves in JOB_TRANSITIONS.items() if moves & reached} - reached
        if not more:
            break
        reached |= more
    assert reached == set(JobState)


tallies = st.dictionaries(st.sampled_from(SliceState), st.integers(0, 3))


@given(tallies, st.integers(0, 5), st.integers(0, 5))
def test_a_part_ends_exactly_when_no_slice_is_open(slices: dict[SliceState, int], good: int, failed: int) -> None:
    end = end_of_part(slices, Counts(read=good + failed, written=good, failed=failed))
    still_open = sum(number for state, number in slices.items() if not state.ended)
    assert (end is None) == (still_open > 0)
    assert end in {None, JobState.COMPLETED, JobState.COMPLETED_WITH_ERRORS, JobState.FAILED}
    if end is JobState.COMPLETED:
        assert not failed
        assert not slices.get(SliceState.FAILED)
        assert not slices.get(SliceState.CANCELLED)


def test_a_part_is_failed_only_when_nothing_was_achieved() -> None:
    assert end_of_part({SliceState.FAILED: 2}, Counts()) is JobState.FAILED
    assert end_of_part({SliceState.COMPLETED: 1}, Counts(read=2, failed=2)) is JobState.FAILED
    assert end_of_part({SliceState.COMPLETED: 1, SliceState.FAILED: 1}, Counts()) is JobState.COMPLETED_WITH_ERRORS
    counts = Counts(read=2, written=1, failed=1)
    assert end_of_part({SliceState.COMPLETED: 1}, counts) is JobState.COMPLETED_WITH_ERRORS
    assert end_of_part({SliceState.COMPLETED: 1}, Counts(read=1, skipped=1)) is JobState.COMPLETED
    assert end_of_part({}, Counts()) is JobState.COMPLETED


ends_of_parts = st.sampled_from([None, JobState.COMPLETED, JobState.COMPLETED_WITH_ERRORS, JobState.FAILED])


@given(st.lists(ends_of_parts, max_size=6))
def test_a_job_ends_with_its_last_part(parts: list[JobState | None]) -> None:
    end = end_of_job(parts)
    assert (end is None) == (None in parts)
    if end is not None:
        assert (end is JobState.COMPLETED) == all(each is JobState.COMPLETED for each in parts)
        assert (end is JobState.FAILED) == (bool(parts) and all(each is JobState.FAILED for each in parts))
        assert end in JOB_TRANSITIONS[JobState.RUNNING]


@pytest.mark.parametrize(("units", "tries"), [(1, 4), (2, 3), (10_000, 3)])
def test_a_slice_is_worn_out_after_three_tries_and_a_single_unit_after_four(units: int, tries: int) -> None:
    ref = PartitionRef.parse("Document@global")
    claims = [Claim("s", "j", ref, 0, 0, units, 1, attempts, 1, 0, b"") for attempts in range(6)]
    assert [claim.worn_out for claim in claims] == [attempts >= tries for attempts in range(6)]


@given(st.lists(st.builds(Counts, *[st.integers(0, 100)] * 3)))
def test_counts_add_up_field_by_field_and_survive_storage(parts: list[Counts]) -> None:
    total = sum(parts, Counts())
    assert total.read == sum(part.read for part in parts)
    assert total.skipped == sum(part.skipped for part in parts)
    assert Counts.from_dict(total.as_dict()) == total


def test_an_error_that_stops_a_job_is_none_of_its_parts_that_had_ended() -> None:
    """A worker that follows the sources would hold them back for the error of another entity."""
    refs = {state: PartitionRef(name) for state, name in {None: "Open", JobState.COMPLETED: "Done"}.items()}
    parts = tuple(
        PartStatus(JobPart(ref, ref.entity, "", {}, 1, 1, 0, False), state, None, None, {}, 0, Counts())
        for state, ref in refs.items()
    )

    def errors(stopped: str) -> list[str | None]:
        job = Job("job", JobState.STOPPED, "ann", {}, 0, 0, 0, 0, stopped, parts)
        return [ended_badly(job, each) for each in parts]

    assert errors("Open: the target is full") == ["Open: the target is full", None]
    assert errors("stopped by ann") == ["stopped by ann", "stopped by ann"]


def _part(*, name: str = "Document", slices: Mapping[SliceState, int] | None = None, **more: Any) -> PartStatus:
    part = JobPart(PartitionRef(name), name, "", {}, 1, 1, 0, False)
    known = {"state": None, "finished_at": None, "error": None, "slices": slices or {}, "units": 0, "counts": Counts()}
    return PartStatus(part, **{**known, **more})


IN_WAVES = _part(slices={SliceState.COMPLETED: 3, SliceState.PENDING: 1})
WRITTEN = _part(name="Letter", slices={SliceState.COMPLETED: 4})
DONE = _part(state=JobState.COMPLETED, told=Phase.PROMOTION)


@pytest.mark.parametrize(
    ("state", "parts", "phase"),
    [
        (JobState.INITIALIZING, [], Phase.LISTING),
        (JobState.READY, [IN_WAVES], Phase.WAITING),
        (JobState.RUNNING, [IN_WAVES], Phase.WAVES),
        (JobState.RUNNING, [WRITTEN, IN_WAVES], Phase.WAVES),
        (JobState.RUNNING, [WRITTEN, DONE], Phase.INDEXES),
        (JobState.RUNNING, [replace(WRITTEN, told=Phase.WAVES)], Phase.INDEXES),
        (JobState.RUNNING, [replace(WRITTEN, told=Phase.CHECKS)], Phase.CHECKS),
        (JobState.RUNNING, [replace(WRITTEN, told=Phase.PROMOTION), DONE], Phase.PROMOTION),
        (JobState.RUNNING, [replace(IN_WAVES, error="the target is full"), WRITTEN], Phase.INDEXES),
        (JobState.RUNNING, [DONE], None),
        (JobState.STOPPING, [IN_WAVES], None),
        (JobState.STOPPED, [IN_WAVES], None),
        (JobState.COMPLETED, [DONE], None),
    ],
)
def test_a_job_is_in_the_first_phase_of_its_open_parts(
    state: JobState, parts: Sequence[PartStatus], phase: Phase | None
) -> None:
    assert Job("job", state, "ann", {}, 0, 0, 0, 0, None, tuple(parts)).phase is phase
