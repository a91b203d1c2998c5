"""Is what is stored what the log leads to?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from instep.domain.events import read
from instep.domain.fold import follow
from instep.domain.refs import generation_text
from instep.domain.state import Key, State
from instep.ledger.replay import RejectedEvents
from instep.ledger.verification import Verified
from tests.simulator.model import log
from tests.simulator.model.tables import Tables


def verify(tables: Tables) -> Verified:
    return _compared(tables, *_replayed(tables))


def rebuild(tables: Tables) -> Verified:
    replayed, skips = _replayed(tables)
    verified = _compared(tables, replayed, skips)
    tables.state = replayed
    return verified


def _replayed(tables: Tables) -> tuple[State, RejectedEvents]:
    state, skips = log.beginning(tables), RejectedEvents()
    for recorded in read(tables.log):
        follow(state, recorded, skips)
    return state, skips


def _compared(tables: Tables, replayed: State, skips: RejectedEvents) -> Verified:
    differences, forgotten = _differences(tables.state, replayed), tables.start.sequence
    return Verified(len(tables.log), dict(replayed.skipped), differences, skips.found(), forgotten)


def _differences(stored: State, replayed: State) -> tuple[str, ...]:
    return (
        *_values("instance", stored.instances, replayed.instances),
        *_pointers("canonical", stored.canonical, replayed.canonical),
        *_pointers("served", stored.served, replayed.served),
        *_promoted(stored.promoted, replayed.promoted),
        *_values("want", stored.wants, replayed.wants),
        *_waiting(stored.open, replayed.open),
    )


def _values(what: str, stored: Mapping[str, Struct], replayed: Mapping[str, Struct]) -> Iterator[str]:
    for id in sorted(stored.keys() | replayed.keys()):
        ours, theirs = stored.get(id), replayed.get(id)
        if ours is None:
            yield f"{what} {id} is missing"
        elif theirs is None:
            yield f"{what} {id} is stored, and the log has none"
        elif ours != theirs:
            names = [each for each in ours.__struct_fields__ if getattr(ours, each) != getattr(theirs, each)]
            values = [f"{each} is {getattr(ours, each)!r}, by the log {getattr(theirs, each)!r}" for each in names]
            yield f"{what} {id}: {'; '.join(values)}"


def _pointers(what: str, stored: Mapping[Key, str], replayed: Mapping[Key, str]) -> Iterator[str]:
    for key in sorted(stored.keys() | replayed.keys()):
        ours, theirs = stored.get(key), replayed.get(key)
        if ours != theirs:
            yield f"{_named(key)}: {what} is {ours}, by the log {theirs}"


def _promoted(stored: Mapping[str, str], replayed: Mapping[str, str]) -> Iterator[str]:
    for ref in sorted(stored.keys() | replayed.keys()):
        ours, theirs = stored.get(ref), replayed.get(ref)
        if ours != theirs:
            yield f"{ref}: promoted is {ours!r}, by the log {theirs!r}"


def _waiting(stored: Mapping[Key, Mapping[str, None]], replayed: Mapping[Key, Mapping[str, None]]) -> Iterator[str]:
    for key in sorted(stored.keys() | replayed.keys()):
        ours, theirs = sorted(stored.get(key, ())), sorted(replayed.get(key, ()))
        if ours != theirs:
            yield f"{_named(key)}: wants that wait are {ours}, by the log {theirs}"


def _named(key: Key) -> str:
    return generation_text(*key)
