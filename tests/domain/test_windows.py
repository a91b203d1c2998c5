from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.domain.cuts import KeyRange
from instep.domain.keys import key_of
from instep.domain.rows import (
    EVERYTHING,
    FIRST_MOMENT,
    LAST_MOMENT,
    GoneRow,
    Repair,
    RowSlice,
    Window,
    WindowError,
    decode_row_slice,
    encode_row_slice,
)
from instep.domain.storable import pack

marks = st.integers(-(2**62), 2**62)


@given(marks)
def test_the_first_run_reads_everything_up_to_the_request(request: int) -> None:
    window = Window(None, request)
    assert window.first
    assert [window.holds(each) for each in (request, request + 1, None)] == [True, False, True]


def test_a_run_continues_above_its_floor() -> None:
    window = Window(100, 200)
    assert [window.holds(each) for each in (100, 101, 200, 201, None)] == [False, True, True, False, False]
    assert Window(100, 200, unmarked=True).holds(None)


@given(st.one_of(st.integers(FIRST_MOMENT, LAST_MOMENT), st.none()))
def test_of_a_new_file_every_row_is_read_and_a_deleted_one_deletes(mark: int | None) -> None:
    assert EVERYTHING.holds(mark)
    assert EVERYTHING.everything
    assert not EVERYTHING.first
    assert not Window(0, 5, unmarked=True).everything


@pytest.mark.parametrize("window", [None, Window(None, 5), Window(1, 5), Window(1, 5, unmarked=True), EVERYTHING])
def test_a_window_is_stored_with_its_slice(window: Window | None) -> None:
    part = RowSlice(0, 1, window, (), KeyRange())
    assert decode_row_slice(encode_row_slice(part)) == part


def test_a_window_that_an_older_version_stored_is_read() -> None:
    stored = pack({"slice": [0, 1], "window": [1, 5], "cut_by": [], "range": [None, None]})
    assert decode_row_slice(stored) == RowSlice(0, 1, Window(1, 5), (), KeyRange())


@pytest.mark.parametrize("floor", [5, 6])
def test_an_empty_window_cannot_be_made(floor: int) -> None:
    with pytest.raises(WindowError, match="is empty"):
        Window(floor, 5)


def test_a_window_is_shown_in_readable_text() -> None:
    assert (str(Window(None, 5)), str(Window(1, 5))) == ("(nothing, 5]", "(1, 5]")


def test_a_repair_is_stored_with_its_slice() -> None:
    repair = Repair(
        (key_of(1, "a"), key_of(2, "ü,")),
        (GoneRow(key_of(3, ""), 5, "42/"), GoneRow(key_of(4, "x"), -1)),
    )
    part = RowSlice(1, 3, None, ("id", "name"), KeyRange(key_of(1, "a"), None), repair=repair)
    assert decode_row_slice(encode_row_slice(part)) == part
