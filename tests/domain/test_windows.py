from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.domain.rows import Window, WindowError, window_of

marks = st.integers(-(2**62), 2**62)


@given(marks, st.integers(0, 2**40))
def test_the_first_run_reads_everything_up_to_the_request_less_the_lag(request: int, lag: int) -> None:
    window = window_of(None, request, lag=lag)
    assert window == Window(None, request - lag)
    assert window.first
    assert window.holds(request - lag)
    assert not window.holds(request - lag + 1)


def test_a_run_continues_from_the_checkpoint() -> None:
    window = window_of(100, 200)
    assert window == Window(100, 200)
    assert [window.holds(each) for each in (100, 101, 200, 201)] == [False, True, True, False]


@given(marks, st.integers(0, 2**40))
def test_nothing_to_do_when_the_target_is_not_above_the_floor(complete: int, lag: int) -> None:
    assert window_of(complete, complete + lag, lag=lag) is None
    assert window_of(complete, complete + lag + 1, lag=lag) == Window(complete, complete + 1)


@given(marks, st.lists(st.tuples(marks, st.integers(0, 2**20)), min_size=1, max_size=8))
def test_a_watermark_is_in_exactly_one_window_of_the_runs_that_reach_it(
    mark: int, requests: list[tuple[int, int]]
) -> None:
    complete: int | None = None
    holding = 0
    for request, lag in requests:
        window = window_of(complete, request, lag=lag)
        if window is not None:
            holding += window.holds(mark)
            complete = window.target
    assert complete is not None
    assert holding == (mark <= complete)


def test_a_row_without_a_watermark_is_read_by_the_first_run_only() -> None:
    assert Window(None, 5).holds(None)
    assert not Window(0, 5).holds(None)


@pytest.mark.parametrize("floor", [5, 6])
def test_an_empty_window_cannot_be_made(floor: int) -> None:
    with pytest.raises(WindowError, match="is empty"):
        Window(floor, 5)


def test_a_lag_is_not_negative() -> None:
    with pytest.raises(WindowError, match="not negative"):
        window_of(None, 5, lag=-1)


def test_a_window_is_shown_in_readable_text() -> None:
    assert (str(Window(None, 5)), str(Window(1, 5))) == ("(nothing, 5]", "(1, 5]")
