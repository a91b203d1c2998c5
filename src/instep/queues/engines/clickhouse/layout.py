"""The tables and materialized views of a queue, as statements.

Views collapse the rows of a key within an inserted block, so that twelve rows of the source are one of the truth. What
is inserted into the truth goes on to the offers. Nothing here ever reads history.
"""

from __future__ import annotations

from instep.clickhouse.session import literal, quoted
from instep.domain.pending_queue import LARGEST_KEY, LOWEST_KEY, QueueCover
from instep.queues.engines.clickhouse.tables import (
    BACKFILLED,
    NO_EVENT,
    UNKNOWN_EVENT,
    VERSION,
    Tables,
    conditions,
    greatest,
    spent_sql,
    user_table,
    versioned_sql,
)

#: The truth is merged range by range, and an insert makes a part for each range that it touches: ClickHouse allows 100.
_PARTITIONS = 64
_PARTITION_KEYS = 10_000_000

#: Looking up a key reads one granule of each part; a block of its own for each spares unpacking its neighbours.
_TRUTH = "index_granularity = 256, min_compress_block_size = 1024"
#: What is read for every answer is in one file of each part, however large, and not in one or two for each column.
_ONE_FILE = f"min_bytes_for_wide_part = {2**40:d}"
_TOUCHED = f"index_granularity = 256, {_ONE_FILE}"
#: A page of them is in a granule or two: each is unpacked by itself, column by column. Withdrawn rows meet what they
#: withdraw within a minute or two, and are dropped three minutes after their event.
_OFFERS = f"index_granularity = 2048, {_ONE_FILE}, min_age_to_force_merge_seconds = 60, merge_with_ttl_timeout = 60"
_SPENT_AFTER = "INTERVAL 3 MINUTE"

_OR = "SimpleAggregateFunction(groupBitOr, UInt64)"
_MAX, _MIN = "SimpleAggregateFunction(max, UInt64) CODEC(Delta, LZ4)", "SimpleAggregateFunction(min, Int64)"


def statements(tables: Tables) -> list[str]:
    """Statements that create the queue, in the order in which nothing is missed: first the tables that are fed, then
    the views that feed them.
    """
    return [*_tables(tables), *(sql for _, sql in _views(tables))]


def dropping(tables: Tables) -> list[str]:
    views = [name for name, _ in reversed(_views(tables))]
    return [
        *(f"DROP VIEW IF EXISTS {quoted(each)} SYNC" for each in views),
        *(f"DROP TABLE IF EXISTS {quoted(each)} SYNC" for each in tables.all()),
    ]


def _tables(tables: Tables) -> list[str]:
    registers = ", ".join(f"{name} {_MAX}" for name in tables.registers)
    keys = tables.spec.keys
    part = "tuple()"
    if tables.whole:
        lowest = LOWEST_KEY if keys.after is None else keys.after
        highest = LARGEST_KEY if keys.upto is None else keys.upto
        part = f"intDiv(key, {max(_PARTITION_KEYS, -((lowest - highest) // _PARTITIONS)):d})"
    spent = spent_sql("offer", tables.registers)
    newest = greatest(["offer", *tables.dated])
    made = [
        f"CREATE TABLE IF NOT EXISTS {quoted(tables.truth)} (key {tables.type},"
        f" event {_MIN} CODEC(Delta, LZ4), {registers})"
        f" ENGINE = AggregatingMergeTree PARTITION BY {part} ORDER BY key SETTINGS {_TRUTH}"
        f" COMMENT {literal(tables.declaration())}",
        f"CREATE TABLE IF NOT EXISTS {quoted(tables.touched)} (block {tables.type}, bits {_OR})"
        f" ENGINE = AggregatingMergeTree ORDER BY block SETTINGS {_TOUCHED}",
        f"CREATE TABLE IF NOT EXISTS {quoted(tables.offers)}"
        f" (key {tables.type}, offer {_MAX}, event {_MIN}, {registers})"
        " ENGINE = AggregatingMergeTree ORDER BY key"
        f" TTL snowflakeIDToDateTime(bitShiftRight({newest}, 1)) + {_SPENT_AFTER} DELETE WHERE {spent}"
        f" SETTINGS {_OFFERS}",
        f"CREATE TABLE IF NOT EXISTS {quoted(tables.acknowledged)} ({quoted(tables.spec.key)} {tables.type},"
        f" covered UInt8, version UInt64 DEFAULT {VERSION} CODEC(Delta, LZ4))"
        f" ENGINE = ReplacingMergeTree(version) ORDER BY {quoted(tables.spec.key)}",
        f"CREATE TABLE IF NOT EXISTS {quoted(tables.marks)} (name String, value String,"
        f" version UInt64 DEFAULT {VERSION}) ENGINE = ReplacingMergeTree(version) ORDER BY name",
    ]
    if tables.spec.participants:
        made.append(
            f"CREATE TABLE IF NOT EXISTS {quoted(tables.participants)} (participant Int64, key {tables.type})"
            " ENGINE = ReplacingMergeTree ORDER BY (participant, key)"
        )
    return made


