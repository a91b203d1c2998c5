"""Verification of the projections against the event log, and their rebuilding from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Table, select

from instep.domain.instances import Instance
from instep.domain.refs import Naming
from instep.domain.wants import Want
from instep.ledger import event_log, log_start, projections, snapshots
from instep.ledger.replay import RejectedEvent, Replayed
from instep.ledger.tables import canonical, instances, promoted, served, want_refs, wants

_Content = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Verified:
    """The findings of a replay of the whole log: events in it, those without effect counted by name (and the first few
    of each name), and in words where the stored projections differ from it. `forgotten` are the events before these:
    the replay begins with the state that they led to.
    """

    events: int
    skipped: Mapping[str, int] = field(default_factory=dict)
    differences: tuple[str, ...] = ()
    skips: tuple[RejectedEvent, ...] = ()
    forgotten: int = 0


def verify(connection: Connection) -> Verified:
    """Verify the log, in a transaction that sees one moment of the ledger."""
    return _verified(connection, _replayed(connection, event_log.head(connection).naming))


def rebuild(connection: Connection) -> Verified:
    replayed = _replayed(connection, event_log.lock(connection).naming)
    verified = _verified(connection, replayed)
    projections.write_all(connection, replayed.state, replayed.origins)
    snapshots.forget(connection)
    return verified


def _replayed(connection: Connection, naming: Naming) -> Replayed:
    state, origins = log_start.state(connection, naming)
    return Replayed(event_log.read(connection, state.sequence), state, origins)


def _verified(connection: Connection, replayed: Replayed) -> Verified:
    found = [*_in_the_log(connection, replayed), *_differences(connection, replayed)]
    skipped, forgotten = dict(replayed.state.skipped), log_start.of(connection).sequence
    return Verified(replayed.events, skipped, tuple(found), replayed.skips.found(), forgotten)


def _in_the_log(connection: Connection, replayed: Replayed) -> Iterator[str]:
    last = event_log.head(connection).last
    if last != replayed.state.sequence:
        yield f"the last event should be {last}, and is {replayed.state.sequence}"


#: What rows of these tables are called, and what their bodies hold.
_NAMES: Final[Mapping[Table, tuple[str, Any]]] = {
    instances: ("instance", Instance),
    canonical: ("canonical instance of", None),
    served: ("what is served of", None),
    promoted: ("promoted generation of", None),
    wants: ("want", Want),
    want_refs: ("what is waited for by", None),
}


def _differences(connection: Connection, replayed: Replayed) -> Iterator[str]:
    for table, contents in projections.rows_of(replayed.state, replayed.origins):
        name, body = _NAMES[table]
        key = [each.name for each in table.primary_key]
        yield from _compared(name, _by(key, _read(connection, table), body), _by(key, contents, body))


def _read(connection: Connection, table: Table) -> Iterator[_Content]:
    for row in connection.execute(select(table)):
        yield dict(row._mapping)


def _by(key: list[str], contents: Iterable[_Content], kind: Any) -> dict[tuple[Any, ...], _Content]:
    """Rows by their primary key, with bodies as values: the text of the same value may be another one."""
    found = {}
    for content in contents:
        if kind is not None:
            content["body"] = _decoded(content["body"], kind)
        found[tuple(content[each] for each in key)] = content
    return found


def _decoded(body: str, kind: Any) -> Any:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.MsgspecError as error:
        return f"cannot be read: {error}"


def _compared(
    what: str, stored: Mapping[tuple[Any, ...], _Content], expected: Mapping[tuple[Any, ...], _Content]
) -> Iterator[str]:
    for key, content in expected.items():
        name = f"{what} {' '.join(map(str, filter(None, key)))}"
        if key not in stored:
            yield f"{name} is not stored"
        elif stored[key] != content:
            yield f"{name}: {'; '.join(_changes(stored[key], content))}"
    for key in sorted(stored.keys() - expected.keys()):
        yield f"{what} {' '.join(map(str, filter(None, key)))} is stored, and not in the log"


def _changes(stored: _Content, expected: _Content) -> Iterator[str]:
    for name, value in expected.items():
        if stored[name] == value:
            continue
        if isinstance(value, (Instance, Want)):
            if isinstance(stored[name], type(value)):
                yield from _changes(msgspec.structs.asdict(stored[name]), msgspec.structs.asdict(value))
            else:
                yield f"{name} {stored[name]}"
        else:
            yield f"{name} is {stored[name]!r}, and is {value!r} by the log"
