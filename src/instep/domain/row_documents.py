"""Documents made of table rows: their columns and their URIs.

The URI of a row is `table://<entity>/<key>`, with a slash before each key column: `table://Ticket/4711`,
`table://Page/42/a%20b`. So a document keeps its identity when its table moves. Numbers are written in digits, moments
in UTC with microseconds, bytes in hexadecimal; text is percent-encoded. A null is written in brackets, which encoded
text never has: such a row has no unique key, and fails under this name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Final
from urllib.parse import quote, unquote

from instep.domain.columns import ColumnType, TypeName
from instep.domain.keys import Key, KeyValue, json_value, key_of

SCHEME: Final = "table://"
NULL: Final = "(null)"

_SAFE: Final = ":"


@dataclass(frozen=True, slots=True)
class DocumentColumns:
    """Names of the columns that make a document of a row. `version` differs whenever the row has changed; without it
    the content says so. `deleted` is a flag.
    """

    key: tuple[str, ...]
    text: str
    title: str | None = None
    version: str | None = None
    deleted: str | None = None

    @property
    def named(self) -> tuple[str, ...]:
        """All of the columns, each once."""
        single = (each for each in (self.title, self.version, self.deleted) if each)
        return tuple(dict.fromkeys((*self.key, self.text, *single)))


def row_uri(entity: str, values: Sequence[KeyValue | None]) -> str:
    return "/".join((SCHEME + entity, *map(key_part, values)))


def key_part(value: KeyValue | None) -> str:
    """A column of a key as a part of a URI."""
    if value is None:
        return NULL
    (value,) = key_of(value).values
    text = json_value(value)
    return str(text).lower() if isinstance(text, bool) else quote(text, safe=_SAFE)


_READERS: Final[dict[TypeName, Callable[[str], KeyValue]]] = {
    TypeName.BOOL: lambda part: part == "true",
    TypeName.INT32: int,
    TypeName.INT64: int,
    TypeName.STRING: unquote,
    TypeName.BYTES: bytes.fromhex,
    TypeName.DATE: date.fromisoformat,
    TypeName.TIMESTAMP: datetime.fromisoformat,
    TypeName.DECIMAL: Decimal,
}


def row_key(uri: str, types: Sequence[ColumnType]) -> Key | None:
    """The key that a URI names, in columns of these types; None when there can be no such row."""
    parts = uri.removeprefix(SCHEME).split("/")[1:]
    if len(parts) != len(types) or NULL in parts:
        return None
    try:
        return Key(tuple(_READERS[kind.name](part) for part, kind in zip(parts, types, strict=True)))
    except (ValueError, ArithmeticError):
        return None
