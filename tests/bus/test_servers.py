from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import Engine

from instep.ledger.ledger import Ledger
from instep.ledger.open_server import server_at
from tests.bus.ledgers import LedgerBusContract
from tests.doubles.clock import VirtualClock
from tests.servers.ledgers import LedgerDatabase, mariadb_ledger, mysql_ledger, postgres_ledger
from tests.servers.mysql import PROGRAM


class ServerBusContract(LedgerBusContract):
    @pytest.fixture
    def database(self) -> LedgerDatabase:
        raise NotImplementedError

    @pytest.fixture
    def open_another(self, clock: VirtualClock, database: LedgerDatabase) -> Callable[[], Ledger]:
        return lambda: database.open(clock)

    @pytest.fixture
    def engine(self, database: LedgerDatabase) -> Iterator[Engine]:
        engine = server_at(database.address).engine(read_only=False)
        yield engine
        engine.dispose()


class TestPostgresBus(ServerBusContract):
    @pytest.fixture
    def database(self) -> LedgerDatabase:
        return _emptied(postgres_ledger())


class TestMariadbBus(ServerBusContract):
    @pytest.fixture
    def database(self) -> LedgerDatabase:
        return _emptied(mariadb_ledger())


if PROGRAM in os.environ:

    class TestMysqlBus(ServerBusContract):
        """Where there is a MySQL: see `tests.servers.mysql`."""

        @pytest.fixture
        def database(self) -> LedgerDatabase:
            return _emptied(mysql_ledger())


def _emptied(database: LedgerDatabase) -> LedgerDatabase:
    database.empty()
    return database
