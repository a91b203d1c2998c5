"""The port of pending-queue engines; its contract suite is `tests/contracts/pending.py`.

Offer generously, confirm on reading: live capture may offer a key that is covered (two transactions that do not see
each other, an insert that came late), and never misses one that is pending. Every read confirms what it gives against
the truth, and withdraws what it found covered, by the version it saw. What is withdrawn costs later reads nothing.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Protocol, Self

from instep.domain.pending_queue import KeyKind, KeyRange, QueueKey, QueueSpec
from instep.errors import UserError

#: Comparisons name so many keys of each kind, and count the others.
NAMED: Final = 10_000


@dataclass(frozen=True, slots=True)
class Offer:
    """A key that is offered to consumers. `version` grows with every event that offers it again."""

    key: QueueKey
    version: int
    event_time: datetime | None


@dataclass(frozen=True, slots=True)
class Ask:
    """At most `limit` keys whose event is not after `settled`, beyond the key `after` in the order of reading."""

    limit: int
    settled: datetime | None = None
    after: QueueKey | None = None
    participants: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Backfilled:
    """One range: how many keys of the source it has (and maybe others, if they are covered for good), and how many of
    them are pending.
    """

    keys: int
    pending: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """One range of the queue beside the anti-join it replaces. The lowest `NAMED` keys of each are named; all count."""

    pending: int
    missing: tuple[QueueKey, ...]
    missing_count: int
    surplus: tuple[QueueKey, ...]
    """Offered though covered: harmless, since reading confirms; there while live writes race with the comparison."""
    surplus_count: int

    @property
    def named_upto(self) -> QueueKey | None:
        """The key up to which all differences are named; None if they all are."""
        named = ((self.missing, self.missing_count), (self.surplus, self.surplus_count))
        return min((keys[-1] for keys, count in named if keys and count > len(keys)), default=None)

    def upto(self, last: QueueKey) -> Self:
        """The differences that are named up to a key, alone."""
        missing, surplus = (tuple(each for each in keys if each <= last) for keys in (self.missing, self.surplus))
        return replace(self, missing=missing, missing_count=len(missing), surplus=surplus, surplus_count=len(surplus))


@dataclass(frozen=True, slots=True)
class QueueCounts:
    """Counts of offered, and of withdrawn but not yet cleaned keys, and the bytes on disk."""

    offered: int
    withdrawn: int
    bytes: int | None


@dataclass(frozen=True, slots=True)
class Observation:
    """Queries with one comment in the engine's own log. Times are of the engine, not of the client."""

    comment: str
    queries: int
    mean: timedelta
    p99: timedelta | None
    rows_read: float | None
    memory: float | None


class PendingStore(Protocol):
    """A queue in the database of its source."""

    @property
    def spec(self) -> QueueSpec: ...

    def check(self) -> None:
        """Changes nothing; a UserError when the tables cannot have this queue: one that is not there, a key that is no
        integer, a condition that is not understood.
        """

    def statements(self) -> tuple[str, ...]:
        """The statements of `create`, in order, for people to read."""

    def create(self) -> None:
        """Tables and live capture, idempotent; a UserError when another declaration made them."""

    def drop(self) -> None:
        """Live capture first, then the tables; never a table of the user."""

    def exists(self) -> bool: ...

    def demand_same(self) -> None:
        """A UserError when there is a queue of this name that another declaration made."""

    def bounds(self) -> KeyRange | None:
        """A range that ends with the highest key of the source, and begins just before the lowest; garbage is none of
        them. None without any.
        """

    def edge(self, keys: KeyRange, size: int) -> QueueKey | None:
        """The key at which a part of about `size` keys of the source ends; None where the range has no more."""

    def backfill(self, keys: KeyRange) -> Backfilled:
        """Offer the pending keys of one range that were there before live capture. Idempotent, and safe beside live
        writes.
        """

    def backfill_statements(self, keys: KeyRange) -> tuple[str, ...]: ...

    def read(self, ask: Ask) -> list[Offer]:
        """Keys that are pending, in the order of the queue, confirmed. The cost is that of the answer."""

    def anti_join(self, ask: Ask) -> list[QueueKey]:
        """The same keys by the query that the queue replaces, over the whole history."""

    def read_statement(self, ask: Ask) -> str: ...

    def anti_join_statement(self, ask: Ask) -> str: ...

    def confirm(self, keys: Collection[QueueKey]) -> set[QueueKey]:
        """Read which of the keys are pending now."""

    def withdraw(self, offers: Sequence[Offer]) -> None:
        """Takes these out of what is read, unless they were offered again since. They stay pending."""

    def offer(self, keys: Collection[QueueKey]) -> None:
        """Lets these be read again, if they are pending."""

    def acknowledge(self, keys: Collection[QueueKey]) -> None:
        """Covers these keys by word of a consumer, as if one more table covered them."""

    def reopen(self, keys: Collection[QueueKey]) -> None:
        """Takes that word back; a key that nothing else covers is pending, and offered."""

    def compare(self, keys: KeyRange) -> Comparison: ...

    def counts(self) -> QueueCounts: ...

    def garbage(self) -> dict[str, int]:
        """By table, how many of its rows have a key that the queue cannot have. A null is no key. Of texts every key
        is read.
        """

    def cleanable(self) -> int:
        """Counts the rows that `clean` would remove, as far as that is known without reading every offer."""

    def clean(self) -> int:
        """Removes from disk what is withdrawn and covered, and, where a row of the source that comes later finds out by
        itself whether it is covered, acknowledgements of keys that the source has no more; the number of rows removed.
        """

    def remember(self, name: str, value: str) -> None:
        """Keeps a word about the queue beside it, such as how far the backfill is."""

    def recall(self) -> dict[str, str]: ...

    def observe(self, since: datetime) -> list[Observation]:
        """The reads of the queue and of its anti-join in the engine's log; a UserError says what to switch on."""

    def close(self) -> None: ...


_TYPES: Final = {KeyKind.INTEGER: "an integer of 64 bits", KeyKind.TEXT: "a text", KeyKind.UUID: "a UUID"}


def wrong_type(column: str, table: str, found: str, wanted: KeyKind, where: str) -> UserError:
    """The error for a column that is not of the wanted type."""
    return UserError(
        f"the column {column} of {table} is {found}, and not {_TYPES[wanted]}",
        where=where,
        hint="`keys` of the queue says of which type its keys are: integer, text or uuid. Participants are integers.",
    )
