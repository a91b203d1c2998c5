"""Periodic maintenance of indexes, and removal of unused ones."""

from __future__ import annotations

from collections.abc import Sequence

from instep.postgres.connection import Session
from instep.targets.postgres.registry import INDEXES
from instep.targets.table_target import alias_owns


def tend(session: Session, tables: Sequence[str], *, full: bool) -> None:
    """Fresh statistics where much has changed. Old versions of rows are the server's care, unless all is asked for."""
    for table in tables:
        if full:
            session.run("VACUUM (ANALYZE, SKIP_LOCKED) {table}", table=session.name(table))
        elif _changed(session, table):
            session.run("ANALYZE (SKIP_LOCKED) {table}", table=session.name(table))


def _changed(session: Session, table: str) -> bool:
    """Sooner than the server would do it by itself: a new index is read as soon as it is there."""
    found = session.run(
        "SELECT 1 FROM pg_stat_user_tables JOIN pg_class ON pg_class.oid = relid "
        "WHERE schemaname = %s AND pg_class.relname = %s AND n_mod_since_analyze > 1000 + 0.1 * greatest(reltuples, 0)",
        session.place.schema,
        table,
    )
    return bool(found)


def leftovers(session: Session, alias: str, served: str | None, idle_seconds: float) -> list[str]:
    found = session.run(
        "SELECT name FROM {indexes} WHERE starts_with(name, %s) "
        "AND at <= clock_timestamp() - make_interval(secs => %s) "
        'ORDER BY name COLLATE "C"',
        f"{alias}__",
        idle_seconds,
        indexes=session.name(INDEXES),
    )
    return [name for (name,) in found if alias_owns(alias, name) and name != served]
