"""Lines of Debezium: change events of a table's rows, with or without their schema (debezium.io, "data change events").

| line | what it says |
| --- | --- |
| `op` `c`, `u`, `r` | the row is there as `after` has it (created, updated, read by a snapshot) |
| `u` whose `before` has another key | that one is gone |
| `op` `d` | the row with the key in `before` is gone |
| `op` `t` | the table was emptied |
| `op` `m`, `null`, heartbeats, marks of transactions, changes of the schema | nothing of a row |
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache
from typing import Any, Final
from urllib.parse import quote

import msgspec

from instep.sources.feed_lines import SCHEME, LineContent, Malformed, Place, Told

#: Stands for a value that PostgreSQL did not send, since it is stored apart (TOAST) and was not changed.
_NOT_SENT: Final = "__debezium_unavailable_value"
_UNSENT: Final = (_NOT_SENT, base64.b64encode(_NOT_SENT.encode()).decode())
_PUTS, _CHANGES, _DELETES, _TRUNCATES, _MESSAGE = frozenset("cru"), "u", "d", "t", "m"
_NULL: Final = msgspec.Raw(b"null")
_ABSENT: Final = msgspec.Raw(b"")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
#: What reading a value by its logical type raises, when it is not of that type.
_WRONG: Final = (TypeError, ValueError, OverflowError, ArithmeticError, KeyError, binascii.Error)


class _Event(msgspec.Struct):
    """A line, or the payload of one that has its schema beside it."""

    op: str | None = None
    before: msgspec.Raw = _NULL
    after: msgspec.Raw = _NULL
    payload: msgspec.Raw = _ABSENT
    schema: msgspec.Raw = _NULL
    #: What events have that are of no row.
    ddl: msgspec.Raw = _ABSENT
    tableChanges: msgspec.Raw = _ABSENT  # noqa: N815 - Debezium's name
    status: msgspec.Raw = _ABSENT
    ts_ms: msgspec.Raw = _ABSENT

    @property
    def of_no_row(self) -> bool:
        said = (self.ddl, self.tableChanges, self.status, self.ts_ms)
        return self.op is None and any(bytes(each) for each in said)


class _Key(msgspec.Struct):
    """A key, or the payload of one that has its schema beside it."""

    payload: msgspec.Raw = _ABSENT
    schema: msgspec.Raw = _NULL


class _Source(msgspec.Struct):
    """The place of a change in the log of PostgreSQL, or of MySQL and MariaDB."""

    lsn: int | None = None
    file: str | None = None
    pos: int | None = None


class _Sourced(msgspec.Struct):
    """A line, or the payload of one that has its schema beside it: what it says of its place."""

    source: _Source | None = None
    payload: _Sourced | None = None


_SOURCED: Final = msgspec.json.Decoder(_Sourced)
_EVENT: Final = msgspec.json.Decoder(_Event | None)
_KEY: Final = msgspec.json.Decoder(_Key)
_ROW: Final = msgspec.json.Decoder(dict[str, Any] | None)


@dataclass(frozen=True)
class DebeziumLines:
    """Implements `feed_lines.LineFormat`. `key`, `text` and `title` are columns of the rows. Of other columns that are
    asked for, those in `numbers` are to be numbers, and those in `lists` lists.
    """

    key: tuple[str, ...]
    text: str
    title: str | None = None
    numbers: frozenset[str] = frozenset()
    lists: frozenset[str] = frozenset()

    def told(self, line: bytes, entity: str, version: str = "") -> Told | None:
        event, types = _event(line)
        if event is None or event.op == _MESSAGE or event.of_no_row:
            return None
        if event.op == _TRUNCATES:
            return Told("", None, truncates=True)
        if event.op == _DELETES:
            return Told(self._uri(_row(event.before), types, entity), None)
        if event.op not in _PUTS:
            raise Malformed("`op` is none of c, u, r, d, t and m")
        uri, before = self._uri(_row(event.after), types, entity), self._before(event, types, entity)
        left = before if before != uri else None
        return Told(uri, version or hashlib.sha256(event.after).hexdigest()[:32], left=left)

    def content(self, line: bytes, names: Sequence[str]) -> LineContent:
        event, types = _event(line)
        row = _row(event.after if event else _NULL)
        text, title = self._text(row, self.text), self._text(row, self.title) if self.title else ""
        for name in names:
            if _is_unsent(row.get(name)):
                raise _not_sent(name)
        return LineContent(text, title, {name: self._field(row, types, name) for name in names if name in row})

    def keyed(self, key: bytes, entity: str) -> str:
        """A key is an object with the columns of the key, with its schema beside it or without."""
        try:
            found = _KEY.decode(key)
            alone = not bytes(found.payload)
            row = _row(msgspec.Raw(key) if alone else found.payload)
            return self._uri(row, {} if alone else _types_of_key(bytes(found.schema)), entity)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise Malformed("the key is not a JSON object") from None

    def place(self, line: bytes) -> Place | None:
        try:
            found = _SOURCED.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        source = (found.payload or found).source or _Source()
        if source.lsn is not None:
            return 0, "", source.lsn
        # The files are numbered.
        return None if source.file is None or source.pos is None else (len(source.file), source.file, source.pos)

    def _before(self, event: _Event, types: Mapping[str, _Type], entity: str) -> str | None:
        """The document that a changed row was before, as far as it is told: of a primary key that changes there are two
        events, of any other key there is this one.
        """
        if event.op == _CHANGES and bytes(event.before) != bytes(_NULL):
            with suppress(Malformed):
                return self._uri(_row(event.before), types, entity)
        return None

    def _field(self, row: Mapping[str, Any], types: Mapping[str, _Type], name: str) -> Any:
        """A value that no type holds comes as it is: what its column is to be then says that it is wrong."""
        value = row[name]
        if value is None or name not in types:
            return _list_in(value) if name in self.lists else value
        try:
            value = types[name](value)
        except _WRONG:
            return str(value)
        return _number_in(value) if name in self.numbers else value

    def _uri(self, row: Mapping[str, Any], types: Mapping[str, _Type], entity: str) -> str:
        found = []
        for name in self.key:
            value = row.get(name)
            if value is not None and name in types:
                try:
                    value = types[name](value)
                except _WRONG:
                    raise Malformed(f"the value of {name!r} is not of the type that its schema says") from None
            if value is None or value == "" or isinstance(value, bool | float | list | dict) or _is_unsent(value):
                raise Malformed(f"the row has no {name!r} that could name it")
            found.append(value)
        return f"{SCHEME}{entity}/" + "/".join(quote(str(each), safe=":") for each in found)

    def _text(self, row: Mapping[str, Any], name: str) -> str:
        if name not in row:
            raise ValueError(f"the row has no column {name!r}")
        value = row[name]
        if _is_unsent(value):
            raise _not_sent(name)
        if value is None or isinstance(value, str):
            return value or ""
        raise ValueError(f"column {name!r} is not text")


def _is_unsent(value: Any) -> bool:
    """True: its only element of a list, and its base64 of bytes, stand for it as well."""
    return value in _UNSENT or (isinstance(value, list) and bool(value) and value[0] in _UNSENT)


def _list_in(value: Any) -> Any:
    """The list of a column of JSON, which comes as text."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        with suppress(msgspec.DecodeError, RecursionError):
            return msgspec.json.decode(value)
    return value


