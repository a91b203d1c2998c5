"""Keys as people write them: their values, joined by commas, as lists of failures show them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from itertools import islice

from instep.domain.columns import STRING, Column, ColumnType, TypeName
from instep.domain.keys import KeyValue

#: Of texts with many commas no more ways to read them are tried.
_WAYS = 100

_BOUND = {TypeName.INT32: 2**31, TypeName.INT64: 2**63}
_FLAGS = {"true": True, "false": False}


def keys_in(text: str, columns: Sequence[Column]) -> Iterator[tuple[KeyValue, ...]]:
    """The keys of these columns that a text may mean: text columns may hold commas themselves."""
    for parts in islice(_ways(text.split(","), columns), _WAYS):
        try:
            yield tuple(_value(part, column.type) for part, column in zip(parts, columns, strict=True))
        except (ValueError, InvalidOperation):
            continue


def _ways(parts: Sequence[str], columns: Sequence[Column]) -> Iterator[list[str]]:
    if not columns:
        if not parts:
            yield []
        return
    most = len(parts) - len(columns) + 1
    for taken in range(1, (most if columns[0].type == STRING else min(most, 1)) + 1):
        for others in _ways(parts[taken:], columns[1:]):
            yield [",".join(parts[:taken]), *others]


def _value(text: str, kind: ColumnType) -> KeyValue:  # noqa: PLR0911 - one return for each type
    """Raises `ValueError`, or `InvalidOperation`, for what is no value of this type."""
    match kind.name:
        case TypeName.INT32 | TypeName.INT64:
            number, bound = int(text), _BOUND[kind.name]
            if not -bound <= number < bound:
                raise ValueError(text)
            return number
        case TypeName.DECIMAL:
            return _decimal(text, kind)
        case TypeName.BOOL:
            if text.lower() not in _FLAGS:
                raise ValueError(text)
            return _FLAGS[text.lower()]
        case TypeName.BYTES:
            return bytes.fromhex(text)
        case TypeName.DATE:
            return date.fromisoformat(text)
        case TypeName.TIMESTAMP:
            moment = datetime.fromisoformat(text)
            return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return text


def _decimal(text: str, kind: ColumnType) -> Decimal:
    value = Decimal(text)
    if not value.is_finite() or round(value, kind.scale) != value or abs(value) >= 10 ** (kind.precision - kind.scale):
        raise ValueError(text)
    return value
