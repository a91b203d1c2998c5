"""Base of the queues in PostgreSQL and SQLite: triggers keep the offers, and the truth is in the user's tables."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Final, Generic, TypeVar

from instep.domain.pending_queue import KeyKind, KeyRange, QueueCover, QueueKey, QueueSpec
from instep.errors import UserError

#: So many offers are looked at in one statement.
PAGE: Final = 10_000

#: The word that says what the queue was made from.
_DECLARED: Final = ""

Connection = TypeVar("Connection")


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def held(condition: str | None) -> str:
    """A condition of the user, which ends where it ends even if it ends in a comment."""
    return "true" if condition is None else f"({condition}\n)" if "--" in condition else f"({condition})"


class TriggeredLayout:
    """Names of a queue's objects. They are dataclasses with a field `spec`."""

    spec: QueueSpec

    def placed(self, kind: str) -> str:
        """A table of the queue, quoted."""
        raise NotImplementedError

    @property
    def acknowledged(self) -> str:
        """The table of consumers' covers, as a cover names it."""
        raise NotImplementedError

    @cached_property
    def offers(self) -> str:
        return self.placed("offers")

    @cached_property
    def acks(self) -> str:
        return self.placed("acks")

    @cached_property
    def words(self) -> str:
        return self.placed("words")

    @property
    def key(self) -> str:
        """The key column of the source."""
        return quoted(self.spec.key)

    @cached_property
    def covers(self) -> tuple[QueueCover, ...]:
        """The user's covers, and the one of consumers."""
        return (*self.spec.covers, QueueCover(self.acknowledged, None, None))

    def key_of(self, cover: QueueCover) -> str:
        return quoted("key" if cover is self.covers[-1] else self.spec.key)

    def between(self, column: str, keys: KeyRange | None = None) -> str:
        """Whether a column is one of these keys, which a null never is."""
        return " AND ".join([*self.ends(column, keys), *self.possible(column)]) or f"{column} IS NOT NULL"

    def ends(self, column: str, keys: KeyRange | None = None) -> list[str]:
        """The conditions of a range alone."""
        keys = keys or self.spec.keys
        beyond = [] if keys.after is None else [f"{column} > {self.constant(keys.after)}"]
        upto = [] if keys.upto is None else [f"{column} <= {self.constant(keys.upto)}"]
        return [*beyond, *upto]

    def possible(self, column: str) -> list[str]:
        """Conditions for values of a column that a key can have, besides its range."""
        return []

    def constant(self, key: QueueKey) -> str:
        return f"{key:d}" if self.spec.kind is KeyKind.INTEGER else literal(key)

    def declared(self) -> str:
        """The part of the declaration that live capture was made from. How a queue is read may change at any time."""
        spec = self.spec.declared()
        return json.dumps({name: spec[name] for name in ("key", "source", "covers", "keys", "participants")})

    def beyond(self, key: str, after: QueueKey | None) -> list[str]:
        """The condition of keys beyond `after` in the order of reading; none without it."""
        return [] if after is None else [f"{key} {'<' if self.spec.newest_first else '>'} {self.constant(after)}"]

    @property
    def descending(self) -> str:
        """Behind each column of ORDER BY, for the order of reading."""
        return " DESC" if self.spec.newest_first else ""

    @property
    def comment(self) -> str:
        return f"/* instep:queue:{self.spec.name} */"


class TriggeredPending(ABC, Generic[Connection]):
    """Base of both stores."""

    def __init__(self, spec: QueueSpec, layout: TriggeredLayout) -> None:
        self._spec = spec
        self._declaration = layout

    @property
    @abstractmethod
    def _shown(self) -> str:
        """The place of the queue, without secrets."""

    @abstractmethod
    def _session(self) -> AbstractContextManager[Connection]: ...

    @abstractmethod
    def _there(self, session: Connection) -> bool:
        """Whether the queue is."""

    @abstractmethod
    def _words(self, session: Connection) -> dict[str, str]: ...

    @property
    def spec(self) -> QueueSpec:
        return self._spec

    def exists(self) -> bool:
        with self._session() as session:
            return self._there(session)

    def demand_same(self) -> None:
        with self._session() as session:
            if self._there(session):
                self._demand_same(session)

    def recall(self) -> dict[str, str]:
        with self._session() as session:
            words = self._words(session)
        del words[_DECLARED]
        return words

    def close(self) -> None:
        """Do nothing: connections end by themselves."""

    def _demand_same(self, session: Connection) -> None:
        if json.loads(self._words(session)[_DECLARED]) != json.loads(self._declaration.declared()):
            raise UserError(
                f"the queue {self._spec.name} was made from another declaration",
                where=self._shown,
                hint="Drop it and create it again, or give this one another name.",
            )

    def _most_covers(self, session: Connection) -> int:
        """The number of covers, of this declaration or of the one that the queue was made from."""
        covers = len(self._spec.covers)
        if self._there(session):
            covers = max(covers, len(json.loads(self._words(session)[_DECLARED])["covers"]))
        return covers

    def _tables(self) -> Sequence[tuple[str, str | None]]:
        """The user's tables, with the conditions on their rows."""
        source = self._spec.source
        return [(source.table, source.where), *((each.table, each.where) for each in self._spec.covers)]

    def _within(self, keys: KeyRange) -> KeyRange:
        return keys.within(self._spec.keys)
