"""Connections that wait for their next use: making one takes longer than most of what is asked of it."""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeAlias

import psycopg
from psycopg.pq import TransactionStatus

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]

#: So many of an address wait, so long at most: a server has few. It ends those that are silent for longer.
_WAITING: Final = 2
_SECONDS: Final = 30.0

_waiting: dict[tuple[str, int], list[tuple[float, Connection]]] = {}
_lock: Final = threading.Lock()


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
        if time.monotonic() - since < _SECONDS and not _has_word(connection):
            return connection
        connection.close()


def _put_back(key: tuple[str, int], connection: Connection) -> None:
    with _lock:
        waiting = _waiting.setdefault(key, [])
        if connection.info.transaction_status == TransactionStatus.IDLE and len(waiting) < _WAITING:
            waiting.append((time.monotonic(), connection))
            return
    connection.close()


def _has_word(connection: Connection) -> bool:
    """Whether a message came while the connection was idle: that the server went down, or the end of the connection."""
    sockets = select.poll()
    sockets.register(connection.pgconn.socket, select.POLLIN)
    return bool(sockets.poll(0))


@atexit.register
def close_all() -> None:
    """Of this process."""
    with _lock:
        for key in [key for key in _waiting if key[1] == os.getpid()]:
            for _, connection in _waiting.pop(key):
                connection.close()
