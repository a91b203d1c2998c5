"""Opens the ledger that a project's URL names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from instep.domain.clock import TIMING, Clock, Timing
from instep.errors import Transient, UserError
from instep.ledger.dialects.sqlite import SqliteDialect, explain, memory_engine, sqlite_engine
from instep.ledger.ledger import Ledger
from instep.ledger.schema import bring_up, older, refuse_newer, version_of
from instep.ledger.state_files import FolderFiles
from instep.ledger.tables import HEAD
from instep.servers.address import SERVER_SCHEMES, server_address

#: How long a writer waits for another one before the ledger says that it is locked.
BUSY_SECONDS: Final = 30.0
_IN_MEMORY: Final = "memory"

_EXAMPLE = "A ledger's URL looks like sqlite:///.instep/ledger.db or postgresql://user:password@host/database"


def open_ledger(
    url: str, *, clock: Clock, read_only: bool = False, timing: Timing = TIMING, state: str | None = None
) -> Ledger:
    """The ledger at `url`, its schema brought up to date. On a database server the clock is the server's, and the state
    files are at the URL `state`, if there is one; a SQLite ledger has them beside itself.

    `read_only` writes nothing: a ledger that does not exist yet is an empty one in memory.
    Raises `UserError` when it cannot be opened; the message never holds a password.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise UserError("the ledger's URL cannot be read", hint=_EXAMPLE)
    if scheme in SERVER_SCHEMES:
        return _open_server(url, clock, read_only, timing, state)
    if scheme not in ("sqlite", "sqlite+pysqlite"):
        raise UserError(f"ledgers in {scheme!r} are not supported", hint=_EXAMPLE)
    path, busy_seconds = _sqlite_path(rest)
    return _open_sqlite(path, clock, read_only, busy_seconds, timing)


def _open_server(url: str, clock: Clock, read_only: bool, timing: Timing, state: str | None) -> Ledger:
    try:
        address = server_address(url)
    except ValueError as error:
        raise UserError(f"the ledger's URL {error}") from error

    # What talks to servers is imported where one is.
    from instep.ledger.open_server import open_server

    return open_server(address, read_only=read_only, timing=timing, state=state) or _nothing(clock, timing)


def _sqlite_path(rest: str) -> tuple[Path, float]:
    """The file, taken literally (a folder may have `%20` or `?` in its name), and `?timeout=` seconds."""
    folder, slash, last = rest.rpartition("/")
    name, _, option = last.partition("?")
    path = f"{folder}{slash}{name}"[1:]
    if not rest.startswith("/") or not name or path == ":memory:" or path.startswith("file:"):
        raise UserError("a SQLite ledger needs the path of a file", hint=_EXAMPLE)
    seconds = re.fullmatch(r"timeout=([0-9]+(?:\.[0-9]+)?)", option)
    if option and not seconds:
        raise UserError(
            "the only option in a SQLite ledger's URL is ?timeout= (seconds to wait for a lock)", hint=_EXAMPLE
        )
    return Path(path), float(seconds[1]) if seconds else BUSY_SECONDS


def file_of(url: str) -> tuple[int, int] | None:
    """The file that a SQLite ledger is now: another one may come to its path. None on a server, and for no file."""
    scheme, _, rest = url.partition("://")
    if scheme in SERVER_SCHEMES:
        return None
    try:
        found = _sqlite_path(rest)[0].stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _nothing(clock: Clock, timing: Timing) -> Ledger:
    """An empty ledger in memory, in place of one that is not there yet."""
    engine = memory_engine()
    bring_up(engine, _IN_MEMORY)
    found = Ledger(engine, SqliteDialect(clock, _IN_MEMORY), timing)
    found.exists = False
    return found


def _open_sqlite(path: Path, clock: Clock, read_only: bool, busy_seconds: float, timing: Timing) -> Ledger:
    if read_only and _absent(path):
        return _nothing(clock, timing)

    if not read_only:
        _make_folder(path)
    engine = sqlite_engine(path, read_only=read_only, busy_seconds=busy_seconds)
    try:
        if not read_only:
            bring_up(engine, str(path))
        elif not _is_current(engine, str(path)):
            engine.dispose()
            return _nothing(clock, timing)
    except DBAPIError as error:
        engine.dispose()
        known = explain(error.orig, str(path))
        if isinstance(known, Transient):
            raise UserError(
                "the ledger is locked by another process",
                where=str(path),
                hint="Wait until the other command has finished, then try again.",
            ) from error
        if known is None:
            raise
        raise known from error
    except BaseException:
        engine.dispose()
        raise
    beside = FolderFiles(path.parent / f"{path.stem}-documents")
    return Ledger(engine, SqliteDialect(clock, str(path)), timing, beside)


def _absent(path: Path) -> bool:
    try:
        return not path.exists()
    except OSError as error:
        raise UserError(f"the ledger cannot be opened: {error.strerror}", where=str(path)) from error


def _make_folder(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"the ledger's folder cannot be made: {error.strerror}",
            where=str(path.parent),
            hint="Check the path in `ledger:` and that you may write there.",
        ) from error


def _is_current(engine: Engine, where: str) -> bool:
    """Whether there is a schema to read; False for a file that is still empty."""
    with engine.connect() as connection:
        version = version_of(connection, where)
    if version is None:
        return False
    refuse_newer(version, where)
    if version != HEAD:
        raise older(version, where)
    return True
