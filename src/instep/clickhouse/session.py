"""Sessions of ClickHouse, in this process or on a server; quoting, and errors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import IO, TYPE_CHECKING, Any, Protocol

from instep.errors import Away, Fenced, InstepError, Transient, UserError

if TYPE_CHECKING:
    import pyarrow as pa

#: Stands for the staged rows in the statement of `Session.load`.
STAGED = "<staged>"

#: What a statement that finds itself fenced says (by `throwIf`).
FENCED = "instep: superseded"

_CODE = re.compile(r"Code: (\d+)")
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
    """There is no such table, or no such database."""


class Session(Protocol):
    """Values travel as parameters (`{name:Type}` in the statement), never in the text."""

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
        """One block into a table whose name is quoted already."""

    def load(self, sql: str, structure: str, paths: Sequence[str], **parameters: Any) -> None:
        """Run an INSERT … SELECT from `STAGED`: files of Arrow streams that have this structure, one after another."""


def records(session: Session, sql: str, **parameters: Any) -> list[dict[str, Any]]:
    """A short answer, text as text."""
    return [
        {name: value.decode() if isinstance(value, bytes) else value for name, value in each.items()}
        for each in session.arrow(sql, **parameters).to_pylist()
    ]


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
    """What ClickHouse said, as an error of Instep."""
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
