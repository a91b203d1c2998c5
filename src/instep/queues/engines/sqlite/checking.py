"""Check that a queue can be kept for these tables, before anything is created."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from instep.errors import UserError
from instep.queues.engines.sqlite.layout import Layout, held, literal, quoted


def demand_usable(connection: sqlite3.Connection, layout: Layout, path: Path) -> None:
    """Raises `UserError` for tables that are not there, keys that are no whole numbers or have no index, and conditions
    that SQLite does not understand.
    """
    source = layout.spec.source
    for table in (source.table, *(each.table for each in layout.spec.covers)):
        _demand_table(connection, layout, table, path)
    if layout.spec.participants:
        _demand_whole(connection, source.table, layout.spec.participants, path)
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
    _demand_whole(connection, table, layout.spec.key, path)
    key = literal(layout.spec.key)
    ((rowid,),) = connection.execute(
        f"SELECT count(*) FROM pragma_table_info({literal(table)})"
        f" WHERE pk = 1 AND upper(type) = 'INTEGER' AND name = {key} COLLATE NOCASE"
    )
    ((indexes,),) = connection.execute(
        f"SELECT count(*) FROM pragma_index_list({literal(table)}) AS each, pragma_index_info(each.name) AS part"
        f" WHERE NOT each.partial AND part.seqno = 0 AND part.name = {key} COLLATE NOCASE"
    )
    if not rowid and not indexes:
        raise UserError(
            f"{table} has no index that begins with {layout.spec.key}: each change would read all of it",
            where=str(path),
            hint=f"CREATE INDEX {quoted(f'{table}_{layout.spec.key}')} ON {quoted(table)} ({layout.key})",
        )


def _demand_whole(connection: sqlite3.Connection, table: str, column: str, path: Path) -> None:
    found = connection.execute(
        f"SELECT type FROM pragma_table_info({literal(table)}) WHERE name = ? COLLATE NOCASE", (column,)
    ).fetchall()
    if not found:
        raise UserError(f"{table} has no column {column}", where=str(path))
    if "INT" not in found[0][0].upper():
        raise UserError(
            f"the column {column} of {table} is {found[0][0] or 'of any type'}; a queue has keys of 64-bit integers",
            where=str(path),
            hint="Use a column of type INTEGER.",
        )
