"""Tables and triggers of a queue in SQLite, their names, and checks of the user's tables.

SQLite has one writer at a time, which sees all that is: each trigger asks again whether its key is pending, so that the
offers are exact. Only `INSERT OR REPLACE` escapes, where a row goes for the sake of another key: it is no event unless
the writer has said `PRAGMA recursive_triggers = ON`, and `compare` finds what it uncovered.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path

from instep.domain.pending_queue import MAX_TEXT, KeyKind, QueueKey, QueueSpec
from instep.errors import UserError
from instep.queues.engines.queue_engine import wrong_type
from instep.queues.engines.triggered import TriggeredLayout, held, literal, quoted

#: Of the year 9999: numbers beyond are no seconds for SQLite.
_LAST_SECOND = 253_402_300_799


@dataclass(frozen=True)
class Layout(TriggeredLayout):
    spec: QueueSpec

    def placed(self, kind: str) -> str:
        """The kind comes first in a name, so that no two queues can share one."""
        return quoted(f"pending_{kind}_{self.spec.name}")

    @property
    def type(self) -> str:
        """The type of the key in the queue's own tables."""
        return "INTEGER" if self.spec.kind is KeyKind.INTEGER else "TEXT"

    def possible(self, column: str) -> list[str]:
        """A column may have values of any type: texts are behind numbers and before bytes. Whether a text is one of
        UTF-8 only its reader can tell.
        """
        if self.spec.kind is KeyKind.INTEGER:
            return [f"typeof({column}) = 'integer'"]
        size = f"length(CAST({column} AS BLOB)) <= {MAX_TEXT}"
        return [f"{column} >= ''", f"{column} < x''", size, f"instr({column}, char(0)) = 0"]

    def constant(self, key: QueueKey) -> str:
        """Texts by their bytes: the end of a range may be no text of UTF-8."""
        if self.spec.kind is KeyKind.INTEGER:
            return super().constant(key)
        return f"CAST(x'{key.encode(errors='surrogateescape').hex()}' AS TEXT)"

    @property
    def acknowledged(self) -> str:
        return f"pending_acks_{self.spec.name}"

    @cached_property
    def participants(self) -> str:
        return self.placed("participants")

    @property
    def source(self) -> str:
        return quoted(self.spec.source.table)

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

    @property
    def legacy_comment(self) -> str:
        return f"/* instep:queue:{self.spec.name}:legacy */"


def demand_usable(connection: sqlite3.Connection, layout: Layout, path: Path) -> None:
    """Raises `UserError` for tables that are not there, keys that are not of its type or have no index, and conditions
    that SQLite does not understand.
    """
    source = layout.spec.source
    if layout.spec.kind is KeyKind.TEXT:
        ((encoding,),) = connection.execute("PRAGMA encoding")
        if encoding != "UTF-8":
            raise UserError(
                f"its texts are in {encoding}, in whose order a queue cannot have keys of text",
                where=str(path),
                hint="Copy the tables into a database in UTF-8, which is the default.",
            )
    for table in (source.table, *(each.table for each in layout.spec.covers)):
        _demand_table(connection, layout, table, path)
    if layout.spec.participants:
        _demand_type(connection, source.table, layout.spec.participants, KeyKind.INTEGER, path)
    connection.execute(f"SELECT {layout.time or 'NULL'} FROM {layout.source} WHERE {held(source.where)} LIMIT 0")
    for cover in layout.spec.covers:
        if cover.uncovered is not None:
            raise UserError(
                f"{cover.table}: `uncovered` is for databases whose rows are only ever inserted",
                where=str(path),
                hint="Here a row that is deleted, or changed so that `where` holds no more, uncovers its key.",
            )
        connection.execute(f"SELECT 1 FROM {quoted(cover.table)} WHERE {held(cover.where)} LIMIT 0")


