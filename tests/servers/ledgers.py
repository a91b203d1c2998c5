"""Ledgers in one database of a real server: brought up once, emptied for every test."""

from __future__ import annotations

import functools

from sqlalchemy import Engine, text

from instep.domain.clock import TIMING, Clock, Timing
from instep.ledger.dialects.server import Server as LedgerServer
from instep.ledger.ledger import Ledger
from instep.ledger.open_server import open_server, server_at
from instep.ledger.schema import begin
from instep.ledger.tables import metadata
from instep.servers.address import ServerAddress, server_address
from tests.servers.mariadb import running_mariadb
from tests.servers.mysql import running_mysql
from tests.servers.postgres import running_postgres
from tests.servers.process import Server


class _Kept:
    """A server with one engine, which outlives the ledgers that use it one after the other, with its connections."""

    def __init__(self, server: LedgerServer) -> None:
        self._engine = server.engine(read_only=False)
        self._engine.dispose = self._stay  # type: ignore[method-assign]  # what a ledger that is closed calls
        self.dialect = server.dialect
        self.demand_suitable = server.demand_suitable
        self.lock = server.lock
        self.clear_torn_schema = server.clear_torn_schema

    def engine(self, *, read_only: bool) -> Engine:
        assert not read_only
        return self._engine

    def _stay(self, close: bool = True) -> None:
        """Nothing is closed: connecting costs more than most tests do."""


class LedgerDatabase:
    """May be used in every test of a process; they must close the ledgers that they open."""

    def __init__(self, server: Server, name: str = "ledger") -> None:
        self.server = server
        self.name = name
        self._kept: list[_Kept] = []
        self._opened = 0
        server.execute(f"CREATE DATABASE {name}")
        self.open().close()
        self.engine = server_at(self.address).engine(read_only=False)

    @property
    def url(self) -> str:
        return self.server.url(self.name)

    @property
    def address(self) -> ServerAddress:
        return server_address(self.url)

    def open(
        self, clock: Clock | None = None, *, timing: Timing = TIMING, server: LedgerServer | None = None
    ) -> Ledger:
        """With the server's clock, unless another one is given."""
        ledger = open_server(self.address, clock=clock, timing=timing, server=server or self._next())
        assert ledger is not None
        return ledger

    def _next(self) -> LedgerServer:
        """Connections of its own for every ledger that a test opens, but not statements compiled anew for each."""
        if self._opened == len(self._kept):
            self._kept.append(_Kept(server_at(self.address)))
        self._opened += 1
        return self._kept[self._opened - 1]

    def empty(self) -> None:
        """For the next test; the ledgers of the one before are closed."""
        self._opened = 0
        with self.engine.begin() as connection:
            for table in reversed(metadata.sorted_tables):
                connection.execute(table.delete())
            begin(connection)

    def execute(self, statement: str) -> list[tuple[object, ...]]:
        """One statement, in a transaction of its own."""
        with self.engine.begin() as connection:
            done = connection.execute(text(statement))
            return [tuple(row) for row in done] if done.returns_rows else []


@functools.cache
def postgres_ledger() -> LedgerDatabase:
    """The one of this process."""
    return LedgerDatabase(running_postgres())


@functools.cache
def mariadb_ledger() -> LedgerDatabase:
    """The one of this process; skips the test where there is no MariaDB."""
    return LedgerDatabase(running_mariadb())


@functools.cache
def mysql_ledger() -> LedgerDatabase:
    """The one of this process; skips the test where nothing was said of MySQL."""
    return LedgerDatabase(running_mysql())
