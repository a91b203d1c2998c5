"""Names of a queue's objects in SQLite, and SQL fragments on the user's tables."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from instep.domain.pending_queue import KeyRange, QueueCover, QueueSpec

#: Of the year 9999: numbers beyond are no seconds for SQLite.
_LAST_SECOND = 253_402_300_799


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def held(condition: str | None) -> str:
    """A condition of the user, which ends where it ends even if it ends in a comment."""
    return "true" if condition is None else f"({condition}\n)" if "--" in condition else f"({condition})"


@dataclass(frozen=True)
class Layout:
    spec: QueueSpec

    def own(self, kind: str) -> str:
        """A name of the queue. The kind comes first, so that no two queues can share one."""
        return quoted(f"pending_{kind}_{self.spec.name}")

    @cached_property
    def offers(self) -> str:
        return self.own("offers")

    @cached_property
    def acks(self) -> str:
        return self.own("acks")

    @cached_property
    def words(self) -> str:
        return self.own("words")

    @cached_property
    def participants(self) -> str:
        return self.own("participants")

    @property
    def key(self) -> str:
        """The key column of the source."""
        return quoted(self.spec.key)

    @property
    def source(self) -> str:
        return quoted(self.spec.source.table)

    @cached_property
    def covers(self) -> tuple[QueueCover, ...]:
        """The user's covers, and the one of consumers."""
        return (*self.spec.covers, QueueCover(f"pending_acks_{self.spec.name}", None, None))

    def key_of(self, cover: QueueCover) -> str:
        return quoted("key" if cover is self.covers[-1] else self.spec.key)

    @property
    def time(self) -> str | None:
        """Seconds since 1970 of a row, from a text or a number (of seconds or milliseconds); else infinite."""
        expression = self.spec.source.event_time
        if expression is None:
            return None
        given = held(expression)
        millis = f"typeof({given}) IN ('integer', 'real') AND abs({given}) > {_LAST_SECOND}"
        time = f"CASE WHEN {millis} THEN {given} / 1000.0 ELSE {given} END"
        return f"ifnull(round((julianday({time}, 'auto') - 2440587.5) * 86400, 3), 9e999)"

    def earliest(self, key: str) -> str:
        """The earliest event time of a key, or null without event times."""
        return "NULL" if self.time is None else f"(SELECT min({self.time}) {self.source_rows(key)})"

    def between(self, column: str, keys: KeyRange | None = None) -> str:
        keys = keys or self.spec.keys
        return f"{column} >= {int(keys.lowest)} AND {column} < {int(keys.below)}"

    def source_rows(self, key: str, *conditions: str) -> str:
        """A FROM clause for the rows of the source with this key."""
        found = [f"{self.source}.{self.key} = {key}", held(self.spec.source.where), *conditions]
        return f"FROM {self.source} WHERE {' AND '.join(found)}"

    def present(self, key: str, settled: datetime | None = None) -> str:
        """Whether the source has the key; a queue without event times has nothing to wait for."""
        early = [] if settled is None or self.time is None else [f"{self.time} <= {settled.timestamp()!r}"]
        return f"EXISTS (SELECT 1 {self.source_rows(key, *early)})"

    def uncovered(self, key: str) -> str:
        return " AND ".join(
            f"NOT EXISTS (SELECT 1 FROM {quoted(each.table)}"
            f" WHERE {quoted(each.table)}.{self.key_of(each)} = {key} AND {held(each.where)})"
            for each in self.covers
        )

    def pending(self, key: str) -> str:
        return f"{self.present(key)} AND {self.uncovered(key)}"

    def declared(self) -> str:
        """The part of the declaration that live capture was made from. How a queue is read may change at any time."""
        spec = self.spec.declared()
        return json.dumps({name: spec[name] for name in ("key", "source", "covers", "keys", "participants")})

    @property
    def comment(self) -> str:
        return f"/* instep:queue:{self.spec.name} */"

    @property
    def legacy_comment(self) -> str:
        return f"/* instep:queue:{self.spec.name}:legacy */"
