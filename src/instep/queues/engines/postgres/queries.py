"""Queries on a queue in PostgreSQL, updates of its offers besides its triggers, and statistics of its reads."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Final

from instep.domain.pending_queue import KeyKind, KeyRange, QueueKey
from instep.errors import UserError
from instep.postgres.connection import Session
from instep.queues.engines.postgres.layout import Layout, gathered, moment, numbers, reoffer, source_keys, unoffered
from instep.queues.engines.queue_engine import NAMED, Ask, Observation, Offer
from instep.queues.engines.triggered import held, literal, quoted

#: Moments that a `datetime` can be; others are as good as unknown.
_MOMENTS: Final = "BETWEEN '0001-01-02' AND '9999-12-30'"


def offers(layout: Layout, ask: Ask, *, settled: bool = True) -> str:
    """Offers in the order of reading: key, version, event time, and what the user's tables say of it.

    `gone` is a key that the source has lost, as far as every transaction can tell that was running when that was first
    seen (`absent`): one of them might have been adding it, without an offer of its own because it saw a cover.
    """
    until = ask.settled if settled else None
    time = f"CASE WHEN event_time {_MOMENTS} THEN event_time END" if layout.event_time else "NULL::timestamptz"
    order = f"key{layout.descending}, version{layout.descending}"
    wanted = layout.beyond("_offer.key", ask.after)
    if until and layout.event_time:
        wanted.append(f"{layout.settling} <= {moment(until)}")
    if ask.participants and layout.spec.participants:
        wanted.append(f"participants && {numbers(list(ask.participants))}")
    unsettled = f" WHEN {layout.present('_page.key')} THEN 'unsettled'" if until and layout.event_time else ""
    return (
        f"SELECT {layout.comment} key, version, event_time,\n"
        f"  CASE WHEN NOT ({layout.uncovered_each('_page.key')}) THEN 'covered'\n"
        f"  WHEN {layout.present('_page.key', until)} THEN 'pending'{unsettled}\n"
        "  WHEN absent_since IS NULL THEN 'absent'"
        " WHEN absent_since <= pg_snapshot_xmin(pg_current_snapshot()) THEN 'gone' ELSE 'watched' END\n"
        f"FROM (SELECT key, version, {time} AS event_time, absent_since FROM {layout.offers} AS _offer\n"
        f"  {_where(wanted)}ORDER BY {order} LIMIT {int(ask.limit)}) AS _page\n"
        f"ORDER BY {order}"
    )


def anti_join(layout: Layout, ask: Ask) -> str:
    """The anti-join that the queue replaces."""
    source = layout.spec.source
    called = layout.called(source.table)
    key = layout.column(called)
    wanted = [held(source.where), layout.between(key), *layout.beyond(key, ask.after), layout.uncovered(key)]
    if ask.participants and layout.spec.participants:
        wanted.append(f"{quoted(layout.spec.participants)} = ANY({numbers(list(ask.participants))})")
    having = f"HAVING {layout.settled(ask.settled)} " if ask.settled and layout.event_time else ""
    return (
        f"SELECT {layout.legacy_comment} {layout.typed(called)} AS key\n"
        f"FROM {layout.table(source.table)} AS {called}\n"
        f"{_where(wanted)}GROUP BY {key} {having}ORDER BY {key}{layout.descending} LIMIT {int(ask.limit)}"
    )


def confirmed(layout: Layout, keys: list[QueueKey]) -> str:
    return (
        f"SELECT key FROM unnest({layout.array(keys)}) AS _asked (key)\n"
        f"WHERE {layout.between('key')} AND {layout.present('_asked.key')}\n"
        f"    AND {layout.uncovered_each('_asked.key')}"
    )


def bounds(layout: Layout) -> str:
    """The lowest and the highest key, one by one: each is at an end of the index."""
    source = layout.spec.source
    called = layout.called(source.table)
    key = layout.column(called)
    found = (
        f"SELECT {layout.typed(called)} FROM {layout.table(source.table)} AS {called} "
        f"WHERE {held(source.where)} AND {layout.between(key)} ORDER BY {key}"
    )
    return f"SELECT ({found} LIMIT 1), ({found} DESC LIMIT 1)"


def edge(layout: Layout, keys: KeyRange, size: int) -> str:
    """The last of so many keys, and one behind it if there are more."""
    source = layout.spec.source
    called = layout.called(source.table)
    key = layout.column(called)
    return (
        f"SELECT DISTINCT {layout.typed(called)} AS key FROM {layout.table(source.table)} AS {called} "
        f"WHERE {held(source.where)} AND {layout.between(key, keys)} ORDER BY key LIMIT 2 OFFSET {size - 1:d}"
    )


def backfill(layout: Layout, keys: KeyRange) -> str:
    """Backfill a range without locks on keys, and without waiting for any: each offer is a row of its own."""
    columns, values = gathered(layout)
    rows = source_keys(layout, layout.table(layout.spec.source.table), keys)
    return (
        f"WITH _present AS (SELECT {values} FROM (\n  {rows}) AS _row GROUP BY key),\n"
        f"_pending AS (SELECT * FROM _present WHERE {layout.uncovered('_present.key', keys)}),\n"
        f"_added AS (INSERT INTO {layout.offers} ({', '.join(columns)}) SELECT {', '.join(columns)} FROM _pending\n"
        f"  WHERE {unoffered(layout, '_pending')})\n"
        "SELECT (SELECT count(*) FROM _present), (SELECT count(*) FROM _pending)"
    )


def compare(layout: Layout, keys: KeyRange) -> str:
    """One row: pending, missing, surplus, and the first keys of both."""
    source = layout.spec.source
    called = layout.called(source.table)
    key = layout.column(called)
    named = f"ARRAY(SELECT key FROM {{}} ORDER BY key LIMIT {NAMED})"
    return (
        f"WITH _pending AS MATERIALIZED (SELECT DISTINCT {layout.typed(called)} AS key"
        f" FROM {layout.table(source.table)} AS {called}\n"
        f"  WHERE {held(source.where)} AND {layout.between(key, keys)}\n"
        f"    AND {layout.uncovered(key, keys)}),\n"
        f"_offered AS MATERIALIZED (SELECT DISTINCT key FROM {layout.offers} WHERE {layout.between('key', keys)}),\n"
        "_missing AS MATERIALIZED (SELECT key FROM _pending EXCEPT SELECT key FROM _offered),\n"
        "_surplus AS MATERIALIZED (SELECT key FROM _offered EXCEPT SELECT key FROM _pending)\n"
        "SELECT (SELECT count(*) FROM _pending), (SELECT count(*) FROM _missing), (SELECT count(*) FROM _surplus),\n"
        f"  {named.format('_missing')}, {named.format('_surplus')}"
    )


def garbage(layout: Layout, table: str, key: str, where: str | None) -> str:
    """Count rows with a key that the queue cannot have: of integers, by the two ends of an index."""
    called = layout.called(table)
    rows = f"SELECT count(*) FROM {layout.table(table)} AS {called} WHERE {held(where)}"
    column, keys = layout.column(called, key), layout.spec.keys
    if layout.spec.kind is not KeyKind.INTEGER:
        return f"{rows} AND {column} IS NOT NULL AND NOT ({layout.between(column)})"
    ends = [] if keys.after is None else [f"({rows} AND {column} <= {keys.after:d})"]
    ends += [] if keys.upto is None else [f"({rows} AND {column} > {keys.upto:d})"]
    return f"SELECT {' + '.join(ends) or 0}"


def _where(conditions: list[str]) -> str:
    return f"WHERE {' AND '.join(conditions)}\n  " if conditions else ""


def remove(layout: Layout, rows: list[tuple[QueueKey, int]]) -> str:
    """Exactly these (key, version), whose truth was seen: whatever happened since has a row of its own."""
    return (
        f"WITH {_locked(layout, rows)}\nDELETE FROM {layout.offers} AS _offer USING _held\n"
        "WHERE _offer.key = _held.key AND _offer.version = _held.version"
    )


def watch(layout: Layout, rows: list[tuple[QueueKey, int]]) -> str:
    """Keep offers without a source row, to be checked again when every transaction of now has ended."""
    return (
        f"WITH {_locked(layout, rows)}\nUPDATE {layout.offers} AS _offer"
        " SET absent_since = pg_snapshot_xmax(pg_current_snapshot()) FROM _held\n"
        "WHERE _offer.key = _held.key AND _offer.version = _held.version AND absent_since IS NULL"
    )


def withdraw(layout: Layout, offers: Iterable[Offer]) -> str:
    """A key that is pending may have several offers; all that were there when this one was read."""
    keys, versions = zip(*((each.key, each.version) for each in offers), strict=True)
    return (
        f"WITH _held AS MATERIALIZED (SELECT _offer.key, _offer.version FROM {_pairs(layout, keys, versions)}\n"
        f"  JOIN {layout.offers} AS _offer ON _offer.key = _seen.key AND _offer.version <= _seen.version\n"
        "  FOR UPDATE OF _offer SKIP LOCKED)\n"
        f"DELETE FROM {layout.offers} AS _offer USING _held\n"
        "WHERE _offer.key = _held.key AND _offer.version = _held.version"
    )


def offer(layout: Layout, keys: list[QueueKey]) -> str:
    return reoffer(layout, confirmed(layout, keys))


def acknowledge(layout: Layout, keys: list[QueueKey]) -> str:
    """Acknowledge keys in their order: consumers that acknowledge the same ones at once wait in line."""
    return (
        f"INSERT INTO {layout.acks} (key) SELECT DISTINCT key FROM unnest({layout.array(keys)}) AS _asked (key)"
        f" WHERE {layout.between('key')} ORDER BY key ON CONFLICT DO NOTHING"
    )


def reopen(layout: Layout, keys: list[QueueKey]) -> str:
    return (
        f"DELETE FROM {layout.acks} WHERE key IN"
        f" (SELECT key FROM {layout.acks} WHERE key = ANY({layout.array(keys)}) ORDER BY key FOR UPDATE) RETURNING key"
    )


def left(layout: Layout) -> str:
    """Count acknowledgements of keys that the source has not."""
    return f"SELECT count(*) FROM {layout.acks} AS _ack WHERE NOT {layout.present('_ack.key')}"


def forget_left(layout: Layout, after: QueueKey | None, limit: int) -> str:
    """Remove some of them, beyond a key; the trigger offers their keys, so that none is missed that is being added just
    now.
    """
    some = (
        f"SELECT key FROM {layout.acks} AS _ack"
        f" WHERE {layout.between('key', KeyRange(after))} AND NOT {layout.present('_ack.key')}"
        f" ORDER BY key LIMIT {int(limit)} FOR UPDATE SKIP LOCKED"
    )
    return f"DELETE FROM {layout.acks} WHERE key IN ({some}) RETURNING key"


def _locked(layout: Layout, rows: list[tuple[QueueKey, int]]) -> str:
    keys, versions = zip(*rows, strict=True)
    return (
        f"_held AS MATERIALIZED (SELECT _offer.key, _offer.version FROM {_pairs(layout, keys, versions)}\n"
        f"  JOIN {layout.offers} AS _offer USING (key, version) FOR UPDATE OF _offer SKIP LOCKED)"
    )


def _pairs(layout: Layout, keys: Iterable[QueueKey], versions: Iterable[int]) -> str:
    return f"unnest({layout.array(keys)}, {numbers(versions)}) AS _seen (key, version)"


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
