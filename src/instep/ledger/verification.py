"""Verification of the projections against the event log, and their rebuilding from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Table, select

from instep.domain.events import Recorded
from instep.domain.fold import follow
from instep.domain.instances import Instance
from instep.domain.refs import Naming
from instep.domain.state import Change, Forgotten, Served, State
from instep.domain.wants import Want
from instep.ledger import event_log, projections, snapshots
from instep.ledger.tables import canonical, instances, promoted, served, want_refs, wants

_Content = dict[str, Any]
_OF_EACH_NAME: Final = 5


@dataclass(frozen=True, slots=True)
class RejectedEvent:
    """An event of the log that has no effect: `name` is what it is counted by, `reason` is for people."""

    sequence: int
    name: str
    reason: str


class RejectedEvents:
    """Told by the fold (`fold.Told`)."""

    def __init__(self) -> None:
        self._found: list[RejectedEvent] = []
        self._known: Counter[str] = Counter()

    def __call__(self, sequence: int, name: str, reason: str) -> None:
        self._known[name] += 1
        if self._known[name] <= _OF_EACH_NAME:
            self._found.append(RejectedEvent(sequence, name, reason))

    def found(self) -> tuple[RejectedEvent, ...]:
        """The rejected events, in the order of the log."""
        return tuple(self._found)


@dataclass(frozen=True, slots=True)
class Verified:
    """The findings of a replay of the whole log: events in it, those without effect counted by name (and the first few
    of each name), and in words where the stored projections differ from it.
    """

    events: int
    skipped: Mapping[str, int] = field(default_factory=dict)
    differences: tuple[str, ...] = ()
    skips: tuple[RejectedEvent, ...] = ()


class Replayed:
    """The state after all events."""

    def __init__(self, recorded: Iterable[Recorded], naming: Naming) -> None:
        self.state = State(naming=naming)
        self.origins = projections.Origins({}, {})
        self.skips = RejectedEvents()
        self.events = 0
        for each in recorded:
            self.events += 1
            for change in follow(self.state, each, self.skips):
                self._note(change, each.sequence)

    def _note(self, change: Change, sequence: int) -> None:
        wants, served = self.origins
        if isinstance(change, Want):
            wants.setdefault(change.id, sequence)
        elif isinstance(change, Served):
            served[change.ref, change.generation] = sequence
        elif isinstance(change, Forgotten):
            for id in change.wants:
                wants.pop(id, None)


def verify(connection: Connection) -> Verified:
    """Verify the log, in a transaction that sees one moment of the ledger."""
    return _verified(connection, Replayed(event_log.read(connection), event_log.head(connection).naming))


def rebuild(connection: Connection) -> Verified:
    naming = event_log.lock(connection).naming
    replayed = Replayed(event_log.read(connection), naming)
    verified = _verified(connection, replayed)
    projections.write_all(connection, replayed.state, replayed.origins)
    snapshots.forget(connection)
    return verified


def _verified(connection: Connection, replayed: Replayed) -> Verified:
    found = [*_in_the_log(connection, replayed), *_differences(connection, replayed)]
    return Verified(replayed.events, dict(replayed.state.skipped), tuple(found), replayed.skips.found())


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
