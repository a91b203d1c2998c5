"""Types of Spark as ours, and constants of them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from instep.domain.columns import (
    BOOL,
    BYTES,
    DATE,
    FLOAT32,
    FLOAT64,
    INT32,
    INT64,
    STRING,
    TIMESTAMP,
    Column,
    ColumnType,
    TypeName,
    decimal_type,
)
from instep.domain.keys import KeyValue
from instep.errors import UserError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_PLAIN: Mapping[str, ColumnType] = {
    "boolean": BOOL,
    "tinyint": INT32,
    "smallint": INT32,
    "int": INT32,
    "bigint": INT64,
    "float": FLOAT32,
    "double": FLOAT64,
    "string": STRING,
    "binary": BYTES,
    "date": DATE,
    "timestamp": TIMESTAMP,
    "timestamp_ntz": TIMESTAMP,
}
_STRUCTURES = ("struct<", "array<", "map<")
#: Of times within structures Spark writes no more than milliseconds, unless it is told to.
_TIME = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
_JSON = {"timeZone": "UTC", "timestampFormat": f"{_TIME}XXX", "timestampNTZFormat": _TIME}
_TEXTS = ("string collate ", "char(", "varchar(")

#: Python's types of keys for each of ours that a key can have.
_KEYS: Mapping[TypeName, type] = {
    TypeName.BOOL: bool,
    TypeName.INT32: int,
    TypeName.INT64: int,
    TypeName.STRING: str,
    TypeName.BYTES: bytes,
    TypeName.DATE: date,
    TypeName.TIMESTAMP: datetime,
    TypeName.DECIMAL: Decimal,
}


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def columns_of(schema: StructType) -> tuple[Column, ...]:
    """The columns of a Spark schema. Raises `UserError` naming a column that has no type of ours, or that is there
    twice.
    """
    seen: dict[str, str] = {}
    for field in schema.fields:
        other = seen.setdefault(field.name.lower(), field.name)
        if other is not field.name:
            raise UserError(f"it has two columns called {field.name!r}", hint="Name them apart, with `AS` in `sql`.")
    return tuple(Column(field.name, column_type(field.name, field.dataType)) for field in schema.fields)


def column_type(name: str, kind: DataType) -> ColumnType:
    text = kind.simpleString()
    if text in _PLAIN:
        return _PLAIN[text]
    if text.startswith("decimal("):
        return ColumnType.parse(text)
    if text == "variant" or text.startswith((*_STRUCTURES, *_TEXTS)):
        return STRING
    raise UserError(
        f"column {name!r} has the type {text}, which is not supported",
        hint="Leave it out, or CAST it, with `sql` or a transform.",
    )


def collated(kind: DataType) -> bool:
    """Whether Spark would compare it in another order than that of its UTF-8 bytes."""
    return str(kind.simpleString()).startswith("string collate ")


def as_ours(name: str, kind: DataType) -> str:
    """An expression: the column in its type of ours."""
    column, text = quoted(name), kind.simpleString()
    if text in ("tinyint", "smallint"):
        return f"CAST({column} AS INT) AS {column}"
    if text == "timestamp_ntz":
        # A cast would take it for a time in the session's zone. The steps between are exact: the microseconds since
        # 1970, as an interval, as seconds with six decimals, as a whole number.
        since = f"CAST(CAST({column} - TIMESTAMP_NTZ '1970-01-01 00:00:00' AS INTERVAL SECOND) AS DECIMAL(20, 6))"
        return f"timestamp_micros(CAST({since} * 1000000BD AS BIGINT)) AS {column}"
    if text == "variant" or text.startswith(_STRUCTURES):
        options = ", ".join(f"'{option}', {spark_constant(value, 'string')}" for option, value in _JSON.items())
        return f"to_json({column}, map({options})) AS {column}"
    return column


class SparkDialect:
    """Constants are written in ways that neither the session's zone nor its settings of the parser change."""

    def __init__(self, schema: StructType) -> None:
        self._kinds = {field.name.lower(): field.dataType for field in schema.fields}

    def column(self, name: str) -> str:
        return quoted(name)

    same = column

    def flag_unset(self, name: str) -> str:
        kind = column_type(name, self._kinds[name.lower()]).name
        if kind is TypeName.BOOL:
            return f"({quoted(name)} = FALSE OR {quoted(name)} IS NULL)"
        if kind in (TypeName.INT32, TypeName.INT64):
            return f"({quoted(name)} = 0 OR {quoted(name)} IS NULL)"
        raise UserError(f"{name!r} cannot say whether a row is deleted: it is {kind}, neither bool nor a whole number")

    def constant(self, name: str, value: KeyValue) -> str:
        kind = self._kinds[name.lower()]
        ours = column_type(name, kind)
        if _KEYS.get(ours.name) is not type(value):
            raise UserError(f"column {name!r} is {ours} now, and was something else when its rows were cut into slices")
        return spark_constant(value, kind.simpleString())


def spark_constant(value: KeyValue, kind: str) -> str:  # noqa: PLR0911 - one return for each type
    match value:
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return f"{value}L"
        case str():
            return f"CAST(X'{value.encode().hex()}' AS STRING)"
        case bytes():
            return f"X'{value.hex()}'"
        case datetime():
            if kind == "timestamp_ntz":
                return f"TIMESTAMP_NTZ '{value.replace(tzinfo=None).isoformat(' ', 'microseconds')}'"
            return f"timestamp_micros({_micros(value)}L)"
        case date():
            return f"DATE '{value.isoformat()}'"
        case Decimal():
            return _decimal(value, kind)


def _micros(value: datetime) -> int:
    since = value - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _decimal(value: Decimal, kind: str) -> str:
    """A decimal in the column's own type where it fits: Spark hands on to sources only what it need not convert."""
    own = ColumnType.parse(kind)
    digits = len(value.as_tuple().digits)
    scale = max(0, -int(value.as_tuple().exponent))
    fits = scale <= own.scale and max(digits - scale, 0) <= own.precision - own.scale
    wide = own if fits else decimal_type(min(38, max(digits, scale)), scale)
    return f"CAST('{value:f}' AS {str(wide).upper()})"
