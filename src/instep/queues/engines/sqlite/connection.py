"""A connection to the file, transactions, and what errors mean."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from instep.errors import Transient, UserError

#: So long a writer waits for the one before it.
_SECONDS: Final = 30.0

_PASSING: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


@contextlib.contextmanager
def connected(path: Path) -> Iterator[sqlite3.Connection]:
    """Each statement is a transaction, outside `transaction`. Nothing is made where there is nothing."""
    if not path.is_file():
        raise UserError("there is no such database", where=str(path), hint="The queue is in that of its tables.")
    with understood(path):
        connection = sqlite3.connect(path, timeout=_SECONDS, isolation_level=None)
        try:
            yield connection
        finally:
            connection.close()


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection, *, writes: bool) -> Iterator[None]:
    """One moment for what is read; what is written is there as a whole or not at all."""
    connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
    try:
        yield
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


@contextlib.contextmanager
def understood(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        code: Any = getattr(error, "sqlite_errorcode", 0)
        if code & 0xFF in _PASSING:
            raise Transient(f"{path}: {error}") from None
        raise UserError(f"SQLite refused: {error}", where=str(path)) from None
