"""Tables of ClickHouse for tests, made of Arrow."""

from __future__ import annotations

import uuid

import pyarrow as pa

from instep.clickhouse.location import Location
from instep.clickhouse.session import quoted
from instep.sources.tables.clickhouse import ClickHouseTable

#: Of the columns of the contract: bytes have a length in ClickHouse.
DATA_BYTES = 2

_TYPES = {
    pa.int64(): "Int64",
    pa.int32(): "Int32",
    pa.string(): "String",
    pa.bool_(): "Bool",
    pa.float64(): "Float64",
    pa.date32(): "Date32",
    pa.timestamp("us", "UTC"): "DateTime64(6, 'UTC')",
    pa.decimal128(12, 3): "Decimal(12, 3)",
    pa.binary(): f"FixedString({DATA_BYTES})",
}


def ask(uri: str, *statements: str) -> None:
    with Location.of(uri).session() as session:
        for each in statements:
            session.command(each)


def made(uri: str, rows: pa.Table, *, order: str = "tuple()", table: str = "") -> ClickHouseTable:
    """A table of these rows in the default database, made again."""
    name = table or f"t_{uuid.uuid4().hex}"
    columns = ", ".join(f"{quoted(each.name)} Nullable({_TYPES[each.type]})" for each in rows.schema)
    ask(
        uri,
        f"DROP TABLE IF EXISTS default.{name} SYNC",
        f"CREATE TABLE default.{name} ({columns}) ENGINE = MergeTree ORDER BY {order} SETTINGS allow_nullable_key = 1",
    )
    if rows.num_rows:
        with Location.of(uri).session() as session:
            session.insert(f"default.{name}", rows)
    return ClickHouseTable(uri, f"default.{name}")
