"""Rows of a table: the columns that identify them, the window of watermarks, and the selection that a wave reads.

A window is (floor, target], in microseconds since 1970. Which one a run has:

| before | window |
| --- | --- |
| nothing | (nothing, target]: everything that is not deleted; of several files, all |
| a run that has ended | above the greatest watermark that it saw, or lower: see `domain.seen` |
| a run that has not ended | its own window, whatever is requested now: its slices have it |

The floor moves when every slice is durable.

A row may be a document. Its URI is `table://<entity>/<key>`, with a slash before each key column: `table://Ticket/4711`,
`table://Page/42/a%20b`. So a document keeps its identity when its table moves. Numbers are written in digits, moments
in UTC with microseconds, bytes in hexadecimal; text is percent-encoded. A null is written in brackets, which encoded
text never has: such a row has no unique key, and fails under this name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from itertools import accumulate, pairwise
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from instep.domain.columns import ColumnType, TypeName
from instep.domain.cuts import Bin, KeyRange
from instep.domain.document_columns import DeclaredColumn
from instep.domain.keys import Key, KeyValue, decode_bound, encode_bound, json_value, key_of
from instep.domain.pending_queue import QueueKey
from instep.domain.refs import GLOBAL, Scope
from instep.domain.storable import pack, unpack
from instep.domain.table_files import Files
from instep.domain.table_versions import VersionWindow


class WindowError(ValueError):
    """A window that cannot be."""


#: No watermark (µs) is before the first of these, or after the last: the years 1 to 9999.
FIRST_MOMENT: Final = -62_135_596_800_000_000
LAST_MOMENT: Final = 253_402_300_799_999_999


@dataclass(frozen=True, slots=True)
class Window:
    """Watermarks above `floor` and up to `target`; without a floor, all up to `target`. `unmarked`: rows without a
    watermark are in it, too; in a first window they always are. `versions`: in a first one there may be older versions
    of a row that is deleted, which that has to outlive.
    """

    floor: int | None
    target: int
    unmarked: bool = False
    versions: bool = False

    def __post_init__(self) -> None:
        if self.floor is not None and self.floor >= self.target:
            raise WindowError(f"the window ({self.floor}, {self.target}] is empty")

    @property
    def first(self) -> bool:
        """The window of a first run: there is nothing to delete yet."""
        return self.floor is None

    @property
    def undeleted(self) -> bool:
        """Whether deleted rows are not read."""
        return self.first and not self.versions

    @property
    def everything(self) -> bool:
        """Whether any row is in it, deleted ones too: as of a new file, which is read whole."""
        return self.unmarked and self.floor == FIRST_MOMENT - 1 and self.target == LAST_MOMENT

    def holds(self, watermark: int | None) -> bool:
        """Whether a row of this watermark is read."""
        if watermark is None:
            return self.first or self.unmarked
        return (self.floor is None or watermark > self.floor) and watermark <= self.target

    def __str__(self) -> str:
        return f"({'nothing' if self.floor is None else self.floor}, {self.target}]"


#: All rows of new and changed files, whatever they say.
EVERYTHING: Final = Window(FIRST_MOMENT - 1, LAST_MOMENT, unmarked=True)


@dataclass(frozen=True, slots=True)
class RowColumns:
    """Names of columns. `scope` holds a traversal path such as `42/9970/`: with it, the entity is
    indexed by namespaces.

    `watermark` is a timestamp that grows with every change of the row, `deleted` a flag. `order` is how the source
    sorts its rows, if that is not by scope and key.
    """

    key: tuple[str, ...]
    scope: str | None = None
    watermark: str | None = None
    deleted: str | None = None
    order: tuple[str, ...] = ()

    @property
    def sorted_by(self) -> tuple[str, ...]:
        if self.order:
            return self.order
        scope = (self.scope,) if self.scope and self.scope not in self.key else ()
        return (*scope, *self.key)

    @property
    def named(self) -> tuple[str, ...]:
        """All of the columns, each once: those that have to be there when a row is written."""
        single = (each for each in (self.scope, self.watermark, self.deleted) if each)
        return tuple(dict.fromkeys((*self.key, *single, *self.order)))


class Neighbour(NamedTuple):
    """Another namespace in the same index, with the version of the table that is served of it."""

    scope: Scope
    version: int


@dataclass(frozen=True, slots=True)
class Selection:
    """Rows of a table: those in the scope (its namespaces too), in the window (None: whatever their watermark), and in
    one of the ranges of the columns `cut_by` (none: all). A null in these columns is less than any value. `keys` are
    the only ones that are wanted (none: all); others may come as well.

    `others`, if they are given, are the other namespaces that are indexed: rows that are neither in these nor in the
    scope are selected too, since they may have been in it before.

    `known` are files that need not be read again (None: all are read); rows of theirs may come as well.

    `versions` are of a table that keeps them: see `VersionWindow`. Rows that were changed and are in one of the
    `neighbours` by now are selected too, if that will not find out that they have come.
    """

    scope: Scope = GLOBAL
    window: Window | None = None
    cut_by: tuple[str, ...] = ()
    ranges: tuple[KeyRange, ...] = ()
    keys: tuple[Key, ...] = ()
    others: tuple[Scope, ...] | None = None
    known: Files | None = None
    versions: VersionWindow | None = None
    neighbours: tuple[Neighbour, ...] = ()


class Histogram(NamedTuple):
    """The number of rows, exactly or by a sample, and keys at which they lie, in order."""

    rows: int
    bins: Sequence[Bin]


class GoneRow(NamedTuple):
    """A row of the index that is not in the source any more; `version` is the one stored (µs), `scope` its path."""

    key: Key
    version: int
    scope: str | None = None


@dataclass(frozen=True, slots=True)
class Repair:
    """The repair of a slice: keys of rows to read, and rows to delete."""

    wanted: tuple[Key, ...]
    gone: tuple[GoneRow, ...]


@dataclass(frozen=True, slots=True)
class RowSlice:
    """One of `count` slices of a run, as it is stored when it is planned: its rows are never worked out again. `keys`,
    in order, are the only ones in its range that it has (none: all): they came from a pending queue. With a
    `repair` it has what that says, and nothing else. `versions` are of a table that keeps them.
    """

    index: int
    count: int
    window: Window | None
    cut_by: tuple[str, ...]
    range: KeyRange
    keys: tuple[QueueKey, ...] = ()
    repair: Repair | None = None
    versions: VersionWindow | None = None


def encode_row_slice(part: RowSlice) -> bytes:
    """The payload of a slice of rows."""
    return pack(
        {
            "slice": [part.index, part.count],
            "window": _window(part.window) if part.window else None,
            "cut_by": part.cut_by,
            "range": [encode_bound(part.range.lower), encode_bound(part.range.upper)],
            **({"keys": _steps(part.keys)} if part.keys else {}),
            **({"repair": _repair(part.repair)} if part.repair else {}),
            **({"versions": list(part.versions)} if part.versions else {}),
        }
    )


def decode_row_slice(payload: bytes) -> RowSlice | None:
    """None for the payload of a slice of documents."""
    value = unpack(payload)
    if not isinstance(value, dict) or "slice" not in value:
        return None
    lower, upper = map(decode_bound, value["range"])
    window = _window_of(*value["window"]) if value["window"] else None
    index, count = value["slice"]
    keys = _keys_of(value.get("keys", ()))
    repair = _repair_of(*value["repair"]) if "repair" in value else None
    versions = VersionWindow(*value["versions"]) if "versions" in value else None
    return RowSlice(index, count, window, tuple(value["cut_by"]), KeyRange(lower, upper), keys, repair, versions)


def _repair(repair: Repair) -> list[Any]:
    return [
        [encode_bound(each) for each in repair.wanted],
        [[encode_bound(each.key), each.version, each.scope] for each in repair.gone],
    ]


def _repair_of(wanted: Sequence[Any], gone: Sequence[Any]) -> Repair:
    return Repair(
        tuple(key for each in wanted if (key := decode_bound(each)) is not None),
        tuple(GoneRow(key, *more) for each, *more in gone if (key := decode_bound(each)) is not None),
    )


def _window_of(floor: int | None, target: int, unmarked: int = 0, versions: int = 0) -> Window:
    return Window(floor, target, bool(unmarked), bool(versions))


def _window(window: Window) -> list[int | None]:
    marks = [int(window.unmarked), int(window.versions)] if window.versions else [1] if window.unmarked else []
    return [window.floor, window.target, *marks]


def _steps(keys: Sequence[QueueKey]) -> list[QueueKey]:
    """Texts; or the first number, and how far each is from the one before: short where they lie close together."""
    if isinstance(keys[0], str):
        return list(keys)
    return [*keys[:1], *(after - before for before, after in pairwise(keys))]


def _keys_of(steps: Sequence[QueueKey]) -> tuple[QueueKey, ...]:
    """The reverse of `_steps`."""
    return tuple(steps) if steps and isinstance(steps[0], str) else tuple(accumulate(steps))


SCHEME: Final = "table://"
NULL: Final = "(null)"

_SAFE: Final = ":"


@dataclass(frozen=True, slots=True)
class DocumentColumns:
    """Names of the columns that make a document of a row. `version` differs whenever the row has changed; without it
    the content says so. `deleted` is a flag. `columns` are declared ones whose values are in the row.
    """

    key: tuple[str, ...]
    text: str
    title: str | None = None
    version: str | None = None
    deleted: str | None = None
    columns: tuple[DeclaredColumn, ...] = ()

    @property
    def named(self) -> tuple[str, ...]:
        """All of the columns, each once."""
        single = (each for each in (self.title, self.version, self.deleted) if each)
        return tuple(dict.fromkeys((*self.key, self.text, *single, *(each.of for each in self.columns))))


@dataclass(frozen=True, slots=True)
class ChildColumns:
    """Rows of another table that are part of documents: the first `keys` columns of the key name the document, and by
    the others its rows are in order. `heading` stands before the first of them.
    """

    name: str
    columns: DocumentColumns
    keys: int
    heading: str | None = None


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