def _number_in(text: str) -> int | float | str:
    """The number that a decimal is."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        return float(text)
    except ValueError:
        return text


def _not_sent(name: str) -> ValueError:
    return ValueError(
        f"column {name!r} was not sent with this change: it is stored apart and unchanged (ALTER TABLE … REPLICA "
        "IDENTITY FULL has it sent)"
    )


def _event(line: bytes) -> tuple[_Event | None, Mapping[str, _Type]]:
    """The event, and how columns are to be read that are not what they look like. Raises `Malformed`."""
    try:
        found = _EVENT.decode(line)
        if found is None or found.op is not None or not bytes(found.payload):
            return found, {}
        return _EVENT.decode(found.payload), _types(bytes(found.schema))
    except msgspec.ValidationError:
        raise Malformed("not an event of Debezium") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        said = "not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
        raise Malformed(f"not JSON: {said}") from None
    except RecursionError:
        raise Malformed("lists and objects are nested too deep") from None


def _row(said: msgspec.Raw) -> dict[str, Any]:
    """The values of a row as they are written. Raises `Malformed`."""
    row: dict[str, Any] | None
    try:
        row = _ROW.decode(said)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        row = None
    if row is None:
        raise Malformed("it has no row: `after` of a change, or `before` of a deletion")
    return row


# Logical types: numbers and bytes that stand for something else, as far as the schema says so.

_Type = Callable[[Any], Any]


def _days(value: int) -> str:
    return (date(1970, 1, 1) + timedelta(days=value)).isoformat()


def _moment(value: int, *, per_second: int) -> str:
    """With nanoseconds where it has any: no two moments are one key."""
    microseconds, rest = divmod(value * 1_000_000_000 // per_second, 1_000)
    text = (_EPOCH + timedelta(microseconds=microseconds)).isoformat(timespec="microseconds" if rest else "auto")
    return text.replace("+", f"{rest:03}+") if rest else text


def _decimal(value: str, *, scale: int) -> str:
    unscaled = int.from_bytes(base64.b64decode(value, validate=True), "big", signed=True)
    # Of the text no digit is lost: calculating with it would round to 28 of them.
    return str(Decimal(f"{unscaled}E{-scale}"))


def _decimal_with_scale(value: Mapping[str, Any]) -> str:
    return _decimal(value["value"], scale=int(value["scale"]))


def _type(field: Mapping[str, Any]) -> _Type | None:
    name, parameters = field.get("name"), field.get("parameters")
    if not isinstance(name, str):
        return None
    scale = parameters.get("scale", 0) if isinstance(parameters, dict) else 0
    per_second = {
        "io.debezium.time.Timestamp": 1_000,
        "org.apache.kafka.connect.data.Timestamp": 1_000,
        "io.debezium.time.MicroTimestamp": 1_000_000,
        "io.debezium.time.NanoTimestamp": 1_000_000_000,
    }
    if name in ("io.debezium.time.Date", "org.apache.kafka.connect.data.Date"):
        return _days
    if name in per_second:
        return lambda value: _moment(value, per_second=per_second[name])
    if name == "org.apache.kafka.connect.data.Decimal":
        return lambda value: _decimal(value, scale=int(scale))
    return _decimal_with_scale if name == "io.debezium.data.VariableScaleDecimal" else None


@cache
def _types(schema: bytes) -> Mapping[str, _Type]:
    """Readers of the columns with a logical type, by name. Mostly all lines of a table have the same schema."""
    found: dict[str, _Type] = {}
    for side in _fields(msgspec.json.decode(schema)):
        if side.get("field") in ("before", "after"):
            found |= _readers(side)
    return found


@cache
def _types_of_key(schema: bytes) -> Mapping[str, _Type]:
    return _readers(msgspec.json.decode(schema))


def _fields(struct: Any) -> Iterator[Mapping[str, Any]]:
    fields = struct.get("fields") if isinstance(struct, dict) else None
    yield from (each for each in fields if isinstance(each, dict)) if isinstance(fields, list) else ()


def _readers(struct: Any) -> dict[str, _Type]:
    """Those of the fields of a struct."""
    read = {str(each.get("field")): _type(each) for each in _fields(struct)}
    return {name: each for name, each in read.items() if each is not None}
