"""Tables of a physical index in ClickHouse.

`_rank` puts in one number which of two rows of a key stays: version, then not deleted, then the base of who wrote it,
which grows with every epoch and with every slice that is claimed again. ClickHouse keeps the row with the highest one
when it merges, and FINAL (in the views) finds it before that. (Of equal ones it keeps the last: these were written by
one holder of one slice.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from instep.clickhouse.session import Absent, Session, literal, quoted, records
from instep.domain.columns import ColumnType, TypeName
from instep.errors import UserError
from instep.targets.table_indexes import drifted
from instep.targets.table_target import (
    BOOKKEEPING,
    DELETED,
    INSTANCE,
    JOURNAL,
    REF,
    VERSION,
    Drift,
    TableSpec,
    checked_specs,
    decode_specs,
    encode_specs,
)

BASE, RANK = "_base", "_rank"

#: Columns of text of which few rows have one of their own.
REPEATED = (REF, INSTANCE)

#: 64 bits of the version (from the lowest upwards), one that says "is there", 63 of the base.
_RANK = (
    f"bitOr(bitShiftLeft(toUInt128(toInt128({VERSION}) + toInt128('9223372036854775808')), 64), "
    f"bitOr(bitShiftLeft(toUInt128(NOT {DELETED}), 63), toUInt128({BASE})))"
)

_TYPES: Mapping[TypeName, str] = {
    TypeName.BOOL: "Bool",
    TypeName.INT32: "Int32",
    TypeName.INT64: "Int64",
    TypeName.FLOAT32: "Float32",
    TypeName.FLOAT64: "Float64",
    TypeName.STRING: "String",
    TypeName.BYTES: "String",
    TypeName.DATE: "Date32",
    TypeName.TIMESTAMP: "DateTime64(6, 'UTC')",
}

#: In process the engine is open only while a thread works with it, and a second longer. A merge of millions of rows
#: would be begun by every run, on a core that the run needs, and be cut off at its end. So it leaves large parts alone,
#: and they are merged in one go when they are many.
_MERGED_ALONG = 8 * 1024 * 1024
_LIMIT = "max_bytes_to_merge_at_max_space_in_pool"

#: Tokens of so many inserts are remembered: a commit that is sent again is recognised.
_REMEMBERED = 10_000


def stored_type(column: ColumnType) -> str:
    if column.name is TypeName.DECIMAL:
        return f"Decimal({column.precision}, {column.scale})"
    return _TYPES[column.name]


def stored_columns(spec: TableSpec) -> dict[str, str]:
    """Types of the table's columns. Only those of the key and of the bookkeeping are never null.

    Few rows differ in where they come from: as a dictionary that costs next to nothing to write (1,000,000 rows, 2
    cores: 0.28 instead of 0.40 seconds of processor time for the whole insert).
    """
    never_null = {*spec.key, *(each.name for each in BOOKKEEPING)}
    types = {each.name: stored_type(each.type) for each in spec.all_columns}
    types |= dict.fromkeys(REPEATED, "LowCardinality(String)")
    types[DELETED] = "UInt8"  # the engine asks for it
    return {name: kind if name in never_null else f"Nullable({kind})" for name, kind in types.items()}


def staged_structure(spec: TableSpec) -> str:
    """The same columns as they lie in staged files."""
    return ", ".join(f"{quoted(name)} {kind}" for name, kind in (stored_columns(spec) | {DELETED: "Bool"}).items())


def journal(physical: str) -> str:
    return f"{physical}__{JOURNAL}"


def create(
    session: Session, database: str, physical: str, specs: Sequence[TableSpec], owner: str, *, alone: bool
) -> None:
    """`alone`: by an engine that is open only while it is worked with. The journal comes first: it says whose they are,
    whatever comes in between.
    """
    specs = checked_specs(specs)
    limit = f", {_LIMIT} = {_MERGED_ALONG}" if alone else ""
    session.command(f"CREATE DATABASE IF NOT EXISTS {quoted(database)} ENGINE = Atomic")
    session.command(
        f"CREATE TABLE IF NOT EXISTS {quoted(database, journal(physical))} ("
        "seq UInt64, entry Enum8('specs' = 1, 'fence' = 2, 'commit' = 3), scope String, epoch UInt64, attempt String, "
        "slice String, fence Int64, outcome String, at DateTime64(6, 'UTC') DEFAULT now64(6)"
        f") ENGINE = MergeTree ORDER BY seq COMMENT {literal(owner)}"
    )
    for spec in specs:
        session.command(_table(database, physical, spec) + limit)
    if stored_specs(session, database, physical) is None:
        session.command(
            f"INSERT INTO {quoted(database, journal(physical))} (seq, entry, outcome) "
            "SELECT 1, 'specs', {specs:String}",
            specs=encode_specs(specs),
        )


def _table(database: str, physical: str, spec: TableSpec) -> str:
    columns = ", ".join(f"{quoted(name)} {kind}" for name, kind in stored_columns(spec).items())
    key = ", ".join(quoted(name) for name in spec.key)
    return (
        f"CREATE TABLE IF NOT EXISTS {quoted(database, spec.table(physical))} "
        f"({columns}, {BASE} UInt64, {RANK} UInt128 MATERIALIZED {_RANK}) "
        f"ENGINE = ReplacingMergeTree({RANK}, {DELETED}) ORDER BY ({key}) "
        f"SETTINGS non_replicated_deduplication_window = {_REMEMBERED}"
    )


def owner(session: Session, database: str, physical: str) -> str | None:
    """The ledger that the index names as its owner; None if there is no index."""
    found = records(
        session,
        "SELECT comment FROM system.tables WHERE database = {database:String} AND name = {name:String} "
        "AND engine LIKE '%MergeTree'",
        database=database,
        name=journal(physical),
    )
    return str(found[0]["comment"]) if found else None


def own(session: Session, database: str, physical: str, owner: str) -> None:
    """It says so from now on."""
    session.command(f"ALTER TABLE {quoted(database, journal(physical))} MODIFY COMMENT {literal(owner)}")


def merge(session: Session, database: str, table: str) -> None:
    """Merge parts of any size, which the engine by itself leaves alone."""
    name = quoted(database, table)
    session.command(f"ALTER TABLE {name} RESET SETTING {_LIMIT}")
    try:
        session.command(f"OPTIMIZE TABLE {name}")
    finally:
        session.command(f"ALTER TABLE {name} MODIFY SETTING {_LIMIT} = {_MERGED_ALONG}")


def stored_specs(session: Session, database: str, physical: str) -> tuple[TableSpec, ...] | None:
    """None when there is no such index, or only what a crash left of making one."""
    table = quoted(database, journal(physical))
    try:
        found = records(session, f"SELECT outcome FROM {table} WHERE entry = 'specs' ORDER BY at LIMIT 1")
    except Absent:
        return None
    return decode_specs(found[0]["outcome"]) if found else None


def exists(session: Session, database: str, physical: str) -> bool:
    """Whether all tables are there, which another process may have dropped."""
    specs = stored_specs(session, database, physical)
    return specs is not None and {spec.table(physical) for spec in specs} <= set(tables(session, database, physical))


def known_specs(session: Session, database: str, physical: str, where: str) -> tuple[TableSpec, ...]:
    specs = stored_specs(session, database, physical)
    if specs is None:
        raise UserError(f"there is no index {physical!r}", where=where, hint="Build it with: instep run")
    return specs


def tables(session: Session, database: str, prefix: str) -> list[str]:
    """Names of tables that begin so."""
    found = records(
        session,
        "SELECT name FROM system.tables WHERE database = {database:String} AND startsWith(name, {prefix:String}) "
        "AND engine LIKE '%MergeTree' ORDER BY name",
        database=database,
        prefix=prefix,
    )
    return [each["name"] for each in found]


def drift(session: Session, database: str, physical: str, specs: Sequence[TableSpec]) -> list[Drift]:
    stored = stored_specs(session, database, physical) or ()
    return drifted(specs, stored, stored_columns, lambda spec: _types(session, database, spec.table(physical)))


def _types(session: Session, database: str, table: str) -> dict[str, str]:
    """Types of its columns; none if it is not there."""
    found = records(
        session,
        "SELECT name, type FROM system.columns WHERE database = {database:String} AND table = {table:String} "
        "AND NOT name IN {own:Array(String)} ORDER BY position",
        database=database,
        table=table,
        own=[BASE, RANK],
    )
    return {each["name"]: each["type"] for each in found}


def drop(session: Session, database: str, physical: str) -> None:
    """The journal goes last: what it names can still be dropped after a crash in between."""
    there = [each for each in tables(session, database, physical) if f"{each}__".startswith(f"{physical}__")]
    for name in sorted(there, key=lambda each: each == journal(physical)):
        session.command(f"DROP TABLE IF EXISTS {quoted(database, name)} SYNC")
