"""Types of databases over JDBC: what is carried exactly, in which steps, and what is refused.

Java's old calendar takes ten days of 1582 for others, the driver takes what is infinite for some year, and Spark rounds
a number that has more digits than its type. So the database itself is asked for numbers of days and microseconds, for
texts of arrays, and for an error that names the column where a value does not fit.

| PostgreSQL | ours |
| --- | --- |
| `smallint`, `integer`, `bigint` | `int32`, `int32`, `int64` |
| `numeric(p,s)` of up to 38 digits; `numeric` | `decimal(p,s)`; `decimal(38,18)`: another number, or NaN, is an error |
| `real`, `double precision`, `boolean` | `float32`, `float64`, `bool` |
| `date`, `timestamp`, `timestamptz` | `date`, `timestamp`; infinity is an error |
| `text`, `varchar`, `char`, `uuid`, `json`, `jsonb`, `inet`, ranges, `money`, … | `string`, as the database shows it |
| arrays | `string`, as JSON |
| `bytea` | `bytes` |
| `interval`, `time`, `timetz`, `bit(n)`, `numeric` of more digits | refused |

| MySQL, MariaDB | ours |
| --- | --- |
| whole numbers | `int32` or `int64`, the smaller one that holds all values; `bigint unsigned` is `decimal(20,0)` |
| `tinyint(1)`, `bit(1)` | `bool`: all but 0 is true |
| `decimal` of up to 38 digits | `decimal` |
| `float`, `double` | `float32`, `float64` |
| `date`, `datetime`, `timestamp` | `date`, `timestamp`; one with a zero for its day, month or year is an error |
| texts, `json`, `enum`, `set` | `string` |
| `binary`, `blob`, geometry | `bytes` |
| `time`, `year`, `bit(n)`, `uuid`, `decimal` of more digits | refused |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from instep.errors import UserError

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType


@dataclass(frozen=True, slots=True)
class Carried:
    """A column that is read by way of another: `asked` of the database, in its SQL, and what Spark makes of that."""

    asked: str
    made: Callable[[str], str]


def carried(server: str, schema: StructType, column: Callable[[str], str]) -> Mapping[str, Carried]:
    """The columns that do not come as they are, by name. `column` writes a name in the database's SQL. Raises
    `UserError` for a column that would not come exactly.
    """
    of = {"postgresql": _postgres, "mysql": _mysql}.get(server, _other)
    found = ((field.name, of(field, column(field.name))) for field in schema.fields)
    return {name: each for name, each in found if each is not None}


def _other(field: StructField, column: str) -> Carried | None:
    if field.metadata.get("logical_time_type"):
        raise _refused(field, column, "CHAR(20)")
    return None


def _postgres(field: StructField, column: str) -> Carried | None:
    text, named = field.dataType.simpleString(), _named(field)
    if named in ("interval", "time", "timetz", "bit") and text != "boolean":
        raise _refused(field, column, "text")
    if text.startswith("array<"):
        return Carried(f"to_json({column})::text", str)
    if text.startswith("decimal(") and named == "numeric":
        return _exact_number(field, column)
    if named == "date":
        days = f"{column} - DATE '1970-01-01'"
        return Carried(_finite(field, column, days, "integer"), lambda name: f"date_from_unix_date({name})")
    if named in ("timestamp", "timestamptz"):
        micros = f"(extract(epoch FROM {column}) * 1000000)::bigint"
        return Carried(_finite(field, column, micros, "bigint"), lambda name: f"timestamp_micros({name})")
    return None


def _finite(field: StructField, column: str, value: str, kind: str) -> str:
    return (
        f"CASE WHEN isfinite({column}) THEN {value} ELSE {_error(field, column, 'no timestamp of ours is')}::{kind} END"
    )


def _exact_number(field: StructField, column: str) -> Carried:
    kind: Any = field.dataType
    digits, scale, stored = kind.precision, kind.scale, field.metadata.get("scale", 0)
    if stored > scale:
        raise _refused(
            field, column, f"numeric(38,{stored})", f"numeric of more than 38 digits, {stored} of them decimals"
        )
    fits = f"{column} = trunc({column}, {scale}) AND abs({column}) < 1e{digits - scale}"
    error = _error(field, column, f"decimal({digits},{scale}) does not hold: cast the column in `sql`")
    return Carried(f"(CASE WHEN {fits} THEN {column} ELSE {error}::integer END)::numeric({digits},{scale})", str)


def _error(field: StructField, column: str, why: str) -> str:
    """A text that no number can be made of: the database says so, and which text it was. Of null it is null."""
    name = field.name.replace("'", "''")
    return f"('column {name} has ' || {column}::text || ', which {why}')"


def _mysql(field: StructField, column: str) -> Carried | None:
    text, named = field.dataType.simpleString(), _named(field)
    if field.metadata.get("logical_time_type") or named == "time":
        raise _refused(field, column, "CHAR")
    if named == "year" or (named == "bit" and text != "boolean"):
        raise _refused(field, column, "UNSIGNED")
    if text.startswith("decimal("):
        kind: Any = field.dataType
        if (stored := field.metadata.get("scale", 0)) > kind.scale:
            raise _refused(
                field, column, f"DECIMAL(38,{stored})", f"decimal of more than 38 digits, {stored} of them decimals"
            )
        return None
    why = _literal(", which is not a date: replace it in `sql`, such as by NULLIF")
    zero = f"raise_error(concat('column ', {_literal(field.name)}, ' has ', %s, {why}))"
    if text in ("date", "timestamp_ntz"):

        def parsed(name: str) -> str:
            return f"coalesce(try_cast({name} AS {text}), IF({name} IS NULL, NULL, {zero % name}))"

        return Carried(f"CAST({column} AS CHAR)", parsed)
    if text == "timestamp":
        # 0 is no moment that such a column can hold: it is what the zero date becomes.
        return Carried(
            f"CAST(UNIX_TIMESTAMP({column}) * 1000000 AS SIGNED)",
            lambda name: f"IF({name} = 0, {zero % _literal('0000-00-00')}, timestamp_micros({name}))",
        )
    return None


def _named(field: StructField) -> str:
    """The database's own name of the type, as its driver gives it."""
    return str(field.metadata.get("jdbcClientType", "")).lower()


def _literal(text: str) -> str:
    return f"CAST(X'{text.encode().hex()}' AS STRING)"


def _refused(field: StructField, column: str, kind: str, shown: str = "") -> UserError:
    named = shown or _named(field) or "time"
    return UserError(
        f"column {field.name!r} has the type {named}, which is not supported",
        hint=f"Leave it out, or cast it, in `sql`: SELECT …, CAST({column} AS {kind}) AS {column} FROM source",
    )
