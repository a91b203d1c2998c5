"""Tables of a user that a pending queue is kept for: a history of matches, and two tables that cover them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pytest

from instep.domain.pending_queue import KeyKind, KeyRange, QueueCover, QueueKey, QueueSource, QueueSpec
from instep.queues.engines.queue_engine import Ask, PendingStore
from tests.contracts.pending_kinds import key_of, range_of

START = datetime(2026, 1, 1, tzinfo=UTC)
KEYS = KeyRange(0, 999_999)
EVERYTHING = Ask(limit=10_000)


@dataclass(frozen=True)
class Names:
    key: str = "match_id"
    history: str = "history"
    salts: str = "salts"
    players: str = "players"
    kind: str = "kind"
    happened: str = "happened"
    account: str = "account"
    state: str = "state"


class UserTables(ABC):
    """One database with these tables, empty at first. `key` is of one kind in each, and has an index; callers give
    numbers whatever it is.
    """

    kind: KeyKind = KeyKind.INTEGER

    #: Whether rows are never deleted or changed there, so that another row takes a cover back.
    insert_only: ClassVar[bool] = False

    names: Names = Names()

    @abstractmethod
    def run(self, statement: str) -> None:
        """In a transaction of its own."""

    @abstractmethod
    def quoted(self, name: str) -> str: ...

    @abstractmethod
    def create(self) -> None:
        """By `names`: the history of key, kind (text), happened (a moment), account (an integer), and the covers of key
        and state (text).
        """

    @abstractmethod
    def open(self, spec: QueueSpec) -> PendingStore: ...

    def spec(self, name: str = "salts", **changes: Any) -> QueueSpec:
        """Ranked matches, covered by a row of either table that is good."""
        names, good = self.names, f"{self.quoted(self.names.state)} = 'good'"
        lost = f"{self.quoted(names.state)} = 'lost'" if self.insert_only else None
        source = QueueSource(names.history, f"{self.quoted(names.kind)} <> 'private'", self.quoted(names.happened))
        covers = tuple(QueueCover(table, good, lost) for table in (names.salts, names.players))
        keys = range_of(self.kind, KEYS)
        made = QueueSpec(name, names.key, source, covers, keys, timedelta(0), True, None, self.kind)
        return replace(made, **changes)

    def literal(self, number: QueueKey) -> str:
        key = key_of(self.kind, number)
        return str(key) if self.kind is KeyKind.INTEGER else "'" + key.replace("'", "''") + "'"

    def played(self, keys: Iterable[QueueKey], *, kind: str = "ranked", at: datetime = START, account: int = 1) -> None:
        """Matches arrive in the history."""
        moment = at.strftime("%Y-%m-%d %H:%M:%S")
        names = self.names
        columns = (names.key, names.kind, names.happened, names.account)
        self._insert(names.history, columns, [f"{self.literal(key)}, '{kind}', '{moment}', {account}" for key in keys])

    def cover(self, keys: Iterable[QueueKey], *, by: str | None = None, state: str = "good") -> None:
        columns = (self.names.key, self.names.state)
        self._insert(by or self.names.salts, columns, [f"{self.literal(key)}, '{state}'" for key in keys])

    def uncover(self, keys: Collection[QueueKey], *, by: str | None = None) -> None:
        """Whatever that takes here."""
        if self.insert_only:
            self.cover(keys, by=by, state="lost")
        elif keys:
            listed = ", ".join(map(self.literal, keys))
            table, key = self.quoted(by or self.names.salts), self.quoted(self.names.key)
            self.run(f"DELETE FROM {table} WHERE {key} IN ({listed})")

    def _insert(self, table: str, columns: Sequence[str], rows: list[str]) -> None:
        if rows:
            named = ", ".join(map(self.quoted, columns))
            self.run(f"INSERT INTO {self.quoted(table)} ({named}) VALUES {', '.join(f'({row})' for row in rows)}")


def kind_of(request: pytest.FixtureRequest) -> KeyKind:
    """What the class of a test says; a test without one counts in numbers."""
    kind: KeyKind = getattr(request.cls, "kind", KeyKind.INTEGER)
    return kind


def created(tables: UserTables, spec: QueueSpec | None = None) -> PendingStore:
    """A queue that was there before any row."""
    store = tables.open(spec or tables.spec())
    store.create()
    return store


def read(store: PendingStore, ask: Ask = EVERYTHING) -> list[QueueKey]:
    return [offer.key for offer in store.read(ask)]


def demand_equal(store: PendingStore, keys: KeyRange = KEYS) -> None:
    """The plan's verification: the same keys as the query that is replaced, and none that is covered."""
    assert read(store) == store.anti_join(EVERYTHING)
    compared = store.compare(keys)
    assert (compared.missing, compared.missing_count) == ((), 0)
    assert compared.pending == len(store.anti_join(EVERYTHING))
    assert set(read(store)) == store.confirm(read(store))
