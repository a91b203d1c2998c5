"""Snapshots: a prefix, its snapshot and the rest are as good as the whole log."""

from __future__ import annotations

import random
from base64 import b64decode

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


#: States as they were dumped when logs began to be forgotten (format 5). Ledgers begin with such ones, and what led to
#: them is gone.
_FORMAT_5 = {
    "waiting": (
        "mgUEkYGnY2h1bmtlcqExkQCR3AAa2SQ0MzlkZDk3OS1jOGM5LTU4ZWItOWZhMi02NWU3YjliNzI4YmWsQ2h1bmtAZ2xvYmFs"
        "oAHAq2ZpcnN0IGJ1aWxkqEJ1aWxkaW5nzgAPQkCgo2pvYs4AD0oQwABkwMCgkMDAwACRonVwwMCgkdkkNDM5ZGQ5NzktYzhj"
        "OS01OGViLTlmYTItNjVlN2I5YjcyOGJlkICS3AAUoXeRrENodW5rQGdsb2JhbKCwVXBzdHJlYW1CdWlsZGluZ84AD0YowMDA"
        "oMCQkaJ1cJDAwKDAwADA3AAUonVwka9Eb2N1bWVudEBnbG9iYWygpElkbGXOAA9N+MDAwKdqb2Igam9io2pvYpHZJDQzOWRk"
        "OTc5LWM4YzktNThlYi05ZmEyLTY1ZTdiOWI3MjhiZZCQwMCgwMAAwIA="
    ),
    "tainted": (
        "mgUGkYGnY2h1bmtlcqExkgDAktwAGtkkNDM5ZGQ5NzktYzhjOS01OGViLTlmYTItNjVlN2I5YjcyOGJlrENodW5rQGdsb2Jh"
        "bKABwKtmaXJzdCBidWlsZKdUYWludGVkzgAPQkCgo2pvYs4AD0oQzgAPTfgAZGTAoJChcMQLmgAAAAAAAAAAAADAAJDAzgAP"
        "Vcig3AAa2SRmMDBkOTkwMC1iNGE1LTVjMjctOTc0My1kNDNjOWJkODY4MTGsQ2h1bmtAZ2xvYmFsoAbZJDQzOWRkOTc5LWM4"
        "YzktNThlYi05ZmEyLTY1ZTdiOWI3MjhiZaV0YWludKdNaXNzaW5nzgAPVcigwMDAAMDAwKCQwMDAAJDAwKCR2SRmMDBkOTkw"
        "MC1iNGE1LTVjMjctOTc0My1kNDNjOWJkODY4MTGR2SQ0MzlkZDk3OS1jOGM5LTU4ZWItOWZhMi02NWU3YjliNzI4YmWBrENo"
        "dW5rQGdsb2JhbKCR3AAUoXeRrENodW5rQGdsb2JhbKCqU3VjY2Vzc2Z1bM4AD0YowMDAoMCQkJHZJDQzOWRkOTc5LWM4Yzkt"
        "NThlYi05ZmEyLTY1ZTdiOWI3MjhiZc4AD034wKDAwADAgA=="
    ),
}


@pytest.mark.parametrize("name", _FORMAT_5)
def test_the_first_format_that_a_log_may_begin_with_is_read_for_ever(name: str) -> None:
    """Whatever the format is by now: `load` brings it to that."""
    assert loaded(b64decode(_FORMAT_5[name])) == states()[name]().state
