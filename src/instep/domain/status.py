"""Index status of partitions: states, their keys, and the summary of many (ADR 014 of the seed on entity-level
indexing).

Every partition has a key of its own, `status.42.9970.MergeRequest`, with the value `{"state": "Indexed", …}`; the
scope `global` is `status.global.User`. The old format had one key for a whole namespace, `status.42.9970`: until it is
deleted, it counts for entities without a key of their own, with a note.

A group has the state of its worst part. A missing key is `NotIndexed`. An unreadable one is `Unknown`, which is worse
than all, and is reported with the reason: it is not success, and not nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

import msgspec

from instep.domain.refs import PartitionRef, RefError, Scope, is_entity_name


class IndexState(StrEnum):
    """The best first."""

    INDEXED = "Indexed"
    INDEXING = "Indexing"
    ERROR = "Error"
    BACKFILLING = "Backfilling"
    NOT_INDEXED = "NotIndexed"
    UNKNOWN = "Unknown"


_BADNESS = {state: place for place, state in enumerate(IndexState)}
_STATES = {state.value: state for state in IndexState}


def worst(states: Iterable[IndexState]) -> IndexState:
    """The worst of these states; of none: NotIndexed."""
    return max(states, key=_BADNESS.__getitem__, default=IndexState.NOT_INDEXED)


# Keys


class StatusKeyTextError(ValueError):
    """A text that is not the key of a status."""


@dataclass(frozen=True, slots=True)
class StatusKey:
    """The partition whose status a key holds; without an entity it has the old format, for all of a namespace."""

    scope: Scope
    entity: str | None

    def __str__(self) -> str:
        whole = f"status.{str(self.scope).replace('/', '.')}"
        return whole if self.entity is None else f"{whole}.{self.entity}"

    @classmethod
    def parse(cls, text: str) -> StatusKey:
        head, _, rest = text.partition(".")
        dotted, _, last = rest.rpartition(".")
        # No entity's name begins with a digit, as every part of a namespace's path does.
        whole, entity = (dotted, last) if is_entity_name(last) else (rest, None)
        try:
            key = cls(Scope.parse(whole.replace(".", "/")), entity)
        except RefError:
            key = None
        if head != "status" or key is None or str(key) != text:
            raise StatusKeyTextError(f"{text!r} is not the key of a status, such as status.42.9970.MergeRequest")
        return key


def status_key(ref: PartitionRef) -> str:
    return str(StatusKey(ref.scope, ref.entity))


# Many of them


class StatusRecord(Protocol):
    """A key as a bus lists it: `value` is None when it cannot be read, and `unreadable` says why."""

    @property
    def key(self) -> str: ...
    @property
    def value(self) -> Mapping[str, Any] | None: ...
    @property
    def unreadable(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Matrix:
    """The state of each entity in each scope. `rows` has them by scope, in the order of `entities`; `notes` list
    problems.
    """

    entities: tuple[str, ...]
    rows: Mapping[Scope, tuple[IndexState, ...]]
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, listed: Iterable[StatusRecord], scopes: Sequence[Scope], entities: Sequence[str]) -> Matrix:
        """A matrix of the listed keys, in one pass. Keys of other scopes and entities do not count."""
        prefixes = {scope: str(StatusKey(scope, None)) for scope in scopes}
        found: dict[str, dict[str, IndexState]] = {prefix: {} for prefix in prefixes.values()}
        whole: dict[str, IndexState] = {}
        wanted = set(entities)
        notes: list[str] = []
        for record in listed:
            # Not parsed: only keys that are looked for matter here, and there are thousands.
            prefix, _, entity = record.key.rpartition(".")
            if entity in wanted and prefix in found:
                found[prefix][entity] = _state(record, notes)
            elif record.key in found:
                whole[record.key] = _state(record, notes)
        rows: dict[Scope, tuple[IndexState, ...]] = {}
        for scope, prefix in prefixes.items():
            states, rest = found[prefix], whole.get(prefix, IndexState.NOT_INDEXED)
            rows[scope] = tuple(states.get(entity, rest) for entity in entities)
            missing = sum(entity not in states for entity in entities)
            if prefix in whole and missing:
                notes.append(f"{prefix} has the old format: it stands for {missing:,} of its entities")
        return cls(tuple(entities), rows, tuple(notes))

    @classmethod
    def unread(cls, scopes: Sequence[Scope], entities: Sequence[str], reason: str) -> Matrix:
        """A matrix for keys that could not be listed: nothing is known."""
        row = (IndexState.UNKNOWN,) * len(entities)
        return cls(tuple(entities), dict.fromkeys(scopes, row), (f"the status keys cannot be read: {reason}",))

    def state(self, ref: PartitionRef) -> IndexState:
        return self.rows[ref.scope][self.entities.index(ref.entity)]

    def of_scope(self, scope: Scope) -> IndexState:
        return worst(self.rows[scope])

    def of_entity(self, entity: str) -> IndexState:
        column = self.entities.index(entity)
        return worst(row[column] for row in self.rows.values())

    @property
    def whole(self) -> IndexState:
        return worst(map(worst, self.rows.values()))


def _state(record: StatusRecord, notes: list[str]) -> IndexState:
    if record.value is None:
        notes.append(f"{record.key} cannot be read: {record.unreadable or 'no reason given'}")
        return IndexState.UNKNOWN
    text = record.value.get("state")
    state = _STATES.get(text) if isinstance(text, str) else None
    if state is None:
        notes.append(f"{record.key} says {text!r}, which is not a state")
        return IndexState.UNKNOWN
    return state


MAX_KEY: Final = 255
MAX_VALUE: Final = 16 * 1_024

_KEY = re.compile(r"status(\.[A-Za-z0-9_]+)+\Z")
#: Many are read at once.
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_PREFIX = re.compile(r"status(\.[A-Za-z0-9_]+)*\Z")


class StatusKeyError(ValueError):
    """A text that is not a key, or not a value, of a status."""


def demand_key(key: str) -> None:
    if len(key) > MAX_KEY or not _KEY.match(key):
        raise StatusKeyError(f"{key[:MAX_KEY]!r} is not a status key such as status.42.9970.MergeRequest")


def demand_prefix(prefix: str) -> None:
    if len(prefix) > MAX_KEY or not _PREFIX.match(prefix):
        raise StatusKeyError(f"{prefix[:MAX_KEY]!r} is not the beginning of status keys, such as status.42.9970")


def encode(value: Mapping[str, Any]) -> str:
    text = json.dumps(value, separators=(",", ":"), sort_keys=True, allow_nan=False)
    if len(text.encode()) > MAX_VALUE:
        raise StatusKeyError(f"a status has at most {MAX_VALUE} bytes")
    return text


def decode(data: str | bytes) -> Mapping[str, Any]:
    """Decode a status. Raises `StatusKeyError` unless it is a JSON object, as every worker writes it."""
    if len(data) > MAX_VALUE:
        raise StatusKeyError(f"more than {MAX_VALUE} bytes")
    try:
        return _decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise StatusKeyError("not the JSON of an object") from error
