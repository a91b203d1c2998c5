"""Connections to the server, transactions, and what errors mean. Everything else here speaks through a `Session`."""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import threading
import time
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from typing import Any, Final, LiteralString, Protocol, TypeAlias
from weakref import WeakKeyDictionary

import psycopg
from psycopg import sql
from psycopg.adapt import Dumper
from psycopg.pq import Format, TransactionStatus

from instep.errors import InstepError, Transient, Unknown, UserError
from instep.servers.address import ServerAddress
from instep.servers.errors import Trouble, postgres_reason, postgres_trouble

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

#: So many of an address wait, so long at most: a server has few. It ends those that are silent for longer.
_WAITING: Final = 4
_SECONDS: Final = 30.0

_waiting: dict[tuple[str, int], list[tuple[float, Connection]]] = {}
_lock: Final = threading.Lock()

#: See `Session.memory`.
_memories: Final[WeakKeyDictionary[Connection, dict[Hashable, Any]]] = WeakKeyDictionary()


@contextlib.contextmanager
def borrowed(address: str, connect: Callable[[], Connection]) -> Iterator[Connection]:
    """A connection for one user at a time, which no fork has inherited."""
    key = address, os.getpid()
    connection = _taken(key) or connect()
    try:
        yield connection
    except BaseException:
        # Whatever state it is in now.
        connection.close()
        raise
    _put_back(key, connection)


def _taken(key: tuple[str, int]) -> Connection | None:
    while True:
        with _lock:
            waiting = _waiting.get(key)
            if not waiting:
                return None
            since, connection = waiting.pop()
        if time.monotonic() - since < _SECONDS and not _has_pending_message(connection):
            return connection
        connection.close()


def _put_back(key: tuple[str, int], connection: Connection) -> None:
    with _lock:
        waiting = _waiting.setdefault(key, [])
        if connection.info.transaction_status == TransactionStatus.IDLE and len(waiting) < _WAITING:
            waiting.append((time.monotonic(), connection))
            return
    connection.close()


def _has_pending_message(connection: Connection) -> bool:
    """Whether a message came while the connection was idle: that the server went down, or the end of the connection."""
    sockets = select.poll()
    sockets.register(connection.pgconn.socket, select.POLLIN)
    return bool(sockets.poll(0))


@atexit.register
def close_all() -> None:
    """Close all connections of this process."""
    with _lock:
        for key in [key for key in _waiting if key[1] == os.getpid()]:
            for _, connection in _waiting.pop(key):
                connection.close()


#: Older ones are not maintained any more, and give moments as floating-point numbers.
_VERSION: Final = 140_000

#: libpq knows what a lost host looks like: nothing of what was sent arrives.
_CONNECT: Final[dict[str, Any]] = {
    "connect_timeout": 10,
    "application_name": "instep",
    "client_encoding": "utf8",
    "keepalives_idle": 30,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}

#: By statement: connection poolers between us and the server refuse most start-up options.
_SESSION: Final = {
    "client_min_messages": "warning",
    # A backslash in a statement is one.
    "standard_conforming_strings": "on",
    # Moments without a zone mean the same wherever the server is.
    "TimeZone": "UTC",
    "lock_timeout": "30s",
    # A wave is as large as it is, and so is the statement that writes it.
    "statement_timeout": "0",
    # A process that hangs in mid-transaction must not keep others waiting for what it locked.
    "idle_in_transaction_session_timeout": "60s",
    # Connections that wait for their next use, for longer than `pool` would use them again.
    "idle_session_timeout": "60s",
    # It is paid for before the first row, and there is nothing to compile in what is sent from here.
    "jit": "off",
}


class Missing(UserError):
    """A table or schema that is not there."""


class Name(sql.Identifier):
    """A quoted name in a statement that has parameters: there a % is doubled."""

    def as_bytes(self, context: Any = None) -> bytes:
        return super().as_bytes(context).replace(b"%", b"%%")


def names(each: Iterator[str] | list[str] | tuple[str, ...]) -> sql.Composed:
    """Several of them, with commas between."""
    return sql.SQL(", ").join(Name(name) for name in each)


class Binary(bytes):
    """A value in the binary form of its type, which the statement tells."""


class _BinaryDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Binary) -> bytes:
        return obj


class Place(Protocol):
    """A schema of a database: a `Location`, which imports this module only to connect."""

    @property
    def uri(self) -> str: ...
    @property
    def schema(self) -> str: ...
    @property
    def shown(self) -> str: ...
    @property
    def address(self) -> ServerAddress: ...


@contextlib.contextmanager
def opened(place: Place) -> Iterator[Session]:
    """See `Location.session`."""
    with borrowed(place.uri, partial(_connect, place)) as connection:
        yield Session(connection, place)


