"""Columns of ClickHouse as our types, and conditions on them in its SQL.

| ClickHouse | ours |
| --- | --- |
| `Int8` to `Int64`, `UInt8` to `UInt32` | `int32`, `int64`: the smallest that holds all values |
| `UInt64` | `decimal(20,0)` |
| `Float32`, `Float64`, `BFloat16` | `float32`, `float64` |
| `Decimal` up to 38 digits | `decimal` |
| `Bool` | `bool` |
| `String` | `string` |
| `FixedString` | `bytes`, all of them |
| `UUID` | `string`, in lower case |
| `Enum8`, `Enum16` | `string` |
| `Date`, `Date32` | `date` |
| `DateTime`, `DateTime64` | `timestamp`, down to microseconds |
| `Array`, `Map`, `Tuple`, `JSON` | `string`, as JSON |

`Nullable`, `LowCardinality` and `SimpleAggregateFunction` are looked through.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from instep.clickhouse.session import quoted
from instep.domain.columns import (
    BOOL,
    BYTES,
    DATE,
    FLOAT32,
    FLOAT64,
    INT32,
    INT64,
    MAX_PRECISION,
    STRING,
    TIMESTAMP,
    Column,
    ColumnType,
    decimal_type,
)
from instep.domain.keys import KeyKind, KeyValue, key_of
from instep.errors import UserError

_PLAIN = {
    **dict.fromkeys(("Int8", "Int16", "Int32", "UInt8", "UInt16"), INT32),
    **dict.fromkeys(("Int64", "UInt32"), INT64),
    "UInt64": decimal_type(20, 0),
    "Float32": FLOAT32,
    "BFloat16": FLOAT32,
    "Float64": FLOAT64,
    "Bool": BOOL,
    "String": STRING,
    "UUID": STRING,
    "Date": DATE,
    "Date32": DATE,
}
_FAMILIES = {
    **dict.fromkeys(("Enum8", "Enum16", "Array", "Map", "Tuple", "JSON"), STRING),
    "FixedString": BYTES,
    "DateTime": TIMESTAMP,
    "DateTime64": TIMESTAMP,
}
_JSON = {"Array", "Map", "Tuple", "JSON"}
_WRAPPED = re.compile(r"(Nullable|LowCardinality)\((.*)\)\Z", re.DOTALL)
_AGGREGATE = re.compile(r"SimpleAggregateFunction\(\w+(?:\([^)]*\))?, (.*)\)\Z", re.DOTALL)
_DECIMAL = re.compile(r"Decimal\((\d+), (\d+)\)\Z")
_MICROSECONDS = 6

#: How values of our types are bound, where the column's own type is not it.
_BOUND = {
    INT32: "Int64",
    INT64: "Int64",
    BOOL: "Bool",
    STRING: "String",
    DATE: "Date32",
    TIMESTAMP: "DateTime64(6, 'UTC')",
}


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """`stored` is ClickHouse's type, unwrapped."""

    column: Column
    stored: str
    nullable: bool

    @property
    def name(self) -> str:
        return self.column.name

    @property
    def value(self) -> str:
        """An expression of what is read: Arrow makes our type of it."""
        name, family = quoted(self.name), _family(self.stored)
        if family in _JSON:
            return f"toJSONString({name})"
        if family in {"UUID", "Enum8", "Enum16"}:
            return f"toString({name})"
        if self.column.type == TIMESTAMP:
            return f"toDateTime64({name}, {_MICROSECONDS}, 'UTC')"
        if self.stored == "UInt64":
            return f"toDecimal128({name}, 0)"
        if self.stored == "BFloat16":
            return f"toFloat32({name})"
        # A Date comes out of older servers as a number.
        return f"toDate32({name})" if self.column.type == DATE else name

    @property
    def micros(self) -> str:
        """An expression: a time as a whole number of microseconds since 1970."""
        return f"toUnixTimestamp64Micro({self.value})"

    @property
    def compared(self) -> str:
        """An expression that has our order: wherever that is ClickHouse's too the column itself, so that indexes are of
        use. (It orders a UUID by its second half, an enum by its numbers.)
        """
        family = _family(self.stored)
        finer = family == "DateTime64" and int(_arguments(self.stored).partition(",")[0]) > _MICROSECONDS
        other = finer or (self.column.type == STRING and family != "String")
        return self.value if other else quoted(self.name)

    def constant(self, parameter: str) -> str:
        """An expression of a value of our type that is bound to the parameter."""
        if self.column.type == BYTES:
            return f"toFixedString(unhex({{{parameter}:String}}), {int(_arguments(self.stored))})"
        return f"{{{parameter}:{_BOUND.get(self.column.type, self.stored)}}}"


def source_column(name: str, described: str) -> SourceColumn | None:
    """None for a type that has none of ours."""
    stored, nullable = _unwrapped(described)
    ours = _PLAIN.get(stored) or _FAMILIES.get(_family(stored)) or _decimal(stored)
    return SourceColumn(Column(name, ours), stored, nullable) if ours else None


def _unwrapped(described: str) -> tuple[str, bool]:
    nullable = False
    while True:
        if found := _WRAPPED.match(described):
            nullable |= found[1] == "Nullable"
            described = found[2]
        elif found := _AGGREGATE.match(described):
            described = found[1]
        else:
            return described, nullable


def _decimal(stored: str) -> ColumnType | None:
    found = _DECIMAL.match(stored)
    return decimal_type(int(found[1]), int(found[2])) if found and int(found[1]) <= MAX_PRECISION else None


def _family(stored: str) -> str:
    return stored.partition("(")[0]


def _arguments(stored: str) -> str:
    return stored.partition("(")[2].rstrip(")")


_KINDS = {KeyKind.INT64: ("int32", "int64")}


@dataclass
class ClickHouseDialect:
    """See `predicates.Dialect`. What its conditions need bound is in `values`."""

    columns: Mapping[str, SourceColumn]
    values: dict[str, KeyValue] = field(default_factory=dict)

    def column(self, name: str) -> str:
        return self.columns[name].compared

    same = column

    def constant(self, name: str, value: KeyValue) -> str:
        column = self.columns[name]
        (kind,) = key_of(value).kinds
        if column.column.type.name not in _KINDS.get(kind, (kind,)):
            raise UserError(f"column {name!r} is {column.stored}, and is to be compared with a {kind}")
        parameter = f"p{len(self.values)}"
        self.values[parameter] = value
        return column.constant(parameter)

    def flag_unset(self, name: str) -> str:
        column = self.columns[name]
        if column.column.type not in (BOOL, INT32, INT64):
            raise UserError(
                f"{name!r} cannot say whether a row is deleted: it is {column.stored}, neither Bool nor a whole number"
            )
        return f"ifNull({quoted(name)}, 0) = 0"

    def keyed(self, name: str) -> str:
        """A condition: there is a value, and it can be in a key."""
        condition = f"{quoted(name)} IS NOT NULL"
        return f"{condition} AND isValidUTF8({quoted(name)})" if self.columns[name].stored == "String" else condition
