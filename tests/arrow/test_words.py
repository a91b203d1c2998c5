"""Texts in Arrow are parted at their spaces as Python parts them."""

from __future__ import annotations

from itertools import pairwise

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from instep.arrow.words import Parted, parted, runs_of

TEXTS = st.lists(st.text(alphabet="ab é日\x00\t", max_size=12), max_size=12)


def runs(texts: pa.StringArray) -> list[list[str]]:
    """The runs of each text that have characters."""
    found = parted(texts)
    assert len(found.bounds) == len(texts) + 1
    return named(found)


def named(found: Parted) -> list[list[str]]:
    different = found.runs.to_pylist()
    every = [different[each] for each in found.indices.tolist()]
    return [list(filter(None, every[first:last])) for first, last in pairwise(found.bounds.tolist())]


@given(TEXTS, st.integers(0, 12), st.integers(0, 12))
def test_runs_are_those_between_spaces_of_a_part_of_a_column_too(texts: list[str], first: int, number: int) -> None:
    some = texts[first : first + number]
    expected = [list(filter(None, each.split(" "))) for each in some]
    assert runs(pa.array(texts, pa.string()).slice(first, number)) == expected


def test_a_run_at_the_end_of_a_text_is_not_taken_together_with_the_next_text() -> None:
    assert runs(pa.array(["a b", "b", "", "c a "])) == [["a", "b"], ["b"], [], ["c", "a"]]


def test_runs_are_of_small_letters_digits_underscores_and_all_beyond_ascii() -> None:
    found = runs_of(pa.array(["", "A_b, C3's", "É—x\tÉ.d", "a"])[1:])
    assert named(found) == [["a_b", "c3", "s"], ["É—x", "É", "d"], ["a"]]
    assert named(found.of(1, 2)) == [["É—x", "É", "d"]]
    assert named(found.of(2, 2)) == []
