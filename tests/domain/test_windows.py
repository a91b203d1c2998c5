"""Windows: nothing is read twice or left out between two of them, whatever becomes of a run."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.domain.windows import (
    Begun,
    Complete,
    Progress,
    RowVersion,
    Window,
    WindowError,
    complete_up_to,
    consolidated,
    later,
    newer,
    window_of,
)

watermarks = st.integers(-(2**62), 2**62) | st.integers(0, 20)


@st.composite
def windows(draw: st.DrawFn) -> Window:
    target = draw(watermarks)
    return Window(draw(st.none() | st.integers(max_value=target - 1)), target)


progresses = st.builds(Complete, watermarks) | st.builds(Begun, windows())


def test_the_first_run_reads_everything_up_to_the_request() -> None:
    window = window_of(None, 100)
    assert window == Window(None, 100)
    assert window.first
    assert [mark for mark in (-(2**63), 0, 100, 101) if window.holds(mark)] == [-(2**63), 0, 100]


def test_a_run_goes_on_from_the_checkpoint() -> None:
    window = window_of(Complete(100), 200)
    assert window == Window(100, 200)
    assert not window.first
    assert [mark for mark in (100, 101, 200, 201) if window.holds(mark)] == [101, 200]


def test_an_interrupted_run_keeps_its_window() -> None:
    """A bug of the original: the resume took the request's watermark for the old window's."""
    for window in (Window(None, 100), Window(50, 100)):
        assert window_of(Begun(window), 200) == window
        assert window_of(Begun(window), 60, lag=10) == window


def test_a_resume_does_not_start_from_the_epoch() -> None:
    """A bug of the original: a resumed incremental run read everything again."""
    assert window_of(Begun(Window(1_000, 2_000)), 3_000) == Window(1_000, 2_000)


@given(windows())
def test_what_is_in_progress_advances_nothing(window: Window) -> None:
    """A bug of the original: the checkpoint of a run in progress counted as far as it wanted to get."""
    assert complete_up_to(Begun(window)) == window.floor
    assert complete_up_to(Complete(window.target)) == window.target
    assert complete_up_to(None) is None


@pytest.mark.parametrize(("request_", "lag"), [(100, 0), (99, 0), (110, 10), (105, 10)])
def test_nothing_to_do_when_the_target_is_not_above_the_floor(request_: int, lag: int) -> None:
    assert window_of(Complete(100), request_, lag=lag) is None


def test_the_safety_lag_holds_the_target_back() -> None:
    assert window_of(None, 100, lag=30) == Window(None, 70)
    assert window_of(Complete(50), 100, lag=30) == Window(50, 70)
    with pytest.raises(WindowError, match="not negative"):
        window_of(None, 100, lag=-1)


@given(st.lists(st.tuples(watermarks, st.booleans()), min_size=1, max_size=8), st.integers(0, 5), watermarks)
def test_a_watermark_is_in_exactly_one_finished_window(
    requests: list[tuple[int, bool]], lag: int, watermark: int
) -> None:
    """Runs that end and runs that are interrupted, in any order, with requests that go back too."""
    progress: Progress | None = None
    finished: list[Window] = []
    for request, ends in requests:
        window = window_of(progress, request, lag=lag)
        if window is None:
            continue
        before = complete_up_to(progress)
        progress = Begun(window)
        assert complete_up_to(progress) == before
        if ends:
            finished.append(window)
            progress = Complete(window.target)
    reached = complete_up_to(progress)
    expected = 1 if reached is not None and watermark <= reached else 0
    assert sum(window.holds(watermark) for window in finished) == expected


def test_a_row_without_a_watermark_is_read_by_the_first_run() -> None:
    assert Window(None, 100).holds(None)
    assert not Window(50, 100).holds(None)


@pytest.mark.parametrize("floor", [100, 101])
def test_an_empty_window_cannot_be_made(floor: int) -> None:
    with pytest.raises(WindowError, match="empty"):
        Window(floor, 100)


def test_of_two_windows_up_to_one_target_the_earlier_begin_holds() -> None:
    ordered = [Begun(Window(None, 9)), Begun(Window(-5, 9)), Begun(Window(5, 9))]
    assert [later(ordered[0], each) for each in ordered] == [ordered[0]] * 3
    assert later(ordered[2], ordered[1]) == ordered[1]


def test_a_window_for_people() -> None:
    assert (str(Window(None, 5)), str(Window(3, 5))) == ("(nothing, 5]", "(3, 5]")


@given(st.lists(watermarks, min_size=1))
def test_slices_amount_to_the_least_of_their_watermarks(marks: list[int]) -> None:
    assert consolidated(marks) == Complete(min(marks))


def test_no_slices_amount_to_nothing() -> None:
    with pytest.raises(WindowError, match="nothing is complete"):
        consolidated([])


def test_a_late_record_of_progress_does_not_outrank_completion() -> None:
    """A bug of the original: a buffered row about progress, versioned when it was flushed, hid the completion."""
    window = Window(50, 100)
    assert later(Begun(window), Complete(100)) == Complete(100)
    assert later(Complete(100), Begun(window)) == Complete(100)
    # The next window is progress again, and the checkpoint before it is behind.
    assert later(Complete(100), Begun(Window(100, 200))) == Begun(Window(100, 200))
    assert later(Begun(Window(100, 200)), Complete(100)) == Begun(Window(100, 200))


@given(progresses, progresses, progresses)
def test_which_record_holds_does_not_depend_on_their_order(a: Progress, b: Progress, c: Progress) -> None:
    assert later(a, b) == later(b, a)
    assert later(a, a) == a
    assert later(later(a, b), c) == later(a, later(b, c))


versions = st.builds(RowVersion, watermarks, st.booleans())


def test_the_later_row_stays() -> None:
    assert newer(RowVersion(1), RowVersion(2, deleted=True)) == RowVersion(2, deleted=True)
    assert newer(RowVersion(2), RowVersion(1, deleted=True)) == RowVersion(2)


def test_a_row_deleted_and_inserted_again_at_one_watermark_is_there() -> None:
    gone, back = RowVersion(7, deleted=True), RowVersion(7)
    assert newer(gone, back) == newer(back, gone) == back


def test_the_late_write_of_a_zombie_changes_nothing() -> None:
    stored = RowVersion(9)
    for late in (RowVersion(8), RowVersion(8, deleted=True), RowVersion(9, deleted=True), stored):
        assert newer(stored, late) == stored


@given(st.permutations([RowVersion(1), RowVersion(2, deleted=True), RowVersion(2), RowVersion(1, deleted=True)]))
def test_one_row_stays_in_whatever_order_they_are_written(rows: list[RowVersion]) -> None:
    assert reduce(newer, [*rows, *rows]) == RowVersion(2)


@given(versions, versions)
def test_the_rank_has_the_order_of_newer(a: RowVersion, b: RowVersion) -> None:
    assert newer(a, b).rank == max(a.rank, b.rank)
    assert (a.rank == b.rank) == (a == b)


def test_the_rank_of_any_moment_fits_into_an_int64() -> None:
    last = (datetime.max - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    assert RowVersion(last).rank < 2**63
