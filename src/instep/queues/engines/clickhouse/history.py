"""Queries on the user's tables: the backfill, the anti-join that the queue replaces, and both compared."""

from __future__ import annotations

from typing import Any

from instep.clickhouse.session import quoted
from instep.domain.pending_queue import KeyRange, QueueCover
from instep.queues.engines.clickhouse.layout import (
    blocks_sql,
    collapsed_sql,
    own_sql,
    participants_sql,
    source_sql,
)
from instep.queues.engines.clickhouse.reading import micros
from instep.queues.engines.clickhouse.tables import (
    BACKFILLED,
    NO_EVENT,
    NULL_EVENT,
    UNKNOWN_EVENT,
    VERSION,
    Tables,
    conditions,
    covered_sql,
    greatest,
    offered_sql,
    user_table,
    versioned_sql,
)
from instep.queues.engines.queue_engine import NAMED, Ask

#: What the keys of one range may take in memory before they are put on disk.
_SPILL_BYTES = 2_000_000_000
#: And so many of them are one part of the truth: while one is sorted and written, the next is collected.
_BLOCK_ROWS = 1_000_000
#: By so many keys at least the end of a part is found.
_SAMPLED = 10_000


def bounds_sql(tables: Tables) -> str:
    source = source_sql(tables, tables.within())
    return f"SELECT min(instep_key) AS lowest, max(instep_key) AS highest, count() AS rows FROM ({source})"


