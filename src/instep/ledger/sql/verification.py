"""Do the projections say what the log leads to? And if not, they are made anew from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from sqlalchemy import Connection, Table, select

from instep.domain.events import Recorded
from instep.domain.fold import follow
from instep.domain.instances import Instance
from instep.domain.state import Forgotten, State
from instep.domain.wants import Want
from instep.ledger.port import Verified
from instep.ledger.sql import log, projections, snapshots
from instep.ledger.tables import canonical, instances, served, want_refs, wants

_Content = dict[str, Any]


class Replayed:
    """The state after all events, and by which of them each want was made."""

    def __init__(self, recorded: Iterable[Recorded]) -> None:
        self.state = State()
        self.since: dict[str, int] = {}
        self.events = 0
        for each in recorded:
            self.events += 1
            for change in follow(self.state, each):
                if isinstance(change, Want):
                    self.since.setdefault(change.id, each.sequence)
                elif isinstance(change, Forgotten):
                    for id in change.wants:
                        self.since.pop(id, None)


def verify(connection: Connection) -> Verified:
    """In a transaction that sees one moment of the ledger."""
    return _verified(connection, Replayed(log.read(connection)))


def rebuild(connection: Connection) -> Verified:
    log.lock(connection)
    replayed = Replayed(log.read(connection))
    verified = _verified(connection, replayed)
    projections.write_all(connection, replayed.state, replayed.since)
    snapshots.forget(connection)
    return verified


def _verified(connection: Connection, replayed: Replayed) -> Verified:
    found = [*_in_the_log(connection, replayed), *_differences(connection, replayed)]
    return Verified(replayed.events, dict(replayed.state.skipped), tuple(found))


def _in_the_log(connection: Connection, replayed: Replayed) -> Iterator[str]:
    last = log.head(connection).last
    if last != replayed.state.sequence:
        yield f"the last event should be {last}, and is {replayed.state.sequence}"


def _differences(connection: Connection, replayed: Replayed) -> Iterator[str]:
    state, since = replayed.state, replayed.since
    rows = (row for each in state.wants.values() for row in projections.ref_rows(each, since[each.id]))
    expected: list[tuple[str, Table, Iterable[_Content], Any]] = [
        ("instance", instances, map(projections.instance_row, state.instances.values()), Instance),
        ("canonical instance of", canonical, projections.canonical_rows(state), None),
        ("what is served of", served, projections.served_rows(state), None),
        ("want", wants, (projections.want_row(each, since[each.id]) for each in state.wants.values()), Want),
        ("what is waited for by", want_refs, rows, None),
    ]
    for what, table, contents, kind in expected:
        key = [each.name for each in table.primary_key]
        yield from _compared(what, _by(key, _read(connection, table), kind), _by(key, contents, kind))


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
        if isinstance(value, (Instance, Want)) and isinstance(stored[name], type(value)):
            yield from _changes(msgspec.structs.asdict(stored[name]), msgspec.structs.asdict(value))
        else:
            yield f"{name} is {stored[name]!r}, and is {value!r} by the log"
