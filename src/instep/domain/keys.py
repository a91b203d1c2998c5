"""Keys of rows: typed tuples with one order everywhere, and their text.

A key holds int64, string, bytes, bool, date, timestamp and decimal values, never null and never floating point (NaN
equals nothing). They are kept in one form: a timestamp in UTC with microseconds, a decimal without trailing zeros, a
UUID as its text in lower case, whose order is that of its bytes (ClickHouse orders its type UUID by the second half).

Order: column by column, from the left. Strings compare by code point, which is the order of their UTF-8 bytes and that
of Spark (UTF8_BINARY), ClickHouse and SQLite (BINARY). It is not the usual one of a server: a source that compares in
a database asks for it there (PostgreSQL `COLLATE "C"`, MySQL `utf8mb4_0900_bin`, MariaDB `utf8mb4_nopad_bin`).
Nothing is folded or normalized: `é` in its two Unicode forms is two keys, and so are `a` and `a ` (which the
collation `utf8mb4_bin` calls equal). False is before true; bytes compare unsigned.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from itertools import islice
from typing import Any, TypeAlias

from instep.domain.columns import MAX_PRECISION, STRING, Column, ColumnType, TypeName

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

#: Of the text of keys. A number is added when a reader of this one could not read it any more.
VERSION = 1

KeyValue: TypeAlias = int | str | bytes | bool | date | datetime | Decimal


class KeyValueError(ValueError):
    """A value that cannot be in a key."""


class NullInKey(KeyValueError):
    """A null where a key is needed: the row cannot be told from others."""


class KeysDiffer(KeyValueError):
    """Keys of different columns, which have no order."""


class KeyTextError(KeyValueError):
    """A stored key that cannot be read."""


class KeyKind(StrEnum):
    INT64 = "int64"
    STRING = "string"
    BYTES = "bytes"
    BOOL = "bool"
    DATE = "date"
    TIMESTAMP = "timestamp"
    DECIMAL = "decimal"


# By the very type: a bool is an int to Python, and a datetime a date.
_KINDS = {
    int: KeyKind.INT64,
    str: KeyKind.STRING,
    bytes: KeyKind.BYTES,
    bool: KeyKind.BOOL,
    date: KeyKind.DATE,
    datetime: KeyKind.TIMESTAMP,
    Decimal: KeyKind.DECIMAL,
}


@dataclass(frozen=True, slots=True)
class Key:
    """The key of a row, or its first columns. Make it with `key_of`."""

    values: tuple[KeyValue, ...]
    kinds: tuple[KeyKind, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not self.values:
            raise KeyValueError("a key has at least one column")
        values = tuple(_normal(value, at) for at, value in enumerate(self.values, 1))
        object.__setattr__(self, "values", values)
        object.__setattr__(self, "kinds", tuple(_KINDS[type(value)] for value in values))

    def __len__(self) -> int:
        return len(self.values)

    def prefix(self, columns: int) -> Key:
        """The key of the first columns."""
        if not 1 <= columns <= len(self):
            raise KeysDiffer(f"a key of {len(self)} columns has no first {columns}")
        return self if columns == len(self) else Key(self.values[:columns])

    def suffix(self, columns: int) -> Key:
        """The key of the last columns."""
        if not 1 <= columns <= len(self):
            raise KeysDiffer(f"a key of {len(self)} columns has no last {columns}")
        return self if columns == len(self) else Key(self.values[-columns:])

    def __lt__(self, other: Key) -> bool:
        return _values(self, other) < other.values

    def __le__(self, other: Key) -> bool:
        return _values(self, other) <= other.values

    def __gt__(self, other: Key) -> bool:
        return _values(self, other) > other.values

    def __ge__(self, other: Key) -> bool:
        return _values(self, other) >= other.values

    def __str__(self) -> str:
        """The key for people."""
        shown = ", ".join(
            str(value) if isinstance(value, int | Decimal) else repr(json_value(value)) for value in self.values
        )
        return f"({shown})"


def key_of(*values: object) -> Key:
    """The key of these values, each brought into its one form.

    Raises `NullInKey`, or `KeyValueError` for what a key cannot hold.
    """
    return Key(values)  # type: ignore[arg-type]  # Key itself looks at each of them


def _values(key: Key, other: Key) -> tuple[Any, ...]:
    if key.kinds != other.kinds:
        raise KeysDiffer(f"keys of ({', '.join(key.kinds)}) and of ({', '.join(other.kinds)}) have no order")
    return key.values


def _normal(value: object, at: int) -> KeyValue:  # noqa: PLR0911 - one return for each type
    """`at` is the column's place, counted from 1."""
    if value is None:
        raise NullInKey(f"column {at} of the key is null: choose key columns that are never null")
    match value:
        case bool() | bytes():
            return value
        case int():
            if not INT64_MIN <= value <= INT64_MAX:
                raise KeyValueError(f"column {at} of the key: {value} does not fit into an int64")
            return value
        case str():
            return _text_that_is_utf8(value, at)
        case uuid.UUID():
            return str(value)
        case datetime():
            return _in_utc(value, at)
        case date():
            return value
        case Decimal():
            return _plain_decimal(value, at)
    raise KeyValueError(f"column {at} of the key: {type(value).__name__} cannot be in a key")


