"""Ranges of keys: how a backfill steps through them, and what is looked at again."""

from __future__ import annotations

import itertools

import pytest

from instep.domain.pending_queue import LOWEST_KEY, KeyRange
from instep.errors import Transient
from instep.queues.key_ranges import Parts, key_ranges
from instep.queues.verify import clusters
from tests.doubles.clock import VirtualClock


def walked(
    keys: KeyRange, there: range, goal: int, fails: int = 0, clock: VirtualClock | None = None
) -> list[KeyRange]:
    """The parts of a range in which these keys are."""
    failing = iter(range(fails))

    def work(part: KeyRange) -> KeyRange:
        if next(failing, None) is not None:
            raise Transient("too much")
        return part

    def edge(part: KeyRange, size: int) -> int | None:
        found = list(itertools.islice(filter(part.holds, there), size + 1))
        return found[size - 1] if len(found) > size else None

    done = list(key_ranges(keys, edge, work, Parts(goal, pause=0.5), clock or VirtualClock()))
    assert all(stride.keys == part for stride, part in done)
    return [part for _, part in done]


def test_parts_follow_each_other_and_are_all_there_is() -> None:
    parts = walked(KeyRange(-5, 300), range(10, 200, 10), goal=8)
    assert parts == [KeyRange(-5, 80), KeyRange(80, 160), KeyRange(160, 300)]


def test_a_range_without_an_end_is_walked_to_the_last_key() -> None:
    assert walked(KeyRange(), range(3), goal=2) == [KeyRange(None, 1), KeyRange(1, None)]
    assert walked(KeyRange(), range(0), goal=2) == [KeyRange()]
    assert walked(KeyRange(7, 7), range(10), goal=2) == []


def test_others_have_their_turn_between_two_parts() -> None:
    clock = VirtualClock()
    began = clock.now()
    assert len(walked(KeyRange(-1, 99), range(100), goal=10, clock=clock)) == 10
    assert clock.now() - began == 9 * 500


def test_a_part_that_is_too_large_is_halved_and_a_lasting_error_raised() -> None:
    assert walked(KeyRange(-1, 999), range(1000), goal=1000, fails=2)[0] == KeyRange(-1, 249)
    with pytest.raises(Transient, match="too much"):
        walked(KeyRange(-1, 999), range(1000), goal=1000, fails=100)


def test_after_an_outage_parts_become_as_large_as_they_were() -> None:
    """A database that was away for a moment is not one for which parts are too large."""
    parts = walked(KeyRange(-1, 2_999), range(3_000), goal=1_000, fails=3)
    assert parts == [
        KeyRange(-1, 124),
        KeyRange(124, 374),
        KeyRange(374, 874),
        KeyRange(874, 1_874),
        KeyRange(1_874, 2_874),
        KeyRange(2_874, 2_999),
    ]


def test_clusters_hold_every_key_and_little_else() -> None:
    assert clusters([], 5) == []
    assert clusters([7], 5) == [KeyRange(6, 7)]
    assert clusters([LOWEST_KEY], 5) == [KeyRange(None, LOWEST_KEY)]
    assert clusters([3, 1, 2, 2000, 2001, 5000], 5) == [KeyRange(0, 3), KeyRange(1999, 2001), KeyRange(4999, 5000)]
    assert clusters(range(100), 5) == [KeyRange(-1, 99)]
    assert len(clusters((number**3 for number in range(1000)), 20)) <= 20
