"""Ranges of keys: how a backfill steps through them, and what is looked at again."""

from __future__ import annotations

import itertools

import pytest

from instep.domain.pending_queue import KeyRange
from instep.errors import Transient
from instep.queues.key_ranges import Parts, key_ranges
from instep.queues.verify import clusters
from tests.doubles.clock import VirtualClock


def walked(keys: KeyRange, density: dict[KeyRange, float], goal: int, fails: int = 0) -> list[KeyRange]:
    """The parts of a range in which keys lie so densely."""
    failing = iter(range(fails))

    def work(part: KeyRange) -> int:
        if next(failing, None) is not None:
            raise Transient("too much")
        return sum(
            round(max(0, min(part.below, each.below) - max(part.lowest, each.lowest)) * share)
            for each, share in density.items()
        )

    done = key_ranges(keys, work, lambda _, found: found, Parts(goal, pause=0.1), VirtualClock())
    return [stride.keys for stride, _ in done]


def test_parts_follow_each_other_and_are_all_there_is() -> None:
    keys = KeyRange(-5, 10_000_000)
    parts = walked(keys, {keys: 1.0}, goal=1_000_000)
    assert (parts[0].lowest, parts[-1].below) == (-5, 10_000_000)
    assert all(one.below == following.lowest for one, following in itertools.pairwise(parts))
    assert {part.below - part.lowest for part in parts[2:-1]} == {1_000_000}


def test_keys_far_apart_take_few_parts_and_those_close_together_many() -> None:
    everything = KeyRange(0, 2**62)
    assert len(walked(everything, {everything: 1e-15}, goal=1_000_000)) < 25
    thin, dense = KeyRange(0, 10_000_000), KeyRange(10_000_000, 20_000_000)
    assert len(walked(KeyRange(0, 20_000_000), {thin: 0.05, dense: 1.0}, goal=100_000)) > 50


def test_others_have_their_turn_between_two_parts() -> None:
    clock, keys = VirtualClock(), KeyRange(0, 100)
    began = clock.now()
    parts = list(key_ranges(keys, lambda part: part.below - part.lowest, lambda _, found: found, Parts(10, 0.5), clock))
    assert len(parts) == 10
    assert clock.now() - began == 9 * 500


def test_a_range_that_is_too_large_is_halved_and_a_lasting_error_raised() -> None:
    keys = KeyRange(0, 1000)
    assert walked(keys, {keys: 1.0}, goal=1000, fails=2)[0] == KeyRange(0, 250)
    with pytest.raises(Transient, match="too much"):
        walked(keys, {keys: 1.0}, goal=1000, fails=100)


def test_a_small_rest_is_no_part_of_its_own() -> None:
    """A table that is not sorted by the key is read as a whole for each."""
    keys = KeyRange(0, 2_250)
    assert walked(keys, {keys: 1.0}, goal=1000) == [KeyRange(0, 1000), KeyRange(1000, 2_250)]
    keys = KeyRange(0, 2_251)
    assert len(walked(keys, {keys: 1.0}, goal=1000)) == 3


def test_clusters_hold_every_key_and_little_else() -> None:
    assert clusters([], 5) == []
    assert clusters([7], 5) == [KeyRange(7, 8)]
    assert clusters([3, 1, 2, 2000, 2001, 5000], 5) == [KeyRange(1, 4), KeyRange(2000, 2002), KeyRange(5000, 5001)]
    assert clusters(range(100), 5) == [KeyRange(0, 100)]
    assert len(clusters((number**3 for number in range(1000)), 20)) <= 20
