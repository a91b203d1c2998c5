"""Tables of a queue, and the triggers that keep it.

SQLite has one writer at a time, which sees all that is: each trigger asks anew whether its key is pending, so that the
offers are exact. Only `INSERT OR REPLACE` escapes, where a row goes for the sake of another key: it is no event unless
the writer has said `PRAGMA recursive_triggers = ON`, and `compare` finds what it uncovered.
"""

from __future__ import annotations

from instep.queues.engines.sqlite.layout import Layout, held, literal, quoted


def tables(layout: Layout) -> list[str]:
    made = [
        f"CREATE TABLE IF NOT EXISTS {layout.offers} "
        "(version INTEGER PRIMARY KEY AUTOINCREMENT, key INTEGER NOT NULL UNIQUE, event_time REAL)",
        f"CREATE TABLE IF NOT EXISTS {layout.acks} (key INTEGER PRIMARY KEY)",
        f"CREATE TABLE IF NOT EXISTS {layout.words} (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
        f"INSERT OR IGNORE INTO {layout.words} VALUES ('', {literal(layout.declared())})",
    ]
    if layout.spec.participants:
        made += [
            f"CREATE TABLE IF NOT EXISTS {layout.participants} "
            "(participant INTEGER, key INTEGER, PRIMARY KEY (participant, key)) WITHOUT ROWID",
            f"CREATE INDEX IF NOT EXISTS {layout.own('participants_key')} ON {layout.participants} (key)",
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
        layout.own(f"{part}_{event}")
        for part in (*parts, "offer", "participant")
        for event in ("insert", "delete", "update")
    ]


def _trigger(layout: Layout, name: str, table: str, body: list[str]) -> str:
    event = name.rpartition("_")[2].upper()
    lines = "".join(f"  {statement};\n" for statement in body)
    return f"CREATE TRIGGER IF NOT EXISTS {layout.own(name)} AFTER {event} ON {quoted(table)} BEGIN\n{lines}END"


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
