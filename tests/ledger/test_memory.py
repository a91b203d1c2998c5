"""The in-memory ledger under the contract."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from instep.ledger.memory import MemoryLedger
from instep.ledger.port import Ledger
from tests.contracts.ledger import LedgerContract, VirtualClock


class TestMemoryLedger(LedgerContract):
    @pytest.fixture
    def ledgers(self, clock: VirtualClock) -> Callable[[], Ledger]:
        ledger = MemoryLedger(clock)
        return lambda: ledger
