"""Keys of texts and UUIDs for tests that count in numbers: the same numbers, in the same order."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar
from uuid import UUID

from instep.domain.pending_queue import KeyKind, KeyRange, QueueKey, QueueSpec
from instep.queues.engines.queue_engine import Ask, Backfilled, Comparison, Offer, PendingStore

#: What stands before the digits of each text, so that none is harmless.
HOSTILE: Final = "é'\"\\\n\t{}%s$1, NULL \U0001f600 "
_DIGITS: Final = 20
_MIDDLE: Final = 2**63


def key_of(kind: KeyKind, number: int) -> QueueKey:
    match kind:
        case KeyKind.TEXT:
            return f"{HOSTILE}{number + _MIDDLE:0{_DIGITS}d}"
        case KeyKind.UUID:
            return str(UUID(int=(number + _MIDDLE) << 64))
        case KeyKind.INTEGER:
            return number


def number_of(kind: KeyKind, key: QueueKey) -> int:
    """Of a bound that is no key: a number below all keys that it is below of."""
    match kind:
        case KeyKind.TEXT:
            digits = key.removeprefix(HOSTILE)
            return int(digits.ljust(_DIGITS, "0")) - _MIDDLE - (len(digits) < _DIGITS)
        case KeyKind.UUID:
            return (UUID(key).int >> 64) - _MIDDLE
        case KeyKind.INTEGER:
            return int(key)


class Numbered:
    """A store whose keys are numbers for those who call it."""

    def __init__(self, store: PendingStore) -> None:
        self._store, self._kind = store, store.spec.kind

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    @property
    def spec(self) -> QueueSpec:
        return self._store.spec

    def bounds(self) -> KeyRange | None:
        found = self._store.bounds()
        return None if found is None else KeyRange(self._number(found.after), self._number(found.upto))

    def edge(self, keys: KeyRange, size: int) -> int | None:
        return self._number(self._store.edge(self._range(keys), size))

    def backfill(self, keys: KeyRange) -> Backfilled:
        return self._store.backfill(self._range(keys))

    def backfill_statements(self, keys: KeyRange) -> tuple[str, ...]:
        return self._store.backfill_statements(self._range(keys))

    def read(self, ask: Ask) -> list[Offer]:
        return [replace(each, key=self._number(each.key)) for each in self._store.read(self._ask(ask))]

    def anti_join(self, ask: Ask) -> list[int | None]:
        return [self._number(each) for each in self._store.anti_join(self._ask(ask))]

    def confirm(self, keys: Collection[int]) -> set[int | None]:
        return {self._number(each) for each in self._store.confirm(self._keys(keys))}

    def withdraw(self, offers: Sequence[Offer]) -> None:
        self._store.withdraw([replace(each, key=key_of(self._kind, each.key)) for each in offers])

    def offer(self, keys: Collection[int]) -> None:
        self._store.offer(self._keys(keys))

    def acknowledge(self, keys: Collection[int]) -> None:
        self._store.acknowledge(self._keys(keys))

    def reopen(self, keys: Collection[int]) -> None:
        self._store.reopen(self._keys(keys))

    def compare(self, keys: KeyRange) -> Comparison:
        found = self._store.compare(self._range(keys))
        missing, surplus = (tuple(map(self._number, each)) for each in (found.missing, found.surplus))
        return replace(found, missing=missing, surplus=surplus)

    def _keys(self, numbers: Iterable[int]) -> list[QueueKey]:
        return [key_of(self._kind, each) for each in numbers]

    def _number(self, key: QueueKey | None) -> int | None:
        return None if key is None else number_of(self._kind, key)

    def _range(self, keys: KeyRange) -> KeyRange:
        return range_of(self._kind, keys)

    def _ask(self, ask: Ask) -> Ask:
        return ask if ask.after is None else replace(ask, after=key_of(self._kind, ask.after))


def range_of(kind: KeyKind, keys: KeyRange) -> KeyRange:
    return KeyRange(*(None if each is None else key_of(kind, each) for each in (keys.after, keys.upto)))


S = TypeVar("S", bound=PendingStore)


def numbered(store: S) -> S:
    """The store itself, if its keys are numbers."""
    return store if store.spec.kind is KeyKind.INTEGER else Numbered(store)  # type: ignore[return-value]
