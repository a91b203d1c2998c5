"""Queries on a queue in PostgreSQL and its tables. Each is one statement, on one snapshot."""

from __future__ import annotations

from typing import Final

from instep.domain.pending_queue import KeyRange
from instep.queues.engines.postgres.layout import Layout, held, moment, numbers, quoted
from instep.queues.engines.postgres.offering import gathered, source_keys, unoffered
from instep.queues.engines.queue_engine import Ask

#: Moments that a `datetime` can be; others are as good as unknown.
_MOMENTS: Final = "BETWEEN '0001-01-02' AND '9999-12-30'"

#: Comparisons name so many keys, and count the others.
NAMED: Final = 1000


def offers(layout: Layout, ask: Ask, *, settled: bool = True) -> str:
    """Offers in the order of reading: key, version, event time, and what the user's tables say of it.

    `gone` is a key that the source has lost, as far as every transaction can tell that was running when that was first
    seen (`absent`): one of them might have been adding it, without an offer of its own because it saw a cover.
    """
    until = ask.settled if settled else None
    time = f"CASE WHEN event_time {_MOMENTS} THEN event_time END" if layout.event_time else "NULL::timestamptz"
    wanted = [*_beyond(layout, "_offer.key", ask.after)]
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
        f"  {_where(wanted)}ORDER BY key{_order(layout)}, version{_order(layout)} LIMIT {int(ask.limit)}) AS _page\n"
        f"ORDER BY key{_order(layout)}, version{_order(layout)}"
    )


def anti_join(layout: Layout, ask: Ask) -> str:
    """What the queue replaces."""
    source = layout.spec.source
    key = f"{layout.called(source.table)}.{layout.key}"
    wanted = [held(source.where), layout.between(key), *_beyond(layout, key, ask.after), layout.uncovered(key)]
    if ask.settled and layout.event_time:
        wanted.append(f"{layout.event_time} <= {moment(ask.settled)}")
    if ask.participants and layout.spec.participants:
        wanted.append(f"{quoted(layout.spec.participants)} = ANY({numbers(list(ask.participants))})")
    return (
        f"SELECT {layout.legacy_comment} DISTINCT {key}::bigint AS key\n"
        f"FROM {layout.table(source.table)} AS {layout.called(source.table)}\n"
        f"{_where(wanted)}ORDER BY key{_order(layout)} LIMIT {int(ask.limit)}"
    )


def confirmed(layout: Layout, keys: list[int]) -> str:
    return (
        f"SELECT key FROM unnest({numbers(keys)}) AS _asked (key)\n"
        f"WHERE {layout.between('key')} AND {layout.present('_asked.key')}\n"
        f"    AND {layout.uncovered_each('_asked.key')}"
    )


def bounds(layout: Layout) -> str:
    source = layout.spec.source
    called = layout.called(source.table)
    key = f"{called}.{layout.key}"
    return (
        f"SELECT min({key})::bigint, max({key})::bigint FROM {layout.table(source.table)} AS {called} "
        f"WHERE {held(source.where)} AND {layout.between(key)}"
    )


def backfill(layout: Layout, keys: KeyRange) -> str:
    """No key is locked and none is waited for: each offer is a row of its own."""
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
    key = f"{layout.called(source.table)}.{layout.key}"
    named = f"ARRAY(SELECT key FROM {{}} ORDER BY key LIMIT {NAMED})"
    return (
        f"WITH _pending AS MATERIALIZED (SELECT DISTINCT {key}::bigint AS key"
        f" FROM {layout.table(source.table)} AS {layout.called(source.table)}\n"
        f"  WHERE {held(source.where)} AND {layout.between(key, keys)}\n"
        f"    AND {layout.uncovered(key, keys)}),\n"
        f"_offered AS MATERIALIZED (SELECT DISTINCT key FROM {layout.offers} WHERE {layout.between('key', keys)}),\n"
        "_missing AS MATERIALIZED (SELECT key FROM _pending EXCEPT SELECT key FROM _offered),\n"
        "_surplus AS MATERIALIZED (SELECT key FROM _offered EXCEPT SELECT key FROM _pending)\n"
        "SELECT (SELECT count(*) FROM _pending), (SELECT count(*) FROM _missing), (SELECT count(*) FROM _surplus),\n"
        f"  {named.format('_missing')}, {named.format('_surplus')}"
    )


def garbage(layout: Layout, table: str, key: str, where: str | None) -> str:
    """By the two ends of an index on the key."""
    called, keys = layout.called(table), layout.spec.keys
    found = f"SELECT count(*) FROM {layout.table(table)} AS {called} WHERE {held(where)} AND {called}.{key}"
    return f"SELECT ({found} < {int(keys.lowest)}) + ({found} >= {int(keys.below)})"


def _beyond(layout: Layout, key: str, after: int | None) -> list[str]:
    return [] if after is None else [f"{key} {'<' if layout.spec.newest_first else '>'} {int(after)}"]


def _order(layout: Layout) -> str:
    return " DESC" if layout.spec.newest_first else ""


def _where(conditions: list[str]) -> str:
    return f"WHERE {' AND '.join(conditions)}\n  " if conditions else ""
