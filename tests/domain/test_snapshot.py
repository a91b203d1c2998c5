"""Snapshots: a prefix, its snapshot and the rest are as good as the whole log."""

from __future__ import annotations

import random

import msgspec
import pytest

from instep.domain import events as e
from instep.domain.fold import replay
from instep.domain.snapshot import FORMAT, dump, load
from instep.domain.state import State
from tests.domain.book import REF, UP, Book, states


def loaded(snapshot: bytes) -> State:
    state = load(snapshot)
    assert isinstance(state, State), state
    return state


@pytest.mark.parametrize("name", states())
def test_at_every_place_a_snapshot_and_the_rest_give_the_whole(name: str) -> None:
    log = states()[name]().log
    for place in range(len(log) + 1):
        state = loaded(dump(replay(log[:place])))
        assert state == replay(log[:place])
        assert replay(log[place:], state) == replay(log)


def test_the_order_of_waiting_wants_survives_a_snapshot() -> None:
    book = Book()
    book.make()
    for id in ("c", "a", "b"):
        book.want(id, REF, UP)
    state = loaded(dump(book.state))
    assert list(state.open[REF, ""]) == list(book.state.open[REF, ""]) == ["c", "a", "b"]
    assert list(state.instances) == list(book.state.instances)


def test_values_shared_by_instances_are_shared_after_a_snapshot() -> None:
    book = Book()
    book.built(UP)
    book.built(REF)
    book.do(e.InstanceTainted(instance=book.now_of(REF).uuid))
    book.built(REF)
    state = loaded(dump(book.state))
    first, second, third = state.instances.values()
    assert first.fingerprint is second.fingerprint is third.fingerprint
    assert second.ref is third.ref
    assert third.previous is second.uuid
    assert state.canonical[REF, ""] is third.uuid


def test_a_snapshot_keeps_the_counts_of_skipped_events() -> None:
    state = replay([e.Recorded(3, 1, e.Unreadable("malformed", "no JSON"))])
    assert loaded(dump(state)).skipped == {"missing": 2, "malformed": 1}


def test_a_snapshot_that_cannot_be_read_says_so_and_no_damage_is_an_exception() -> None:
    book = states()["waiting"]()
    whole = dump(book.state)
    chance = random.Random(1)
    for _ in range(2000):
        damaged = bytearray(whole)
        for _ in range(chance.randrange(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        load(bytes(damaged))
    for length in range(len(whole)):
        read = load(whole[:length])
        assert isinstance(read, e.Unreadable)
        assert read.name == "malformed"


def test_a_snapshot_of_other_rules_is_not_used() -> None:
    read = load(msgspec.msgpack.encode([FORMAT + 1, "whatever"]))
    assert isinstance(read, e.Unreadable)
    assert read.name == "unknown-version"
