"""The ledger on MariaDB: under the contract, and what else it has to stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from instep.ledger.mysql import Mysql
from instep.ledger.port import Ledger
from tests.contracts.ledger import LedgerContract, VirtualClock
from tests.ledger.server_ledger import ServerLedger
from tests.servers.ledgers import LedgerDatabase


class TestMariadbLedger(LedgerContract):
    """Every handle has connections of its own to one database."""

    @pytest.fixture
    def ledgers(self, clock: VirtualClock, mariadb: LedgerDatabase) -> Iterator[Callable[[], Ledger]]:
        opened: list[Ledger] = []

        def another() -> Ledger:
            opened.append(mariadb.open(clock))
            return opened[-1]

        yield another
        for ledger in opened:
            ledger.close()


class TestMariadbServer(ServerLedger):
    make_guest = ("CREATE USER guest IDENTIFIED BY 'guest-s3cret'",)
    claims_alone = False
    be_impatient = "SET SESSION innodb_lock_wait_timeout = 0"

    @pytest.fixture
    def database(self, mariadb: LedgerDatabase) -> LedgerDatabase:
        return mariadb

    def impatient(self, database: LedgerDatabase) -> Mysql:
        return Mysql(database.address, answer_seconds=2)
