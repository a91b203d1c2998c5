"""Queries on a queue in SQLite and its tables."""

from __future__ import annotations

from datetime import datetime

from instep.domain.pending_queue import KeyRange
from instep.queues.engines.queue_engine import Ask
from instep.queues.engines.sqlite.layout import Layout
from instep.queues.engines.triggered import held, quoted


def offers(layout: Layout, ask: Ask) -> str:
    """Offers in the order of reading: key, version, event time, whether it is false, and whether to give it."""
    wanted = layout.beyond("_offer.key", ask.after)
    if ask.settled and layout.time:
        wanted.append(_settled("_offer.event_time", ask.settled))
    if ask.participants and layout.spec.participants:
        concerned = f"SELECT key FROM {layout.participants} WHERE participant IN ({_list(ask.participants)})"
        wanted.append(f"_offer.key IN ({concerned})")
    return (
        f"SELECT {layout.comment} key, version, event_time, NOT ({layout.pending('_offer.key')}) AS false\n"
        f"FROM {layout.offers} AS _offer {_where(wanted)}ORDER BY key{layout.descending} LIMIT {int(ask.limit)}"
    )


def anti_join(layout: Layout, ask: Ask) -> str:
    """The anti-join that the queue replaces."""
    key = f"{layout.source}.{layout.key}"
    wanted = [held(layout.spec.source.where), layout.between(key), *layout.beyond(key, ask.after)]
    wanted.append(layout.uncovered(key))
    if ask.participants and layout.spec.participants:
        wanted.append(f"{quoted(layout.spec.participants)} IN ({_list(ask.participants)})")
    having = f"HAVING {_settled(f'min({layout.time})', ask.settled)} " if ask.settled and layout.time else ""
    return (
        f"SELECT {layout.legacy_comment} {key} AS key FROM {layout.source}\n"
        f"{_where(wanted)}GROUP BY {key} {having}ORDER BY {key}{layout.descending} LIMIT {int(ask.limit)}"
    )


def bounds(layout: Layout) -> tuple[str, str]:
    """The lowest and the highest key, one by one: each is at an end of the index."""
    key = f"{layout.source}.{layout.key}"
    rows = f"FROM {layout.source} WHERE {held(layout.spec.source.where)} AND {layout.between(key)}"
    return f"SELECT min({key}) {rows}", f"SELECT max({key}) {rows}"


def present(layout: Layout, keys: KeyRange) -> str:
    """Keys of the source in a range."""
    key = f"{layout.source}.{layout.key}"
    return (
        f"SELECT DISTINCT {key} AS key FROM {layout.source}"
        f" WHERE {held(layout.spec.source.where)} AND {layout.between(key, keys)}"
    )


def edge(layout: Layout, keys: KeyRange, size: int) -> str:
    """The last of so many keys, and one behind it if there are more."""
    return f"{present(layout, keys)} ORDER BY 1 LIMIT 2 OFFSET {size - 1:d}"


def pending(layout: Layout, keys: KeyRange) -> str:
    return f"{present(layout, keys)} AND {layout.uncovered(f'{layout.source}.{layout.key}')}"


def counted(layout: Layout, keys: KeyRange) -> str:
    """Count the keys of the source in a range, and those pending."""
    uncovered = layout.uncovered("_row.key")
    return f"SELECT count(*), count(*) FILTER (WHERE {uncovered}) FROM ({present(layout, keys)}) AS _row"


def offered(layout: Layout, keys: KeyRange) -> str:
    return f"SELECT key FROM {layout.offers} WHERE {layout.between('key', keys)}"


def garbage(layout: Layout, table: str, where: str | None) -> str:
    """Fractions lie between the ends of integers: to count them, each key is read."""
    column = f"{quoted(table)}.{layout.key}"
    return (
        f"SELECT count(*) FROM {quoted(table)} WHERE {held(where)}"
        f" AND {column} IS NOT NULL AND NOT ({layout.between(column)})"
    )


def _settled(time: str, until: datetime) -> str:
    """A key without an event time has nothing to wait for."""
    return f"({time} <= {until.timestamp()!r} OR {time} = 9e999)"


def _list(numbers: tuple[int, ...]) -> str:
    return ", ".join(map(str, map(int, numbers)))


def _where(conditions: list[str]) -> str:
    return f"WHERE {' AND '.join(conditions)}\n" if conditions else ""