def _connect(place: Place) -> Connection:
    address = place.address
    ours: dict[str, Any] = {
        "host": address.host or None,
        "port": address.port,
        "user": address.user,
        "password": address.password,
        "dbname": address.database,
    }
    settings = ", ".join(["set_config(%s, %s, false)"] * len(_SESSION))
    with contextlib.ExitStack() as stack:
        try:
            connection = psycopg.connect(
                "", autocommit=True, prepare_threshold=None, **(_CONNECT | ours | dict(address.options))
            )
            stack.callback(connection.close)
            if connection.info.server_version < _VERSION:
                raise UserError(
                    f"PostgreSQL {connection.info.server_version // 10_000} is too old",
                    where=place.shown,
                    hint=f"Use {_VERSION // 10_000} or newer.",
                )
            connection.adapters.register_dumper(Binary, _BinaryDumper)
            connection.execute(f"SELECT {settings}", [part for pair in _SESSION.items() for part in pair])
        except psycopg.Error as error:
            raise explained(error, place.shown) from None
        stack.pop_all()
        return connection


class Session:
    """Values travel as parameters, never in the text; names are quoted. Without `transaction` each statement is one."""

    def __init__(self, connection: Connection, place: Place) -> None:
        self._connection = connection
        self.place = place

    def name(self, table: str) -> Name:
        """A table or view in the schema."""
        return Name(self.place.schema, table)

    def run(self, statement: LiteralString, *values: Any, **parts: sql.Composable) -> list[tuple[Any, ...]]:
        """Rows of its answer, if it has one; `parts` are what stands in braces."""
        with self._understood():
            # In binary: floating-point numbers as they are, and bytes half as long.
            cursor = self._connection.cursor(binary=True)
            cursor.execute(sql.SQL(statement).format(**parts), values)
            return cursor.fetchall() if cursor.description else []

    def ask(self, statement: str) -> list[tuple[Any, ...]]:
        """A whole statement that needs no parameters: neither % nor braces mean anything in it."""
        with self._understood():
            cursor = self._connection.cursor(binary=True)
            cursor.execute(sql.SQL(statement))
            return cursor.fetchall() if cursor.description else []

    @property
    def memory(self) -> dict[Hashable, Any]:
        """Notes about this connection, for its next user."""
        return _memories.setdefault(self._connection, {})

    def setting(self, name: str, value: str) -> None:
        """Have a setting on this connection from now on. Not for the middle of a transaction, whose end may undo it."""
        if self.memory.get(("setting", name)) != value:
            self.run("SELECT set_config(%s, %s, false)", name, value)
            self.memory["setting", name] = value

    def load(self, statement: LiteralString, pieces: list[bytes], **parts: sql.Composable) -> None:
        """COPY … FROM STDIN."""
        text = sql.SQL(statement).format(**parts).as_bytes(self._connection)
        with self._understood(), self._connection.cursor().copy(text.replace(b"%%", b"%")) as copy:
            for each in pieces:
                copy.write(each)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction: all of it happens or nothing. Raises `Unknown` if the answer to COMMIT is lost."""
        self.run("BEGIN ISOLATION LEVEL READ COMMITTED")
        try:
            yield
        except BaseException:
            with contextlib.suppress(psycopg.Error):
                self._connection.execute("ROLLBACK")
            raise
        with self._understood(committing=True):
            self._commit()

    def _commit(self) -> None:
        self._connection.execute("COMMIT")

    @contextlib.contextmanager
    def _understood(self, *, committing: bool = False) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            # Without the driver's own error, which may repeat values of rows.
            raise explained(error, self.place.shown, committing=committing) from None


def explained(error: psycopg.Error, where: str, *, committing: bool = False) -> InstepError:
    """An error of the server or its driver as an error of Instep."""
    reason = postgres_reason(str(error))
    trouble = postgres_trouble(error.sqlstate, str(error), operational=isinstance(error, psycopg.OperationalError))
    match trouble:
        case Trouble.LOST if committing:
            return Unknown(f"{where}: the connection was lost before the server said whether it had committed")
        case Trouble.LOST:
            return Transient(f"{where}: the connection was lost ({reason})")
        case Trouble.ABSENT:
            return Transient(f"{where}: PostgreSQL cannot be reached ({reason})")
        case Trouble.COLLISION | Trouble.BUSY:
            return Transient(f"{where}: {reason}")
        case None:
            return _refused(error.sqlstate, reason, where)
    what, hint = _MENDABLE[trouble]
    return UserError(what.format(reason=reason), where=where, hint=hint)


def _refused(sqlstate: str | None, reason: str, where: str) -> UserError:
    if sqlstate in ("42P01", "3F000"):
        return Missing(f"there is no such table or schema ({reason})", where=where, hint="Build it with: instep run")
    if sqlstate == "2BP01":
        return UserError(
            f"it is in use: {reason}", where=where, hint="Drop the views that were made of it, then run again."
        )
    return UserError(f"PostgreSQL refused: {reason}", where=where)


_MENDABLE: Final = {
    Trouble.LOGIN: ("PostgreSQL refused the user or the password", "Check user and password of its address."),
    Trouble.NO_DATABASE: ("there is no such database", "Create it first: CREATE DATABASE … ENCODING 'UTF8'"),
    Trouble.RIGHTS: (
        "its user may not do this ({reason})",
        "Give it the right to create tables: GRANT USAGE, CREATE ON SCHEMA … TO …",
    ),
    Trouble.FULL: ("the disk of the server is full ({reason})", "Free some space there, then run again."),
    Trouble.OPTION: ("an option of its address is not usable ({reason})", None),
}
