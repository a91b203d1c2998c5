"""Rules of a pending queue, and batches of its keys: a key is pending when the source holds it and no cover does.

Events reach a queue in any order and more than once. So that every order gives the same answer, a key's state is made
of parts that are merged by maximum alone: whether the source was seen, and for each cover the register of its latest
event, `version * 2 + covered`. So a later row of the source never reopens a covered key, while an event that takes a
cover back does.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from enum import StrEnum
from heapq import nlargest
from itertools import accumulate
from typing import Any, Final, TypeAlias
from uuid import UUID

from instep.domain.storable import is_storable

#: A whole number of 64 bits or a text: as the queue declares, which no type checker knows.
QueueKey: TypeAlias = Any

LOWEST_KEY: Final = -(2**63)
LARGEST_KEY: Final = 2**63 - 1

#: Bytes of a text in UTF-8: what indexes of all databases take, beside other columns.
MAX_TEXT: Final = 2_000

#: So many bytes of texts are looked at to see how far they lie apart.
_TOLD: Final = 16


_UUID: Final = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class KeyKind(StrEnum):
    """The type of a queue's keys. A UUID is a text in lower case, as databases print it."""

    INTEGER = "integer"
    TEXT = "text"
    UUID = "uuid"

    def key(self, said: QueueKey) -> QueueKey | None:
        """The key that someone names; None for what cannot be one."""
        if self is KeyKind.INTEGER:
            whole = isinstance(said, int) and not isinstance(said, bool) and LOWEST_KEY <= said <= LARGEST_KEY
            return said if whole else None
        if not isinstance(said, str):
            return None
        if self is KeyKind.UUID:
            return said.lower() if _UUID.fullmatch(said.lower()) else None
        return said if is_storable(said) and len(said.encode()) <= MAX_TEXT else None


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The keys beyond `after`, up to and with `upto`; None leaves a side open. There is no key right behind a text, so
    a range begins with the end of the one before it.
    """

    after: QueueKey | None = None
    upto: QueueKey | None = None

    @property
    def empty(self) -> bool:
        return self.after is not None and self.after == self.upto

    def holds(self, key: QueueKey) -> bool:
        return (self.after is None or key > self.after) and (self.upto is None or key <= self.upto)

    def within(self, other: KeyRange) -> KeyRange:
        """The keys that are in both."""
        after = [each for each in (self.after, other.after) if each is not None]
        upto = [each for each in (self.upto, other.upto) if each is not None]
        return KeyRange(max(after, default=None), min(upto, default=None))


@dataclass(frozen=True, slots=True)
class QueueSource:
    """The table whose rows want to be covered; `where` and `event_time` are SQL of its own engine."""

    table: str
    where: str | None
    event_time: str | None


@dataclass(frozen=True, slots=True)
class QueueCover:
    """A table whose rows cover a key where `where` holds, and take the cover back where `uncovered` does. `version` is
    the column by which the table itself says which row of a key is the latest.
    """

    table: str
    where: str | None
    uncovered: str | None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class QueueSpec:
    """A declared queue. `key` is a column of the same name and `kind` in every table; keys outside `keys` are garbage,
    and so are texts of more than `MAX_TEXT` bytes.
    """

    name: str
    key: str
    source: QueueSource
    covers: tuple[QueueCover, ...]
    keys: KeyRange
    settle: timedelta
    newest_first: bool
    participants: str | None
    """A column of the source with whom the key concerns, for reading the keys of some of them first."""
    kind: KeyKind = KeyKind.INTEGER

    def key_of(self, said: QueueKey) -> QueueKey | None:
        """The key that a consumer names; None for what the queue cannot have."""
        key = self.kind.key(said)
        return key if key is not None and self.keys.holds(key) else None

    def declared(self) -> dict[str, Any]:
        """The settings that live capture is made from, as JSON: the same for the same queue of an earlier release,
        which knew no `version`. How a queue is read may change at any time.
        """
        made = {name: value for name, value in asdict(self).items() if name not in {"settle", "newest_first", "kind"}}
        if self.kind is KeyKind.INTEGER:
            after = LOWEST_KEY - 1 if self.keys.after is None else self.keys.after
            made["keys"] = {"lowest": after + 1, "below": (self.keys.upto or 0) + 1}
        else:
            made["keys"] = str(self.kind)
        for cover in made["covers"]:
            if cover["version"] is None:
                del cover["version"]
        return made


def register(version: int, *, covered: bool) -> int:
    """The register of one event of a cover; the latest is the largest, so that merging is `max`."""
    return version * 2 + covered


def covers(merged: int) -> bool:
    """Whether a cover holds, by its merged register; 0 is one that never had an event."""
    return merged % 2 == 1


def pending(*, seen: bool, registers: Sequence[int]) -> bool:
    """The invariant of a queue."""
    return seen and not any(map(covers, registers))


def at_most(keys: Sequence[QueueKey], letters: int) -> int:
    """The number of these keys, from the first on, that have so many letters together; of numbers all."""
    if not keys or isinstance(keys[0], int):
        return len(keys)
    return sum(total <= letters for total in accumulate(map(len, keys)))


def batches(keys: Sequence[QueueKey], size: int) -> list[Sequence[QueueKey]]:
    """The fewest batches of at most `size` keys, all of about the same size."""
    count = -(-len(keys) // size)
    return [keys[len(keys) * at // count : len(keys) * (at + 1) // count] for at in range(count)]


def before(key: QueueKey) -> QueueKey | None:
    """A bound below which this key is not: there are few keys, or none, between the two."""
    if isinstance(key, str) and _UUID.fullmatch(key):
        number = UUID(key).int
        return str(UUID(int=number - 1)) if number else None
    if isinstance(key, str):
        return key[:-1] if key else None
    return key - 1 if key > LOWEST_KEY else None


def beyond(key: QueueKey) -> QueueKey | None:
    """A bound that this key is below, with few keys or none between the two; None where there is none. Of a text it is
    one that every database can hold, as the very next one, with a NUL, is not.
    """
    if isinstance(key, str) and _UUID.fullmatch(key):
        number = UUID(key).int + 1
        return str(UUID(int=number)) if number < 1 << 128 else None
    if isinstance(key, str):
        return f"{key}\1"
    return key + 1 if key < LARGEST_KEY else None


def share(keys: KeyRange, reached: QueueKey | None) -> float:
    """The part of a range that is up to a key, from 0 to 1, as if keys lay in it evenly."""
    lowest: QueueKey = "" if isinstance(keys.upto, str) else LOWEST_KEY
    first, at, last = _places([lowest if each is None else each for each in (keys.after, reached, keys.upto)])
    return (at - first) / max(last - first, 1)


def stretches(keys: Sequence[QueueKey], most: int) -> list[tuple[QueueKey, QueueKey]]:
    """First and last key of at most `most` ranges, which leave out the widest gaps."""
    if not keys:
        return []
    places = _places(keys)
    gaps = ((after - places[at], at + 1) for at, after in enumerate(places[1:]) if after - places[at] > 1)
    starts = [0, *sorted(at for _, at in nlargest(most - 1, gaps))]
    return [(keys[first], keys[after - 1]) for first, after in zip(starts, [*starts[1:], len(keys)], strict=True)]


def _places(keys: Sequence[QueueKey]) -> list[int]:
    """Numbers that are as far apart as these keys, which are in order: of texts, by what follows their common
    beginning.
    """
    if isinstance(keys[-1], int):
        return list(keys)
    texts = [each.encode(errors="surrogateescape") for each in keys]
    differing = (at for at, (one, other) in enumerate(zip(texts[0], texts[-1], strict=False)) if one != other)
    # The last may begin with the first, as with the bound before it: see `before`.
    same = next(differing, len(texts[0]))
    return [int.from_bytes(each[same : same + _TOLD].ljust(_TOLD, b"\0"), "big") for each in texts]
