"""Instances and wants as they are now: rows that follow from the log, changed in the transaction that appends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, NamedTuple, TypeVar

import msgspec
from sqlalchemy import ColumnElement, Connection, Table, Update, bindparam, delete, false, insert, update

from instep.domain.instances import Instance
from instep.domain.state import Canonical, Change, Dropped, Forgotten, Key, Promoted, Served, State
from instep.domain.wants import Want
from instep.ledger.loaded_state import Rows, Stored
from instep.ledger.tables import canonical, instances, promoted, served, want_refs, wants
from instep.ledger.transaction import batches

K = TypeVar("K")


class Origins(NamedTuple):
    """The events that made wants, and since when an instance is served: a state has only the order of these."""

    wants: dict[str, int]
    served: dict[Key, int]


def instance_row(value: Instance) -> dict[str, Any]:
    return {
        "uuid": value.uuid,
        "ref": value.ref,
        "generation": value.generation,
        "sequence": value.sequence,
        "state": value.state.value,
        "created_at": value.created_at,
        "ended_at": value.ended_at,
        "body": msgspec.json.encode(value).decode(),
    }


def want_row(value: Want, sequence: int) -> dict[str, Any]:
    return {
        "id": value.id,
        "sequence": sequence,
        "state": value.state.value,
        "needed": value.due,
        "created_at": value.created_at,
        "ended_at": value.ended_at,
        "body": msgspec.json.encode(value).decode(),
    }


def ref_rows(value: Want, sequence: int) -> list[dict[str, Any]]:
    common = {"want_id": value.id, "generation": value.generation, "sequence": sequence, "open": not value.state.ended}
    return [{"ref": ref} | common for ref in value.refs]


def canonical_row(key: Key, uuid: str) -> dict[str, Any]:
    return {"ref": key[0], "generation": key[1], "uuid": uuid}


def served_row(key: Key, uuid: str, sequence: int) -> dict[str, Any]:
    return canonical_row(key, uuid) | {"sequence": sequence}


def promoted_row(ref: str, generation: str) -> dict[str, Any]:
    return {"ref": ref, "generation": generation}


def rows_of(state: State, origins: Origins) -> list[tuple[Table, Iterable[dict[str, Any]]]]:
    """List all rows of a state, by table."""
    since, served_since = origins
    return [
        (instances, map(instance_row, state.instances.values())),
        (canonical, (canonical_row(*each) for each in state.canonical.items())),
        (served, (served_row(key, uuid, served_since[key]) for key, uuid in state.served.items())),
        (promoted, (promoted_row(*each) for each in state.promoted.items())),
        (wants, (want_row(each, since[each.id]) for each in state.wants.values())),
        (want_refs, (row for each in state.wants.values() for row in ref_rows(each, since[each.id]))),
    ]


# Writing.


class Changes:
    """The changes of events: the last value of each thing."""

    def __init__(self) -> None:
        self._instances: dict[str, Instance] = {}
        self._canonical: dict[Key, str] = {}
        #: With the event that said so.
        self._served: dict[Key, tuple[str, int]] = {}
        self._promoted: dict[str, str] = {}
        self._wants: dict[str, Want] = {}
        #: By which event each want changed first. Of a new one, that is what made it.
        self._since: dict[str, int] = {}
        self._dropped: set[Key] = set()
        self._gone: list[str] = []
        self._wants_gone: list[str] = []

    def add(self, sequence: int, changes: Iterable[Change]) -> None:
        for change in changes:
            match change:
                case Instance():
                    self._instances[change.uuid] = change
                case Want():
                    self._wants[change.id] = change
                    self._since.setdefault(change.id, sequence)
                case Canonical():
                    self._canonical[change.ref, change.generation] = change.uuid
                case Served():
                    self._served[change.ref, change.generation] = (change.uuid, sequence)
                case Promoted():
                    self._promoted[change.ref] = change.generation
                case Dropped():
                    self._drop(change)
                case Forgotten():
                    self._forget(change)

    def _drop(self, dropped: Dropped) -> None:
        keys = [(dropped.ref, each) for each in dropped.generations]
        for key in keys:
            self._canonical.pop(key, None)
            self._served.pop(key, None)
        self._promoted.pop(dropped.ref, None)
        self._dropped.update(keys)

    def _forget(self, forgotten: Forgotten) -> None:
        for uuid in forgotten.instances:
            self._instances.pop(uuid, None)
        for id in forgotten.wants:
            self._wants.pop(id, None)
            self._since.pop(id, None)
        self._gone += forgotten.instances
        self._wants_gone += forgotten.wants

    def write(self, connection: Connection, stored: Stored) -> None:
        _delete(connection, instances.c.uuid, self._gone)
        _delete(connection, wants.c.id, self._wants_gone)
        _delete(connection, want_refs.c.want_id, self._wants_gone)
        for table in (canonical, served):
            for ref, generation in sorted(self._dropped):
                connection.execute(delete(table).where(table.c.ref == ref, table.c.generation == generation))
        refs = {ref for ref, _ in self._dropped}
        _delete(connection, promoted.c.ref, sorted(refs))
        stored.canonical.deleted(self._dropped)
        stored.served.deleted(self._dropped)
        stored.promoted.deleted(refs)
        stored.instances.deleted(self._gone)
        stored.wants.deleted(self._wants_gone)
        found = {uuid: instance_row(each) for uuid, each in self._instances.items()}
        _write(connection, instances, found, stored.instances)
        pointers = {key: canonical_row(key, uuid) for key, uuid in self._canonical.items()}
        _write(connection, canonical, pointers, stored.canonical)
        _write(connection, served, {key: served_row(key, *each) for key, each in self._served.items()}, stored.served)
        _write(
            connection,
            promoted,
            {ref: promoted_row(ref, each) for ref, each in self._promoted.items()},
            stored.promoted,
        )
        self._write_wants(connection, stored)

    def _write_wants(self, connection: Connection, stored: Stored) -> None:
        _write(
            connection,
            wants,
            {id: want_row(each, self._since[id]) for id, each in self._wants.items()},
            stored.wants,
            fixed=("sequence",),
        )
        new = [each for id, each in self._wants.items() if not stored.wants.stored(id)]
        rows = [row for each in new for row in ref_rows(each, self._since[each.id])]
        if rows:
            connection.execute(insert(want_refs), rows)
        ended = [id for id, each in self._wants.items() if each.state.ended and stored.wants.stored(id)]
        for some in batches(ended):
            connection.execute(update(want_refs).where(want_refs.c.want_id.in_(some)).values(open=false()))


def _write(
    connection: Connection,
    table: Table,
    rows: Mapping[K, dict[str, Any]],
    stored: Rows[K, Any],
    fixed: tuple[str, ...] = (),
) -> None:
    """Insert what is new, update what is there, all but what never changes."""
    new = [row for key, row in rows.items() if not stored.stored(key)]
    old = [row for key, row in rows.items() if stored.stored(key)]
    if new:
        connection.execute(insert(table), new)
    if old:
        connection.execute(_update(table, fixed), [{f"b_{name}": value for name, value in row.items()} for row in old])


@cache
def _update(table: Table, fixed: tuple[str, ...]) -> Update:
    key = list(table.primary_key)
    bound: dict[str, Any] = {each.name: bindparam(f"b_{each.name}") for each in table.c if each.name not in fixed}
    here = [each == bound.pop(each.name) for each in key]
    return update(table).where(*here).values(bound)


def _delete(connection: Connection, column: ColumnElement[str], keys: Iterable[str]) -> None:
    for some in batches(keys):
        connection.execute(delete(column.table).where(column.in_(some)))


def write_all(connection: Connection, state: State, origins: Origins) -> None:
    """Make the projections this state, whatever they are."""
    for table, rows in rows_of(state, origins):
        connection.execute(delete(table))
        for some in batches(rows):
            connection.execute(insert(table), some)