def edge_sql(tables: Tables, keys: KeyRange, size: int) -> str:
    """The last of about so many keys, and one behind it if there are more: of a large part by a sample, of which every
    key is or none of its rows.
    """
    share = max(1, size // _SAMPLED)
    rows = source_sql(tables, tables.within(keys))
    return (
        f"SELECT DISTINCT instep_key AS key FROM ({rows}) WHERE cityHash64(instep_key) % {share:d} = 0"
        f" ORDER BY key LIMIT 2 OFFSET {max(1, size // share) - 1:d}"
    )


def garbage_sql(tables: Tables) -> str:
    """Rows with a key that the queue cannot have, by table."""
    key = quoted(tables.spec.key)
    of = [
        (tables.spec.source.table, tables.spec.source.where),
        *((each.table, each.where) for each in _declared(tables)),
    ]
    return " UNION ALL ".join(
        f"SELECT {number:d} AS number, countIf({key} IS NOT NULL AND NOT ({tables.within()})) AS garbage"
        f" FROM {user_table(table)} WHERE {conditions(where) or '1'}"
        for number, (table, where) in enumerate(of)
    )


def _declared(tables: Tables) -> tuple[QueueCover, ...]:
    return tables.spec.covers


def backfill_sql(tables: Tables, keys: KeyRange) -> list[str]:
    """Statements of a backfill. First the finally covered keys, by one cover after the other: no event opens such a key
    again, so nothing else is asked of it. Of the others the truth takes everything; what of it is pending goes on to
    the offers as with any insert. The last statement is for keys whose covering the touched ones missed: all of the
    range, from every writer.

    A cover's register is lower than that of any event, and that of a key that was offered since is above it: both
    arrive in any order and any number of times.
    """
    return _backfill(tables, tables.within(keys), tables.between("key", keys))


def backfill_keys_sql(tables: Tables) -> list[str]:
    """Statements that backfill the parameter `keys`."""
    named = f"IN {tables.named}"
    return _backfill(tables, conditions(tables.within(), f"{tables.compared} {named}"), f"key {named}")


def _backfill(tables: Tables, within: str, known: str) -> list[str]:
    """`within` is a condition for the rows of the user, and `known` the same one for those of the truth."""
    covers = list(zip(tables.registers, tables.covers, strict=True))
    lasting, others = ([each for each in covers if (each[1].uncovered is None) is kind] for kind in (True, False))
    made = []
    if tables.spec.participants:
        made.append(f"INSERT INTO {quoted(tables.participants)} {participants_sql(tables, within)}")
    closed = blocks_sql(tables, conditions(known, _for_good(tables)))
    made += [_closing_sql(tables, *each, within, closed) for each in lasting]
    rows = own_sql(tables, within)
    collapsed = collapsed_sql(tables, _open_sql(tables, rows, closed) if lasting else rows)
    seen = f"SELECT instep_key, instep_event AS event, {_flags(tables, None)} FROM ({collapsed})"
    made.append(_into_truth(tables, [seen, *(_covered_sql(tables, *each, within) for each in others)]))
    touched = conditions(known, f"{greatest(tables.registers)} > 0")
    made.append(f"INSERT INTO {quoted(tables.touched)} {blocks_sql(tables, touched)}")
    return made


def _for_good(tables: Tables) -> str:
    """The condition for a row of the truth with a cover that nothing takes back."""
    lasting = [
        f"{name} > 0" for name, cover in zip(tables.registers, tables.covers, strict=True) if cover.uncovered is None
    ]
    return f"({' OR '.join(lasting) or '0'})"


def _open_sql(tables: Tables, rows: str, closed: str) -> str:
    """Rows whose key (`instep_own`) is in none of these blocks. They are joined by it: a set of millions of keys would
    fit into no cache of the processor, and is asked for each row.
    """
    own = tables.own("instep_own")
    asked = f"SELECT *, {tables.block(own)} AS instep_block FROM ({rows})"
    joined = f"({asked}) AS asked LEFT ANY JOIN (SELECT block AS instep_block, bits FROM ({closed})) AS closed"
    return (
        f"SELECT * EXCEPT (instep_block, bits) FROM {joined} USING (instep_block)"
        f" WHERE NOT bitTest(ifNull(bits, 0), {tables.place(own)})"
    )


def _closing_sql(tables: Tables, name: str, cover: QueueCover, within: str, closed: str) -> str:
    """Keys that this cover covers, and none before it."""
    registers = ", ".join(f"{BACKFILLED if each == name else 0:d}" for each in tables.registers)
    return (
        f"INSERT INTO {quoted(tables.truth)} (key, event, {', '.join(tables.registers)})"
        f" SELECT {tables.own('instep_own')}, {NO_EVENT:d}, {registers}"
        f" FROM ({_open_sql(tables, _own_covered_sql(tables, cover, within), closed)})"
    )


def _covered_sql(tables: Tables, name: str, cover: QueueCover, within: str) -> str:
    if cover.version is not None:
        registers = ", ".join(
            f"instep_register AS {each}" if each == name else f"toUInt64(0) AS {each}" for each in tables.registers
        )
        latest = versioned_sql(tables, cover, within)
        return f"SELECT instep_key, toInt64({NO_EVENT:d}) AS event, {registers} FROM ({latest})"
    return (
        f"SELECT instep_key, toInt64({NO_EVENT:d}) AS event, {_flags(tables, name)}"
        f" FROM ({distinct_sql(tables, cover, within)})"
    )


def _into_truth(tables: Tables, parts: list[str]) -> str:
    registers = ", ".join(f"toUInt64(max({name}))" for name in tables.registers)
    return (
        f"INSERT INTO {quoted(tables.truth)} (key, event, {', '.join(tables.registers)})"
        f" SELECT instep_key, min(event), {registers}"
        f" FROM ({' UNION ALL '.join(parts)}) GROUP BY instep_key"
    )


def offer_sql(tables: Tables) -> str:
    """Statement that offers those of the parameter `keys` that were seen."""
    names = ", ".join(tables.registers)
    merged = ", ".join("toUInt64(0)" if name in tables.versioned else f"max({name})" for name in tables.registers)
    return (
        f"INSERT INTO {quoted(tables.offers)} (key, offer, event, {names})"
        f" SELECT key, bitShiftLeft(toUInt64({VERSION}), 1), toInt64({UNKNOWN_EVENT:d}), {merged}"
        f" FROM {quoted(tables.truth)} WHERE key IN {tables.named} GROUP BY key HAVING min(event) < {NO_EVENT:d}"
    )


#: Tables that are sorted by the key are collapsed as they are read, and a range has each key once. Behind a table with
#: a view ClickHouse has one thread for everything unless told otherwise. Keys that are covered are millions, which no
#: index of the user's tables is asked for one by one. And machine code pays for so many rows.
BACKFILL_SETTINGS: dict[str, int] = {
    "optimize_aggregation_in_order": 1,
    "optimize_on_insert": 0,
    "min_insert_block_size_rows": _BLOCK_ROWS,
    "max_bytes_before_external_group_by": _SPILL_BYTES,
    "parallel_view_processing": 1,
    "use_index_for_in_with_subqueries": 0,
    "compile_expressions": 1,
    "compile_aggregate_expressions": 1,
}


def backfilled_sql(tables: Tables, keys: KeyRange) -> str:
    """Counts of the keys of a range that were seen or are finally covered, and of those pending. Those are few, and
    their latest event uncovers, or there was none: only such rows are merged to find them.
    """
    truth, within = quoted(tables.truth), tables.between("key", keys)
    known = blocks_sql(tables, f"{within} AND (event < {NO_EVENT:d} OR {_for_good(tables)})")
    uncovered = f"SELECT key FROM {truth} WHERE {within} AND bitAnd({greatest(tables.registers)}, 1) = 0"
    pending = f"SELECT 1 FROM ({truth_sql(tables, f'key IN ({uncovered})')}) WHERE was_seen AND is_pending"
    return f"SELECT (SELECT sum(bitCount(bits)) FROM ({known})) AS keys, (SELECT count() FROM ({pending})) AS pending"


def truth_sql(tables: Tables, where: str) -> str:
    """Merged: `key`, `was_seen`, `is_pending`."""
    joined = " AND ".join(f"bitAnd(max({name}), 1) = 0" for name in tables.registers)
    return (
        f"SELECT key, min(event) < {NO_EVENT:d} AS was_seen, was_seen AND {joined} AS is_pending"
        f" FROM {quoted(tables.truth)} WHERE {where} GROUP BY key"
    )


def distinct_sql(tables: Tables, cover: QueueCover, within: str) -> str:
    """`covered_sql`, each key once."""
    return f"SELECT {tables.own('instep_own')} AS instep_key FROM ({_own_covered_sql(tables, cover, within)})"


def _own_covered_sql(tables: Tables, cover: QueueCover, within: str) -> str:
    """Covered keys, each once, as the user's own value: a table sorted by that column only compares neighbours."""
    final = " FINAL" if cover.uncovered is not None else ""
    return (
        f"SELECT DISTINCT {quoted(tables.spec.key)} AS instep_own FROM {user_table(cover.table)}{final}"
        f" WHERE {conditions(within, cover.where)}"
    )


def anti_join_sql(tables: Tables, ask: Ask) -> str:
    """Keys as `key`, in the order of reading; settled and participants as parameters of the same names."""
    time = "min(instep_event)"
    settled = "1" if ask.settled is None else f"{time} <= {{settled:Int64}} OR {time} = {NULL_EVENT:d}"
    within = tables.within()
    if ask.participants:
        within = conditions(within, f"{quoted(tables.spec.participants or '')} IN {{participants:Array(Int64)}}")
    return (
        f"SELECT instep_key AS key FROM ({_pending_sql(tables, within)})"
        f" WHERE {conditions(*tables.beyond('instep_key', ask.after)) or '1'}"
        f" GROUP BY instep_key HAVING {settled}"
        f" ORDER BY key {tables.order} LIMIT {ask.limit:d}"
    )


def anti_join_values(ask: Ask) -> dict[str, Any]:
    """The parameters of `anti_join_sql`."""
    bound: dict[str, Any] = {}
    if ask.settled is not None:
        bound["settled"] = micros(ask.settled)
    if ask.participants:
        bound["participants"] = list(ask.participants)
    return bound


def _pending_sql(tables: Tables, within: str) -> str:
    """Rows of the source that nothing covers."""
    covers = " UNION ALL ".join(covered_sql(tables, cover, tables.within()) for cover in tables.covers)
    return (
        f"SELECT instep_key, instep_event FROM ({source_sql(tables, within)}) AS wanted"
        f" LEFT ANTI JOIN ({covers}) AS covered USING (instep_key)"
    )


def compare_sql(tables: Tables, keys: KeyRange) -> str:
    """Both sides of one range in one pass over each table; keys that are in one alone are counted, and some named."""
    within = tables.within(keys)
    sides = [f"SELECT instep_key AS key, 1 AS side FROM ({source_sql(tables, within)}) GROUP BY instep_key"]
    sides += [
        f"SELECT instep_key AS key, 2 AS side FROM ({distinct_sql(tables, cover, within)})" for cover in tables.covers
    ]
    truth = truth_sql(tables, tables.between("key", keys))
    sides.append(f"SELECT key, if(is_pending, 12, 8) AS side FROM ({truth}) WHERE was_seen")
    sides.append(f"SELECT key, 16 AS side FROM ({_offered_keys(tables, keys)})")
    wanted, read, found = "bitAnd(sides, 3) = 1", "bitAnd(sides, 20) = 20", "bitAnd(sides, 24) = 24"
    if tables.versioned:  # What the truth knows to be covered is offered until a read comes by.
        found = read
    missing, surplus = f"{wanted} AND NOT {read}", f"{found} AND NOT {wanted}"
    counted = f"countIf({missing}) AS missing_count, countIf({surplus}) AS surplus_count"
    return (
        f"SELECT countIf({wanted}) AS pending, {counted},"
        f" groupArraySortedIf({NAMED:d})(key, {missing}) AS missing,"
        f" groupArraySortedIf({NAMED:d})(key, {surplus}) AS surplus"
        f" FROM (SELECT key, groupBitOr(toUInt8(side)) AS sides FROM ({' UNION ALL '.join(sides)}) GROUP BY key)"
    )


def counted_sql(tables: Tables) -> str:
    """An event may take back the cover of a key that the source never had: that is no offer."""
    names = [f"max({name})" for name in tables.registers]
    merged = (
        f"SELECT key, {offered_sql('max(offer)', names)} AS taken, taken AND min(event) = {UNKNOWN_EVENT:d} AS unsure"
        f" FROM {quoted(tables.offers)} GROUP BY key"
    )
    unsure = f"SELECT key FROM ({merged}) WHERE unsure"
    seen = f"SELECT key FROM {quoted(tables.truth)} WHERE event < {NO_EVENT:d} AND key IN ({unsure})"
    offered = f"taken AND (NOT unsure OR key IN ({seen}))"
    if tables.versioned:  # A cover leaves the offer of its key there until a read comes by.
        truth = truth_sql(tables, f"key IN (SELECT key FROM ({merged}) WHERE taken)")
        offered = f"taken AND key IN (SELECT key FROM ({truth}) WHERE is_pending)"
    return f"SELECT countIf({offered}) AS offered, countIf(NOT taken) AS withdrawn FROM ({merged})"


def _offered_keys(tables: Tables, keys: KeyRange) -> str:
    merged = [f"max({name})" for name in tables.registers]
    return (
        f"SELECT key FROM {quoted(tables.offers)} WHERE {tables.between('key', keys)}"
        f" GROUP BY key HAVING {offered_sql('max(offer)', merged)}"
    )


def _flags(tables: Tables, covered: str | None) -> str:
    """Flags of a key in the narrowest type: there are several for each key of the source."""
    return ", ".join(f"toUInt8({BACKFILLED if name == covered else 0:d}) AS {name}" for name in tables.registers)
