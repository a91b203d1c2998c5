"""The ledger on PostgreSQL under the contract: every handle has connections of its own to one database."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from instep.ledger.port import Ledger
from tests.contracts.ledger import LedgerContract, VirtualClock
from tests.servers.ledgers import LedgerDatabase


class TestPostgresLedger(LedgerContract):
    @pytest.fixture
    def ledgers(self, clock: VirtualClock, postgres: LedgerDatabase) -> Iterator[Callable[[], Ledger]]:
        opened: list[Ledger] = []

        def another() -> Ledger:
            opened.append(postgres.open(clock))
            return opened[-1]

        yield another
        for ledger in opened:
            ledger.close()
