"""Columns of tables, and the small closed set of types that sources map to and targets map from.

The set is what Spark, Arrow, ClickHouse, PostgreSQL and Lance all hold exactly. What a source has beside it is mapped
by that source, or refused with the name of the column: smaller and unsigned integers become the next larger signed
one, a timestamp without a zone is one in UTC, a UUID its text in lower case, a structure JSON text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

#: What Spark's decimals hold; the other stores hold as much or more.
MAX_PRECISION = 38

_DECIMAL = re.compile(r"decimal\(([0-9]{1,2}),([0-9]{1,2})\)\Z")


class ColumnTypeError(ValueError):
    """A text that is not one of the types of a column."""


class TypeName(StrEnum):
    """`timestamp` is a moment in microseconds, in UTC."""

    BOOL = "bool"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    DECIMAL = "decimal"
    STRING = "string"
    BYTES = "bytes"
    DATE = "date"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True, slots=True)
class ColumnType:
    """One type, written `int64` or `decimal(10,2)`. Only a decimal has digits (`precision`), `scale` of them behind the
    point.
    """

    name: TypeName
    precision: int = 0
    scale: int = 0

    def __post_init__(self) -> None:
        if self.name is not TypeName.DECIMAL:
            if self.precision or self.scale:
                raise ColumnTypeError(f"{self.name} has neither precision nor scale")
        elif not (1 <= self.precision <= MAX_PRECISION and 0 <= self.scale <= self.precision):
            raise ColumnTypeError(
                f"decimal({self.precision},{self.scale}): it has 1 to {MAX_PRECISION} digits, "
                "and no more of them behind the point"
            )

    @classmethod
    def parse(cls, text: str) -> ColumnType:
        found = _DECIMAL.match(text)
        if found:
            return cls(TypeName.DECIMAL, int(found[1]), int(found[2]))
        if text == TypeName.DECIMAL or text not in set(TypeName):
            names = ", ".join(str(each) for each in TypeName if each is not TypeName.DECIMAL)
            raise ColumnTypeError(f"{text!r} is not a type of a column: they are {names} and decimal(digits,scale)")
        return cls(TypeName(text))

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})" if self.name is TypeName.DECIMAL else str(self.name)

    @property
    def keys(self) -> bool:
        """Whether it may be in a key: floating-point numbers may not, NaN equals nothing."""
        return self.name not in (TypeName.FLOAT32, TypeName.FLOAT64)


BOOL = ColumnType(TypeName.BOOL)
INT32 = ColumnType(TypeName.INT32)
INT64 = ColumnType(TypeName.INT64)
FLOAT32 = ColumnType(TypeName.FLOAT32)
FLOAT64 = ColumnType(TypeName.FLOAT64)
STRING = ColumnType(TypeName.STRING)
BYTES = ColumnType(TypeName.BYTES)
DATE = ColumnType(TypeName.DATE)
TIMESTAMP = ColumnType(TypeName.TIMESTAMP)


def decimal_type(precision: int, scale: int) -> ColumnType:
    return ColumnType(TypeName.DECIMAL, precision, scale)


#: Decimal digits before the point that hold every value of an integer type.
_INTEGER_DIGITS = {TypeName.INT32: 10, TypeName.INT64: 19}

#: Widenings in which every value stays exactly what it was. int64 to float64 is none of them.
_WIDENINGS = frozenset(
    {
        (TypeName.INT32, TypeName.INT64),
        (TypeName.INT32, TypeName.FLOAT64),
        (TypeName.FLOAT32, TypeName.FLOAT64),
    }
)


def widens(stored: ColumnType, declared: ColumnType) -> bool:
    """Whether `declared` is another type and holds every value of `stored` exactly."""
    if stored == declared:
        return False
    if declared.name is TypeName.DECIMAL:
        whole = declared.precision - declared.scale
        if stored.name is TypeName.DECIMAL:
            return whole >= stored.precision - stored.scale and declared.scale >= stored.scale
        return whole >= _INTEGER_DIGITS.get(stored.name, MAX_PRECISION + 1)
    return (stored.name, declared.name) in _WIDENINGS


@dataclass(frozen=True, slots=True)
class Column:
    """A column by the name and type that it has in its table."""

    name: str
    type: ColumnType

    def __str__(self) -> str:
        return f"{self.name} {self.type}"
