"""Offsets of a topic: how far a look goes."""

from __future__ import annotations

from instep.domain.topic_offsets import Offsets


def test_a_look_goes_no_further_than_asked_and_not_back_behind_its_start() -> None:
    end, start = Offsets("t", {0: 90, 1: 50, 2: 7}), Offsets("t", {0: 10, 1: 40, 2: 0})
    until = Offsets("t", {0: 60, 1: 30})
    assert end.up_to(until, start) == Offsets("t", {0: 60, 1: 40, 2: 0})
    assert end.up_to(end, start) == end
