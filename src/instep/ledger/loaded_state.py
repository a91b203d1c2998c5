"""A `State` whose instances and wants are read from the projections when the fold asks for them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy import BindParameter, Connection, Row, bindparam, select, true

from instep.domain.events import (
    Event,
    GenerationPromoted,
    InstanceImported,
    InstanceServed,
    PartitionDropped,
    Unreadable,
)
from instep.domain.instances import Instance
from instep.domain.refs import Naming
from instep.domain.state import Key, State
from instep.domain.wants import Want
from instep.errors import UserError
from instep.ledger.tables import canonical, instances, promoted, served, want_refs, wants
from instep.ledger.transaction import batches

K = TypeVar("K")
V = TypeVar("V")

#: What these do depends on which generation is promoted.
_SERVING = (InstanceImported, InstanceServed, GenerationPromoted, PartitionDropped)

_instance = msgspec.json.Decoder(Instance).decode
_want = msgspec.json.Decoder(Want).decode

KEYS: Final[BindParameter[Any]] = bindparam("b_keys", expanding=True)
_INSTANCES = select(instances.c.uuid, instances.c.body).where(instances.c.uuid.in_(KEYS))
_CANONICAL = select(canonical).where(canonical.c.ref.in_(KEYS))
_SERVED = select(served).where(served.c.ref.in_(KEYS))
_PROMOTED = select(promoted).where(promoted.c.ref.in_(KEYS))
_WANTS = select(wants.c.id, wants.c.body).where(wants.c.id.in_(KEYS))
_OPEN = select(want_refs).where(want_refs.c.ref.in_(KEYS), want_refs.c.open == true()).order_by(want_refs.c.sequence)


class Rows(dict[K, V]):
    """The rows of a table by key, as far as they were loaded, with the changes to be written."""

    def __init__(self, load: Callable[[Collection[K]], Mapping[K, V]]) -> None:
        super().__init__()
        self._load = load
        #: Whether there is a row, of the keys that were looked up. What is removed here is not looked up again.
        self._known: dict[K, bool] = {}

    def fetch(self, keys: Iterable[K]) -> None:
        """Look up many at once."""
        for some in batches(each for each in dict.fromkeys(keys) if each not in self._known):
            found = self._load(some)
            for key in some:
                self._known[key] = key in found
                if key in found and not super().__contains__(key):
                    self[key] = found[key]

    def stored(self, key: K) -> bool:
        """Whether the table has a row for it."""
        self.fetch([key])
        return self._known[key]

    def deleted(self, keys: Iterable[K]) -> None:
        """Note that the table has no rows for these keys any more."""
        self._known |= dict.fromkeys(keys, False)

    def __missing__(self, key: K) -> V:
        if key not in self._known:
            self.fetch([key])
            if super().__contains__(key):
                return self[key]
        raise KeyError(key)

    def __contains__(self, key: Any) -> bool:
        return self.get(key) is not None

    def get(self, key: Any, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default


class Stored:
    """The state after the event `last`. Its projections must not change until its end: the log's head is locked."""

    def __init__(self, connection: Connection, last: int, naming: Naming) -> None:
        self.instances: Rows[str, Instance] = Rows(lambda keys: some_instances(connection, keys))
        self.canonical: Rows[Key, str] = Rows(lambda keys: some_canonical(connection, keys))
        self.served: Rows[Key, str] = Rows(lambda keys: some_served(connection, keys))
        self.promoted: Rows[str, str] = Rows(lambda refs: some_promoted(connection, refs))
        self.wants: Rows[str, Want] = Rows(lambda ids: some_wants(connection, ids))
        self._open: Rows[Key, dict[str, None]] = Rows(lambda keys: open_wants(connection, keys))
        self.state = State(
            last, self.instances, self.canonical, self.served, self.promoted, self.wants, self._open, naming=naming
        )

    def expect(self, events: Iterable[Event | Unreadable]) -> None:
        """Look up at once what these events are about."""
        uuids: list[str] = []
        #: Partitions whose instances may change, and with them the wants; and those that are only wanted.
        keys: list[Key] = []
        wanted: list[Key] = []
        wants: list[str] = []
        serving = False
        for event in events:
            uuids += _named(event, "instance", "instances", "inputs")
            wants += _named(event, "want", "wants")
            generations = _named(event, "generation", "generations") or [""]
            serving = serving or isinstance(event, _SERVING)
            keys += [(ref, each) for ref in _named(event, "ref") for each in generations]
            wanted += [(ref, each) for ref in _named(event, "refs", "missing") for each in generations]
        self.instances.fetch(uuids)
        keys += [each.key for each in self.instances.values()]
        self.served.fetch(keys)
        if serving:
            self.promoted.fetch(ref for ref, _ in keys)
        self._open.fetch(keys)
        self.wants.fetch([*wants, *(id for ids in self._open.values() for id in ids)])
        wanted += [(ref, want.generation) for want in self.wants.values() for ref in want.refs]
        self.canonical.fetch([*keys, *wanted])
        self._open.fetch(wanted)
        self.instances.fetch(self.canonical.values())


def _named(event: Event | Unreadable, *fields: str) -> list[str]:
    """The names in these fields of an event: one or many in each."""
    values = [getattr(event, field, ()) for field in fields]
    return [each for value in values for each in ((value,) if isinstance(value, str) else value)]


# Bodies.


def instance_of(row: Row[Any, Any]) -> Instance:
    try:
        return _instance(row.body)
    except msgspec.MsgspecError as error:
        raise _torn(f"instance {row.uuid}", error) from error


def want_of(row: Row[Any, Any]) -> Want:
    try:
        return _want(row.body)
    except msgspec.MsgspecError as error:
        raise _torn(f"want {row.id}", error) from error


def _torn(what: str, error: Exception) -> UserError:
    return UserError(
        f"what the ledger has stored of {what} cannot be read ({error})",
        hint="Make it again from the ledger's log: instep ledger rebuild",
    )


# Rows.


def some_instances(connection: Connection, uuids: Collection[str]) -> dict[str, Instance]:
    return {row.uuid: instance_of(row) for row in connection.execute(_INSTANCES, {"b_keys": list(uuids)})}


def some_canonical(connection: Connection, keys: Collection[Key]) -> dict[Key, str]:
    return {(row.ref, row.generation): row.uuid for row in connection.execute(_CANONICAL, _refs(keys))}


def some_served(connection: Connection, keys: Collection[Key]) -> dict[Key, str]:
    return {(row.ref, row.generation): row.uuid for row in connection.execute(_SERVED, _refs(keys))}


def some_promoted(connection: Connection, refs: Collection[str]) -> dict[str, str]:
    return {row.ref: row.generation for row in connection.execute(_PROMOTED, {"b_keys": list(refs)})}


def some_wants(connection: Connection, ids: Collection[str]) -> dict[str, Want]:
    return {row.id: want_of(row) for row in connection.execute(_WANTS, {"b_keys": list(ids)})}


def open_wants(connection: Connection, keys: Collection[Key]) -> dict[Key, dict[str, None]]:
    found: dict[Key, dict[str, None]] = {}
    for row in connection.execute(_OPEN, _refs(keys)):
        found.setdefault((row.ref, row.generation), {})[row.want_id] = None
    return found


def _refs(keys: Collection[Key]) -> dict[str, list[str]]:
    return {"b_keys": list(dict.fromkeys(ref for ref, _ in keys))}