def _demand_table(connection: sqlite3.Connection, layout: Layout, table: str, path: Path) -> None:
    found = connection.execute("SELECT type FROM sqlite_master WHERE name = ? COLLATE NOCASE", (table,)).fetchall()
    if found != [("table",)]:
        raise UserError(f"there is no table {table}", where=str(path))
    _demand_type(connection, table, layout.spec.key, layout.spec.kind, path)
    key, text = literal(layout.spec.key), layout.spec.kind is not KeyKind.INTEGER
    if text and connection.execute(_telling(layout, table)).fetchall():
        raise UserError(
            f"the column {layout.spec.key} of {table} treats different texts as equal; a queue compares their bytes",
            where=str(path),
            hint="Declare the column without a COLLATE, or with COLLATE BINARY.",
        )
    ((rowid,),) = connection.execute(
        f"SELECT count(*) FROM pragma_table_info({literal(table)})"
        f" WHERE pk = 1 AND upper(type) = 'INTEGER' AND name = {key} COLLATE NOCASE"
    )
    ((indexes,),) = connection.execute(
        f"SELECT count(*) FROM pragma_index_list({literal(table)}) AS each, pragma_index_xinfo(each.name) AS part"
        f" WHERE NOT each.partial AND part.seqno = 0 AND part.name = {key} COLLATE NOCASE AND part.coll = 'BINARY'"
    )
    if not rowid and not indexes:
        raise UserError(
            f"{table} has no index that begins with {layout.spec.key}: each change would read all of it",
            where=str(path),
            hint=f"CREATE INDEX {quoted(f'{table}_{layout.spec.key}')} ON {quoted(table)} ({layout.key})",
        )


def _telling(layout: Layout, table: str) -> str:
    """A row if two texts are equal by the column's own collation, which SQLite does not name anywhere."""
    alike = f"SELECT {layout.key} AS key FROM {quoted(table)} WHERE 0 UNION ALL SELECT 'a'"
    return f"SELECT 1 FROM ({alike}) WHERE key IN ('A', 'a ')"


def _demand_type(connection: sqlite3.Connection, table: str, column: str, kind: KeyKind, path: Path) -> None:
    found = connection.execute(
        f"SELECT type FROM pragma_table_info({literal(table)}) WHERE name = ? COLLATE NOCASE", (column,)
    ).fetchall()
    if not found:
        raise UserError(f"{table} has no column {column}", where=str(path))
    (declared,) = found[0]
    whole = "INT" in declared.upper()
    text = not whole and any(part in declared.upper() for part in ("CHAR", "CLOB", "TEXT"))
    if not (whole if kind is KeyKind.INTEGER else text and kind is KeyKind.TEXT):
        raise wrong_type(column, table, declared or "of any type", kind, str(path))


def tables(layout: Layout) -> list[str]:
    made = [
        f"CREATE TABLE IF NOT EXISTS {layout.offers} "
        f"(version INTEGER PRIMARY KEY AUTOINCREMENT, key {layout.type} NOT NULL UNIQUE, event_time REAL)",
        f"CREATE TABLE IF NOT EXISTS {layout.acks} (key {layout.type} PRIMARY KEY)",
        f"CREATE TABLE IF NOT EXISTS {layout.words} (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
        f"INSERT OR IGNORE INTO {layout.words} VALUES ('', {literal(layout.declared())})",
    ]
    if layout.spec.participants:
        made += [
            f"CREATE TABLE IF NOT EXISTS {layout.participants} "
            f"(participant INTEGER, key {layout.type}, PRIMARY KEY (participant, key)) WITHOUT ROWID",
            f"CREATE INDEX IF NOT EXISTS {layout.placed('participants_key')} ON {layout.participants} (key)",
        ]
    return made


def capture(layout: Layout) -> list[str]:
    made = [
        _trigger(
            layout, "source_insert", layout.spec.source.table, [*_retimed(layout, "NEW"), _offered(layout, "NEW")]
        ),
        _trigger(layout, "source_delete", layout.spec.source.table, [_gone(layout, "OLD"), *_retimed(layout, "OLD")]),
        _trigger(
            layout,
            "source_update",
            layout.spec.source.table,
            [_gone(layout, "OLD"), *_retimed(layout, "OLD"), *_retimed(layout, "NEW"), _offered(layout, "NEW")],
        ),
    ]
    for number, cover in enumerate(layout.covers, 1):
        name, key = f"cover{number}", layout.key_of(cover)
        fresh, stale = (f"{row}.{key}" for row in ("NEW", "OLD"))
        made += [
            # The row may have replaced one that covered.
            _trigger(layout, f"{name}_insert", cover.table, _asked(layout, fresh)),
            _trigger(layout, f"{name}_delete", cover.table, _asked(layout, stale)),
            _trigger(layout, f"{name}_update", cover.table, [*_asked(layout, stale), *_asked(layout, fresh)]),
        ]
    return [*made, *_participation(layout)] if layout.spec.participants else made