def _text_that_is_utf8(value: str, at: int) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise KeyValueError(f"column {at} of the key: text that is not valid Unicode") from None
    return value


def _in_utc(value: datetime, at: int) -> datetime:
    """A moment. Two datetimes of one zone compare by the clock on its walls, which goes back once a year: so in UTC."""
    if value.utcoffset() is None:
        raise KeyValueError(f"column {at} of the key: a timestamp without a zone; what has none is read as UTC")
    try:
        return value.astimezone(UTC).replace(fold=0)
    except OverflowError:
        raise KeyValueError(f"column {at} of the key: a timestamp outside the years 1 to 9999") from None


def _plain_decimal(value: Decimal, at: int) -> Decimal:
    """A decimal without exponent and trailing zeros. Done by digits: arithmetic would round them."""
    if not value.is_finite():
        raise KeyValueError(f"column {at} of the key: {value} is not a number that has an order")
    if not value:
        return Decimal(0)
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    kept = len(digits) - len(_without_trailing_zeros(digits))
    scale = -(exponent + kept)
    whole = value.adjusted() + 1
    if max(whole, 0) + max(scale, 0) > MAX_PRECISION:
        raise KeyValueError(f"column {at} of the key: a decimal with more than {MAX_PRECISION} digits")
    digits = digits[: len(digits) - kept] + (0,) * max(0, -scale)
    return Decimal((sign, digits, -max(scale, 0)))


def _without_trailing_zeros(digits: tuple[int, ...]) -> tuple[int, ...]:
    end = len(digits)
    while end and digits[end - 1] == 0:
        end -= 1
    return digits[:end]


def json_value(value: KeyValue) -> str | bool:
    """The value in JSON. Numbers are text, since many readers of JSON round them."""
    match value:
        case bool() | str():
            return value
        case bytes():
            return value.hex()
        case datetime():
            return value.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
        case date():
            return value.isoformat()
        case Decimal():
            return format(value, "f")
        case int():
            return str(value)


_READERS: dict[KeyKind, Callable[[Any], KeyValue]] = {
    KeyKind.INT64: int,
    KeyKind.STRING: str,
    KeyKind.BYTES: bytes.fromhex,
    KeyKind.BOOL: bool,
    KeyKind.DATE: date.fromisoformat,
    KeyKind.TIMESTAMP: datetime.fromisoformat,
    KeyKind.DECIMAL: Decimal,
}


def encode_key(key: Key) -> str:
    """Exact and in ASCII; two keys are equal exactly when their texts are. The text has not the order of the keys."""
    pairs = [[kind, json_value(value)] for kind, value in zip(key.kinds, key.values, strict=True)]
    return json.dumps({"v": VERSION, "key": pairs}, separators=(",", ":"))


def decode_key(text: str) -> Key:
    """The key of a text that `encode_key` has written; anything else is a `KeyTextError`."""
    try:
        stored = json.loads(text)
        version = stored["v"]
    except (ValueError, TypeError, KeyError):
        raise KeyTextError(f"{text!r} is not the text of a key") from None
    if version != VERSION:
        raise KeyTextError(f"a key in form {version!r}; this Instep reads form {VERSION}: a newer one has written it")
    try:
        key = Key(tuple(_READERS[KeyKind(kind)](value) for kind, value in stored["key"]))
    except (ValueError, TypeError, KeyError, ArithmeticError):
        raise KeyTextError(f"{text!r} is not the text of a key") from None
    # What the readers above let pass and we never write (spaces, other forms of a date, a second name) ends here.
    if encode_key(key) != text:
        raise KeyTextError(f"{text!r} is not the text of a key")
    return key


def encode_bound(bound: Key | None) -> str:
    """A bound of a slice as the ledger stores it: '' is an open end."""
    return encode_key(bound) if bound else ""


def decode_bound(text: str) -> Key | None:
    return decode_key(text) if text else None


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
    """Parse a value of this type. Raises `ValueError`, or `InvalidOperation`, for other text."""
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
