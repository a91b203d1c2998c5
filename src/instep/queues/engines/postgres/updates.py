"""Updates of a queue's offers in PostgreSQL, besides its triggers. None waits for a row lock."""

from __future__ import annotations

from collections.abc import Iterable

from instep.queues.engines.postgres.layout import Layout, numbers
from instep.queues.engines.postgres.offering import reoffer
from instep.queues.engines.postgres.queries import confirmed
from instep.queues.engines.queue_engine import Offer


def remove(layout: Layout, rows: list[tuple[int, int]]) -> str:
    """Exactly these (key, version), whose truth was seen: whatever happened since has a row of its own."""
    return (
        f"WITH {_locked(layout, rows)}\nDELETE FROM {layout.offers} AS _offer USING _held\n"
        "WHERE _offer.key = _held.key AND _offer.version = _held.version"
    )


def watch(layout: Layout, rows: list[tuple[int, int]]) -> str:
    """No source has these: to be asked again when every transaction of now has ended."""
    return (
        f"WITH {_locked(layout, rows)}\nUPDATE {layout.offers} AS _offer"
        " SET absent_since = pg_snapshot_xmax(pg_current_snapshot()) FROM _held\n"
        "WHERE _offer.key = _held.key AND _offer.version = _held.version AND absent_since IS NULL"
    )


def withdraw(layout: Layout, offers: Iterable[Offer]) -> str:
    """A key that is pending may have several offers; all that were there when this one was read."""
    keys, versions = zip(*((each.key, each.version) for each in offers), strict=True)
    return (
        f"WITH _held AS MATERIALIZED (SELECT _offer.key, _offer.version FROM {_pairs(keys, versions)}\n"
        f"  JOIN {layout.offers} AS _offer ON _offer.key = _seen.key AND _offer.version <= _seen.version\n"
        "  FOR UPDATE OF _offer SKIP LOCKED)\n"
        f"DELETE FROM {layout.offers} AS _offer USING _held\n"
        "WHERE _offer.key = _held.key AND _offer.version = _held.version"
    )


def offer(layout: Layout, keys: list[int]) -> str:
    return reoffer(layout, confirmed(layout, keys))


def acknowledge(layout: Layout, keys: list[int]) -> str:
    """In the order of keys: consumers that acknowledge the same ones at once wait in line."""
    return (
        f"INSERT INTO {layout.acks} (key) SELECT DISTINCT key FROM unnest({numbers(keys)}) AS _asked (key)"
        f" WHERE {layout.between('key')} ORDER BY key ON CONFLICT DO NOTHING"
    )


def reopen(layout: Layout, keys: list[int]) -> str:
    return (
        f"DELETE FROM {layout.acks} WHERE key IN"
        f" (SELECT key FROM {layout.acks} WHERE key = ANY({numbers(keys)}) ORDER BY key FOR UPDATE) RETURNING key"
    )


def _locked(layout: Layout, rows: list[tuple[int, int]]) -> str:
    keys, versions = zip(*rows, strict=True)
    return (
        f"_held AS MATERIALIZED (SELECT _offer.key, _offer.version FROM {_pairs(keys, versions)}\n"
        f"  JOIN {layout.offers} AS _offer USING (key, version) FOR UPDATE OF _offer SKIP LOCKED)"
    )


def _pairs(keys: Iterable[int], versions: Iterable[int]) -> str:
    return f"unnest({numbers(list(keys))}, {numbers(list(versions))}) AS _seen (key, version)"