def triggers(layout: Layout, covers: int) -> list[str]:
    """Names of all, with so many covers besides the word of consumers."""
    parts = ["source", *(f"cover{number}" for number in range(1, covers + 2))]
    return [
        layout.placed(f"{part}_{event}")
        for part in (*parts, "offer", "participant")
        for event in ("insert", "delete", "update")
    ]


def _trigger(layout: Layout, name: str, table: str, body: list[str]) -> str:
    event = name.rpartition("_")[2].upper()
    lines = "".join(f"  {statement};\n" for statement in body)
    return f"CREATE TRIGGER IF NOT EXISTS {layout.placed(name)} AFTER {event} ON {quoted(table)} BEGIN\n{lines}END"


def _asked(layout: Layout, key: str) -> list[str]:
    return [_withdrawn(layout, key), insert(layout, f"SELECT {key} AS key", f"{layout.between(key)}")]


def _gone(layout: Layout, row: str) -> str:
    key = f"{row}.{layout.key}"
    return f"DELETE FROM {layout.offers} WHERE key = {key} AND NOT {layout.present(key)}"


def _withdrawn(layout: Layout, key: str) -> str:
    return f"DELETE FROM {layout.offers} WHERE key = {key} AND NOT ({layout.pending(key)})"


def _offered(layout: Layout, row: str) -> str:
    key = f"{row}.{layout.key}"
    return insert(layout, f"SELECT {key} AS key", layout.between(key))


def _retimed(layout: Layout, row: str) -> list[str]:
    """The time of an offer is the earliest of its rows, whatever becomes of them."""
    if layout.time is None:
        return []
    key = f"{row}.{layout.key}"
    return [f"UPDATE {layout.offers} SET event_time = {layout.earliest(key)} WHERE key = {key}"]


def insert(layout: Layout, keys: str, *conditions: str) -> str:
    """Offers those of the keys that are pending, and are not offered."""
    wanted = [
        *conditions,
        f"NOT EXISTS (SELECT 1 FROM {layout.offers} AS _offer WHERE _offer.key = _asked.key)",
        layout.pending("_asked.key"),
    ]
    return (
        f"INSERT INTO {layout.offers} (key, event_time) SELECT _asked.key, {layout.earliest('_asked.key')}"
        f" FROM ({keys}) AS _asked WHERE {' AND '.join(wanted)}"
    )


def _participation(layout: Layout) -> list[str]:
    """Triggers that keep the participants of offered keys: they are added and removed with their offer."""
    column, source = quoted(layout.spec.participants or ""), layout.spec.source
    who = f"{layout.source}.{column}"
    key = f"{layout.source}.{layout.key}"
    concerned = (
        f"INSERT OR IGNORE INTO {layout.participants} SELECT {who}, {key} FROM {layout.source}"
        f" WHERE {held(source.where)} AND {who} NOTNULL AND {key} ="
    )
    offered = f"{key} IN (SELECT key FROM {layout.offers})"
    also = [f"{concerned} NEW.{layout.key} AND {offered} AND {who} = NEW.{column}"]
    offers, gone = f"pending_offers_{layout.spec.name}", f"DELETE FROM {layout.participants} WHERE key = OLD.key"
    return [
        _trigger(layout, "offer_insert", offers, [f"{concerned} NEW.key"]),
        _trigger(layout, "offer_delete", offers, [gone]),
        _trigger(layout, "participant_insert", source.table, also),
        _trigger(layout, "participant_update", source.table, also),
    ]