def _views(tables: Tables) -> list[tuple[str, str]]:
    found = [
        _view(tables, "to_touched", tables.touched, blocks_sql(tables, f"{_latest(tables)} > {BACKFILLED:d}")),
        _view(tables, "to_offers", tables.offers, _to_offers(tables)),
    ]
    found += [
        _view(tables, f"from_{name}", tables.truth, _from_cover(tables, name, cover))
        for name, cover in zip(tables.registers, tables.covers, strict=True)
    ]
    found.append(_view(tables, "from_source", tables.truth, _from_source(tables)))
    if tables.spec.participants:
        found.append(_view(tables, "to_participants", tables.participants, participants_sql(tables, tables.within())))
    return found


def _view(tables: Tables, name: str, into: str, select: str) -> tuple[str, str]:
    name = tables.name(name)
    return name, f"CREATE MATERIALIZED VIEW IF NOT EXISTS {quoted(name)} TO {quoted(into)} AS {select}"


def source_sql(tables: Tables, within: str) -> str:
    """Rows of the source: `instep_key`, and `instep_event` in microseconds. Names that hide none of the user's."""
    source = tables.spec.source
    return (
        f"SELECT {tables.key_sql()} AS instep_key, {tables.event_sql()} AS instep_event"
        f" FROM {user_table(source.table)} WHERE {conditions(within, source.where)}"
    )


def own_sql(tables: Tables, within: str) -> str:
    """Rows of the source in the user's own values: `instep_own`, the key, and `instep_time`."""
    source = tables.spec.source
    return (
        f"SELECT {quoted(tables.spec.key)} AS instep_own, {source.event_time or '0'} AS instep_time"
        f" FROM {user_table(source.table)} WHERE {conditions(within, source.where)}"
    )


def collapsed_sql(tables: Tables, rows: str) -> str:
    """A row a key of `own_sql`: `instep_key`, `instep_event`. Only the earliest time of a key is converted."""
    return (
        f"SELECT {tables.own('instep_own')} AS instep_key, {tables.event_sql('min(instep_time)')}"
        f" AS instep_event FROM ({rows}) GROUP BY instep_own"
    )


def participants_sql(tables: Tables, within: str) -> str:
    source, column = tables.spec.source, quoted(tables.spec.participants or "")
    return (
        f"SELECT DISTINCT instep_participant AS participant, instep_key AS key FROM"
        f" (SELECT {tables.key_sql()} AS instep_key, toInt64(assumeNotNull({column})) AS instep_participant"
        f" FROM {user_table(source.table)} WHERE {conditions(within, source.where, f'{column} IS NOT NULL')})"
    )


def _from_source(tables: Tables) -> str:
    """Sorted while it is two columns: the truth and the offers, of six and more, are sorted by the key then."""
    registers = ", ".join(f"toUInt64(0) AS {name}" for name in tables.registers)
    return (
        f"SELECT instep_key AS key, instep_event AS event, {registers}"
        f" FROM ({collapsed_sql(tables, own_sql(tables, tables.within()))}) ORDER BY key"
    )


def _from_cover(tables: Tables, name: str, cover: QueueCover) -> str:
    registers = ", ".join(
        f"instep_register AS {each}" if each == name else f"toUInt64(0) AS {each}" for each in tables.registers
    )
    grouped = "" if cover.uncovered is None else " ORDER BY key"
    return (
        f"SELECT instep_key AS key, toInt64({NO_EVENT:d}) AS event, {registers}"
        f" FROM ({_events(tables, cover)}){grouped}"
    )


