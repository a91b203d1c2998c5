"""Places of chunks ascend, and change for as few stored rows as possible."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.domain.chunk_places import placed


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ([], []),
        ([None, None, None], [0, 1, 2]),
        ([0, 1, 2], [0, 1, 2]),
        ([None, 0, 1, 2], [-1, 0, 1, 2]),
        ([0, 1, 2, None, None], [0, 1, 2, 3, 4]),
        ([0, None, 1, 2, 3], [-1, 0, 1, 2, 3]),
        ([0, 1, 2, None, 3], [0, 1, 2, 3, 4]),
        ([0, 2, 3], [0, 2, 3]),
        ([0, None, 2, 3], [0, 1, 2, 3]),
        ([3, 0, 1, 2], [-1, 0, 1, 2]),
        ([5, 5, 5], [3, 4, 5]),
        ([-4, None, None, None, 0], [-4, -3, -2, -1, 0]),
        ([None, 7, None], [6, 7, 8]),
    ],
)
def test_places(stored: list[int | None], expected: list[int]) -> None:
    assert placed(stored) == expected


NUMBERS = st.lists(st.none() | st.integers(-6, 9), max_size=8)


@given(NUMBERS)
def test_they_ascend_and_as_many_as_can_stay(stored: list[int | None]) -> None:
    made = placed(stored)
    assert all(before < at for before, at in pairwise(made))
    kept = sum(number == at for number, at in zip(stored, made, strict=True))
    known = [at for at, number in enumerate(stored) if number is not None]

    def fits(some: tuple[int, ...]) -> bool:
        """Whether these may all stay: between two there is a number for each chunk that stands there."""
        numbers = [(at, number) for at, number in enumerate(stored) if at in some and number is not None]
        return all(later - number >= end - at for (at, number), (end, later) in pairwise(numbers))

    most = max(size for size in range(len(known) + 1) if any(map(fits, combinations(known, size))))
    assert kept >= most


@given(NUMBERS)
def test_placed_again_nothing_moves(stored: list[int | None]) -> None:
    """A wave that broke off has written some of the rows: with what it wrote the others get the same places."""
    made = placed(stored)
    assert placed(made) == made
    partly = [number if at % 2 else old for at, (number, old) in enumerate(zip(made, stored, strict=True))]
    again = placed(partly)
    assert all(before < at for before, at in pairwise(again))


@given(st.integers(1, 40), st.integers(0, 40))
def test_what_is_put_in_front_moves_nothing(count: int, more: int) -> None:
    assert placed([None] * more + [*range(count)])[more:] == [*range(count)]
