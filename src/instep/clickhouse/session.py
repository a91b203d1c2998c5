"""Sessions of ClickHouse, in this process or on a server: addresses, quoting, errors, required settings."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import IO, TYPE_CHECKING, Any, Final, Protocol
from urllib.parse import unquote, urlsplit

from instep.domain.texts import without
from instep.errors import Away, Fenced, InstepError, Transient, UserError

if TYPE_CHECKING:
    import pyarrow as pa


#: Stands for the staged rows in the statement of `Session.load`.
STAGED = "<staged>"

#: What a statement that finds itself fenced says (by `throwIf`).
FENCED = "instep: superseded"

_CODE = re.compile(r"Code: (\d+)")
#: Of an error of the HTTP client, which also says which request it was.
_CAUSED = re.compile(r"\(Caused by \w+\([\"'](?:\w+\([^)]*\): )?(.*?)[\"']\)\)")
_TRAILER = re.compile(r"\s*\(version [^)]*\)|: while executing .*|Stack trace:.*", re.DOTALL)

_THROWN = 395
_MEMORY = 241  # MEMORY_LIMIT_EXCEEDED
_NOT_THERE = {60, 81}  # UNKNOWN_TABLE, UNKNOWN_DATABASE
_FULL = 243  # NOT_ENOUGH_SPACE
_REFUSED = {164, 192, 193, 194, 291, 497, 516}  # read-only, unknown user, wrong password, access denied
#: Timeouts, too many queries, sockets and networks, too many parts, tables that are being dropped.
_PASSING = {3, 32, 74, 76, 159, 160, 202, 203, 209, 210, 236, 242, 252, 319, 473, 999}


class Overflow(Transient):
    """A statement needed more memory than it may have; in smaller blocks it may do with less."""


class Absent(UserError):
    """The table, or the database, does not exist."""


class Session(Protocol):
    """Values travel as parameters (`{name:Type}` in the statement), never in the text. One of them has `room` letters
    at most, as it is written.
    """

    @property
    def room(self) -> int: ...

    def under(self, settings: Mapping[str, str | int]) -> Session:
        """The same session; its `command` (of an INSERT … SELECT, or an ALTER) and `arrow` run under these settings."""

    def command(self, sql: str, **parameters: Any) -> None: ...

    def arrow(self, sql: str, **parameters: Any) -> pa.Table:
        """The answer to a SELECT without SETTINGS; text comes as bytes."""

    def spool(self, sql: str, file: IO[bytes], *, block_rows: int, **parameters: Any) -> None:
        """Write the answer to a SELECT without SETTINGS to a file, as Arrow streams one behind the other, with only a
        few blocks in memory; text comes as bytes. After an error the content of the file is undefined.
        """

    def insert(self, table: str, rows: pa.Table) -> None:
        """Insert one block into a table whose name is quoted already."""

    def load(self, sql: str, structure: str, paths: Sequence[str], **parameters: Any) -> None:
        """Run an INSERT … SELECT from `STAGED`: files of Arrow streams that have this structure, one after another."""


def records(session: Session, sql: str, **parameters: Any) -> list[dict[str, Any]]:
    """A short answer, text as text."""
    return [
        {name: _text(value) for name, value in each.items()} for each in session.arrow(sql, **parameters).to_pylist()
    ]


def _text(value: Any) -> Any:
    match value:
        case bytes():
            return value.decode()
        case list():
            return [_text(each) for each in value]
    return value


def quoted(*names: str) -> str:
    """An identifier, of several parts (database, table)."""
    return ".".join("`" + each.replace("\\", "\\\\").replace("`", "\\`") + "`" for each in names)


def literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def plain(value: Any) -> Any:
    """A value as both clients bind it."""
    match value:
        case datetime():
            moment = value.astimezone(UTC) if value.tzinfo else value
            return moment.strftime("%Y-%m-%d %H:%M:%S.%f")
        case date() | Decimal():
            return str(value)
        case bytes():
            return value.hex()
    return value


def explained(text: str, where: str) -> InstepError:
    """An error of ClickHouse as an error of Instep."""
    found = _CODE.search(text)
    code = int(found[1]) if found else 0
    if code == _THROWN and FENCED in text:
        return Fenced(f"{where}: this work was taken over: a newer epoch or fence was seen")
    text = _TRAILER.sub("", text).strip()
    if code == _MEMORY:
        return Overflow(f"{where}: {text}")
    if code in _PASSING:
        return Transient(f"{where}: {text}")
    if not code:
        reason = _CAUSED.search(text)
        text = reason[1] if reason else text
        return Away(f"ClickHouse cannot be reached: {text}", where=where, hint="Is the server up, the address right?")
    if code in _NOT_THERE:
        what = f"there is no such table or index ({text})"
        return Absent(what, where=where, hint="Build an index with: instep run")
    if code == _FULL:
        text, hint = "no space left for the index", "Free some space, then run again."
    elif code in _REFUSED:
        text, hint = f"ClickHouse refuses: {text}", "Check user, password and grants of its address."
    else:
        text, hint = f"ClickHouse refused: {text}", None
    return UserError(text, where=where, hint=hint)


#: Of an index's tables in a folder, and where an address of a server names none.
DATABASE = "instep"
_PORTS = {"http": 8123, "https": 8443}


def is_server(uri: str) -> bool:
    return "://" in uri and not uri.startswith("file://")


@dataclass(frozen=True)
class ServerAddress:
    host: str
    port: int
    secure: bool
    database: str
    user: str
    password: str = field(repr=False)

    @classmethod
    def parse(cls, uri: str, *, database: str = DATABASE) -> ServerAddress:
        """`database` is where the address names none."""
        parts = urlsplit(uri)
        try:
            port = parts.port
        except ValueError:
            port = None if not parts.netloc else -1
        if parts.scheme not in _PORTS or not parts.hostname or port == -1 or parts.query:
            raise UserError(
                "the address of a ClickHouse server is not understood",
                where=f"{parts.scheme}://{parts.hostname or ''}",
                hint="Write http://user:password@host:8123/database (https for an encrypted connection).",
            )
        return cls(
            parts.hostname,
            port or _PORTS[parts.scheme],
            parts.scheme == "https",
            unquote(parts.path.strip("/")) or database,
            unquote(parts.username or "default"),
            unquote(parts.password or ""),
        )

    @property
    def shown(self) -> str:
        """The address without user and password."""
        return f"http{'s' if self.secure else ''}://{self.host}:{self.port}/{self.database}"

    def without_secrets(self, text: str) -> str:
        return without(text, self.password)


_MODES = ("read", "result", "timeout", "group_by", "sort", "distinct", "join", "set", "transfer")
_LEAVES = ("read", "timeout")

#: What every statement is to run under, whatever profile the user has.
WHOLE: Final[Mapping[str, str | int]] = {
    **{f"{each}_overflow_mode": "throw" for each in _MODES},
    **{f"{each}_overflow_mode_leaf": "throw" for each in _LEAVES},
    "skip_unavailable_shards": 0,
    "limit": 0,
    "offset": 0,
}

#: How structures become JSON, whatever the version and the profile: NaN and infinity would be null.
JSON: Final[Mapping[str, str | int]] = {
    "output_format_json_quote_denormals": 1,
    "output_format_json_quote_64bit_integers": 0,
}

_IN_PART = re.compile(
    r"(?<![a-z])(\w*?_overflow_mode(?:_leaf)?)\s*=\s*'?(?:break|any)\b|"
    r"(?<![a-z])(skip_unavailable_shards|partial_result_on_first_cancel)\s*=\s*'?(?:1|true)\b",
    re.IGNORECASE,
)


class Setting(Protocol):
    """A row of `system.settings`, as the client library has it: of this user."""

    @property
    def value(self) -> str: ...

    @property
    def readonly(self) -> bool | int: ...


def demanded(known: Mapping[str, Setting], where: str) -> dict[str, str | int]:
    """The settings of `WHOLE` and `JSON` that have to be sent to a server with these settings; also one that is not
    among them, since the profile may have cut off the answer that they came in. Raises `UserError` for one of `WHOLE`
    that is otherwise and that the user may not change.
    """
    found: dict[str, str | int] = {}
    for name, value in {**WHOLE, **JSON}.items():
        setting = known.get(name)
        if setting is None or not setting.readonly:
            found[name] = value
        elif name in WHOLE and setting.value not in _spelled(value):
            raise UserError(
                f"ClickHouse would return only a part of the rows: the user's profile has {name} = {setting.value}, "
                "and forbids to change it",
                where=where,
                hint=f"Give Instep a user whose profile has {name} = {value}, or lets it be changed.",
            )
    return found


def _spelled(value: str | int) -> set[str]:
    return {"0", "0.0", "false"} if value == 0 else {str(value)}


def in_part(text: str) -> str | None:
    """The setting in this SQL, or definition of a table, or address, under which an answer may lack rows."""
    found = _IN_PART.search(text)
    return next(filter(None, found.groups())) if found else None