def _events(tables: Tables, cover: QueueCover) -> str:
    """One event for each key of a block: `instep_key`, `instep_register`."""
    key, table, within = tables.key_sql(), user_table(cover.table), tables.within()
    if cover.table == tables.acknowledged:
        # It has versions of its own, by which it is merged as well.
        register = "bitShiftLeft(version, 1) + covered"
        return f"SELECT {key} AS instep_key, max({register}) AS instep_register FROM {table} WHERE {within} GROUP BY 1"
    if cover.version is not None:
        return versioned_sql(tables, cover, within)
    register = f"bitShiftLeft(toUInt64({VERSION}), 1)"
    if cover.uncovered is None:
        # In their order, which is mostly that of the key already: what is written is sorted by it.
        rows = f"SELECT DISTINCT {key} AS instep_key FROM {table} WHERE {conditions(within, cover.where)}"
        return f"SELECT instep_key, {register} + 1 AS instep_register FROM ({rows})"
    # Of several rows of a key in one block, the last one is the latest.
    covers = conditions(cover.where or "1")
    either = f"{covers} OR {conditions(cover.uncovered)}"
    rows = (
        f"SELECT {key} AS instep_key, toUInt64(ifNull({covers}, 0) != 0) AS instep_covered,"
        f" rowNumberInAllBlocks() AS instep_row FROM {table} WHERE {conditions(within, either)}"
    )
    latest = f"SELECT instep_key, argMax(instep_covered, instep_row) AS instep_covers FROM ({rows}) GROUP BY instep_key"
    return f"SELECT instep_key, {register} + instep_covers AS instep_register FROM ({latest})"


def blocks_sql(tables: Tables, where: str) -> str:
    """A bit for each of these keys of the truth, by `block`."""
    return (
        f"SELECT {tables.block('key')} AS block, groupBitOr(bitShiftLeft(toUInt64(1), {tables.place('key')})) AS bits"
        f" FROM {quoted(tables.truth)} WHERE {where} GROUP BY block"
    )


def _to_offers(tables: Tables) -> str:
    """A row of the source offers its key, and so does an event that takes a cover back, under its own version. What the
    backfill finds covered needs no row.
    """
    fresh = f"bitShiftLeft(toUInt64({VERSION}), 1)"
    if tables.versioned:
        return _to_versioned_offers(tables, fresh)
    registers = ", ".join(tables.registers)
    uncovers = "bitAnd(latest, 1) = 0"
    return (
        f"WITH {_latest(tables)} AS latest SELECT key,"
        f" multiIf(latest = 0, {fresh}, {uncovers}, latest, toUInt64(0)) AS offer,"
        f" multiIf(latest = 0, event, {uncovers}, toInt64({UNKNOWN_EVENT:d}), toInt64({NO_EVENT:d})) AS event,"
        f" {registers} FROM {quoted(tables.truth)} WHERE latest != {BACKFILLED:d}"
    )


def _to_versioned_offers(tables: Tables, fresh: str) -> str:
    """A cover of a version that is not known to be the latest hides no offer."""
    registers = ", ".join(f"toUInt64(0) AS {name}" if name in tables.versioned else name for name in tables.registers)
    covered = " OR ".join(f"bitAnd({name}, 1) = 1" for name in tables.registers)
    judged = (
        f"SELECT *, {covered} AS covers, {_latest(tables)} AS latest,"
        f" {greatest(tables.dated)} > {BACKFILLED:d} AS hides FROM {quoted(tables.truth)}"
    )
    return (
        f"SELECT key, if(covers, toUInt64(0), {fresh}) AS offer,"
        f" multiIf(covers, toInt64({NO_EVENT:d}), latest = 0, event, toInt64({UNKNOWN_EVENT:d})) AS event,"
        f" {registers} FROM ({judged}) WHERE NOT covers OR hides"
    )


def _latest(tables: Tables) -> str:
    """The event of a row: it has one, or none if the source was seen."""
    return greatest(tables.registers)
