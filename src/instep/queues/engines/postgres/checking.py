"""Check that a queue can be kept for these tables, before anything is created."""

from __future__ import annotations

from instep.errors import UserError
from instep.postgres.connection import Session
from instep.queues.engines.postgres.layout import Layout, held, literal, quoted, source_keys

_WHOLE = ("smallint", "integer", "bigint")


def demand_usable(session: Session, layout: Layout) -> None:
    """Raises `UserError` for tables that are not there or cannot be captured, keys that are no whole numbers or have no
    index, and conditions that PostgreSQL does not understand.
    """
    source = layout.spec.source
    for table in (source.table, *(each.table for each in layout.spec.covers)):
        _demand_table(session, layout, table)
    if layout.spec.participants:
        _demand_whole(session, layout, source.table, layout.spec.participants)
    session.ask(f"{source_keys(layout, layout.table(source.table))} LIMIT 0")
    for cover in layout.spec.covers:
        if cover.uncovered is not None:
            raise UserError(
                f"{cover.table}: `uncovered` is for databases whose rows are only ever inserted",
                where=session.place.shown,
                hint="Here a row that is deleted, or changed so that `where` holds no more, uncovers its key.",
            )
        session.ask(
            f"SELECT FROM {layout.table(cover.table)} AS {layout.called(cover.table)} WHERE {held(cover.where)} LIMIT 0"
        )


def _demand_table(session: Session, layout: Layout, table: str) -> None:
    schema, name = map(literal, layout.parts(table))
    found = session.ask(
        "SELECT c.relkind::text, c.oid FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
        f" WHERE n.nspname = {schema} AND c.relname = {name}"
    )
    if not found:
        raise UserError(f"there is no table {table} in the schema {layout.parts(table)[0]}", where=session.place.shown)
    ((kind, oid),) = found
    if kind not in ("r", "p"):
        raise UserError(f"{table} is no table", where=session.place.shown, hint="Only tables have triggers of rows.")
    _demand_whole(session, layout, table, layout.spec.key)
    indexed = session.ask(
        "SELECT 1 FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]"
        f" WHERE i.indrelid = {oid} AND i.indisvalid AND i.indpred IS NULL AND a.attname = {literal(layout.spec.key)}"
    )
    if not indexed:
        raise UserError(
            f"{table} has no index that begins with {layout.spec.key}: each change would read all of it",
            where=session.place.shown,
            hint=f"CREATE INDEX CONCURRENTLY ON {layout.table(table)} ({layout.key})",
        )


def _demand_whole(session: Session, layout: Layout, table: str, column: str) -> None:
    found = session.ask(
        "SELECT format_type(a.atttypid, NULL) FROM pg_attribute AS a WHERE a.attnum > 0 AND NOT a.attisdropped"
        f" AND a.attrelid = {literal(layout.table(table))}::regclass AND a.attname = {literal(column)}"
    )
    if not found:
        raise UserError(f"{table} has no column {quoted(column)}", where=session.place.shown)
    if found[0][0] not in _WHOLE:
        raise UserError(
            f"the column {column} of {table} is {found[0][0]}; a queue has keys of 64-bit integers",
            where=session.place.shown,
            hint="Use a column of type bigint, integer or smallint.",
        )
