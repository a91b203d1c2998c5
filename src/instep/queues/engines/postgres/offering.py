"""Columns of an offer, computed from the rows of the source."""

from __future__ import annotations

from instep.domain.pending_queue import KeyRange
from instep.queues.engines.postgres.layout import Layout, held, quoted

#: Infinite where the rows have none; null where there are no rows yet.
_EARLIEST = "CASE WHEN count(*) > 0 THEN coalesce(min(event_time), 'infinity') END"
_CONCERNED = "coalesce(array_agg(DISTINCT participant) FILTER (WHERE participant IS NOT NULL), '{}')"


def source_keys(layout: Layout, rows: str, keys: KeyRange | None = None) -> str:
    """Keys of some rows, with what they offer."""
    source = layout.spec.source
    called = layout.called(source.table)
    return (
        f"SELECT {called}.{layout.key}::bigint AS key, {_columns(layout)}\n"
        f"    FROM {rows} AS {called} WHERE {held(source.where)} AND {layout.between(f'{called}.{layout.key}', keys)}"
    )


def _columns(layout: Layout) -> str:
    participant = f"{quoted(layout.spec.participants)}::bigint" if layout.spec.participants else "NULL::bigint"
    return f"{layout.event_time or 'NULL::timestamptz'} AS event_time, {participant} AS participant"


def gathered(layout: Layout) -> tuple[list[str], str]:
    """Columns of the offers, and what they are for the rows of one key."""
    columns, values = ["key"], "key"
    if layout.event_time:
        columns, values = [*columns, "event_time"], f"{values}, {_EARLIEST} AS event_time"
    if layout.spec.participants:
        columns.append("participants")
        values += f", {_CONCERNED} AS participants"
    return columns, values


def unoffered(layout: Layout, fresh: str) -> str:
    """No offer says all that the new one would. One that is about to go for lack of a source does not count."""
    same = [f"_offer.key = {fresh}.key", "_offer.absent_since IS NULL"]
    same += [f"_offer.event_time <= {fresh}.event_time"] if layout.event_time else []
    same += [f"_offer.participants @> {fresh}.participants"] if layout.spec.participants else []
    return f"(SELECT 1 FROM {layout.offers} AS _offer WHERE {' AND '.join(same)} LIMIT 1) IS NULL"


def reoffer(layout: Layout, keys: str) -> str:
    """An INSERT of these keys with what the source says of them, if it has them."""
    columns, values = gathered(layout)
    found = ", ".join(f"_found.{each}" for each in columns[1:])
    lateral = f" CROSS JOIN LATERAL (SELECT {values.replace('key, ', '', 1)} FROM (SELECT {_columns(layout)} "
    lateral += f"{layout.source_rows('_again.key')}) AS _row) AS _found"
    if not found:
        return f"INSERT INTO {layout.offers} (key) SELECT DISTINCT key FROM ({keys}) AS _again"
    return (
        f"INSERT INTO {layout.offers} ({', '.join(columns)}) SELECT _again.key, {found}\n"
        f"  FROM (SELECT DISTINCT key FROM ({keys}) AS _row) AS _again{lateral}"
    )
