"""Statistics that PostgreSQL itself keeps of the reads of a queue."""

from __future__ import annotations

from datetime import timedelta

from instep.errors import UserError
from instep.postgres.connection import Session
from instep.queues.engines.postgres.layout import literal, quoted
from instep.queues.engines.queue_engine import Observation


def observations(session: Session, comments: tuple[str, ...]) -> list[Observation]:
    """Since its statistics were last reset: they are sums, of which no part can be asked."""
    found = session.ask(
        "SELECT n.nspname FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
        " WHERE c.relname = 'pg_stat_statements'"
    )
    if not found:
        raise UserError(
            "PostgreSQL counts no queries here",
            where=session.place.shown,
            hint="Add pg_stat_statements to shared_preload_libraries, restart the server, and run:"
            " CREATE EXTENSION pg_stat_statements",
        )
    seen = []
    for comment in comments:
        ((calls, total),) = session.ask(
            f"SELECT coalesce(sum(calls), 0)::bigint, sum(total_exec_time)::float8 FROM {quoted(found[0][0])}."
            f"pg_stat_statements WHERE position({literal(comment)} IN query) > 0"
            " AND dbid = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        if calls:
            name = comment.removeprefix("/* ").removesuffix(" */")
            seen.append(Observation(name, calls, timedelta(milliseconds=total / calls), None, None, None))
    return seen
