"""The ledger on PostgreSQL: under the contract, and what else it has to stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from instep.ledger.port import Ledger
from instep.ledger.postgres import Postgres
from tests.contracts.ledger import LedgerContract, VirtualClock
from tests.ledger.server_ledger import ServerLedger
from tests.servers.ledgers import LedgerDatabase


class TestPostgresLedger(LedgerContract):
    """Every handle has connections of its own to one database."""

    @pytest.fixture
    def ledgers(self, clock: VirtualClock, postgres: LedgerDatabase) -> Iterator[Callable[[], Ledger]]:
        opened: list[Ledger] = []

        def another() -> Ledger:
            opened.append(postgres.open(clock))
            return opened[-1]

        yield another
        for ledger in opened:
            ledger.close()


class TestPostgresServer(ServerLedger):
    make_guest = ("CREATE ROLE guest LOGIN PASSWORD 'guest-s3cret'",)
    claims_alone = True
    be_impatient = "SET LOCAL lock_timeout = '10ms'"

    @pytest.fixture
    def database(self, postgres: LedgerDatabase) -> LedgerDatabase:
        return postgres

    def impatient(self, database: LedgerDatabase) -> Postgres:
        return Postgres(database.address, answer_seconds=2)
