"""The simulator's model of the ledger under the contract."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from instep.domain.instances import Instance
from instep.ledger.ledger import Ledger
from tests.contracts.ledger import LedgerContract, VirtualClock
from tests.simulator.model import ModelLedger


class _Intruder:
    """Implements `fixtures.Intruder`."""

    def __init__(self, ledger: Ledger) -> None:
        assert isinstance(ledger, ModelLedger)
        self._tables = ledger._tables

    def write(self, kind: str, version: int, body: str) -> None:
        self._tables.state.sequence += 1
        self._tables.log.append((self._tables.state.sequence, self._tables.now(), kind, version, body))

    def store(self, instance: Instance) -> None:
        self._tables.state.instances[instance.uuid] = instance

    def forget(self, instance: str) -> None:
        del self._tables.state.instances[instance]


class TestModelLedger(LedgerContract):
    @pytest.fixture
    def ledgers(self, clock: VirtualClock) -> Callable[[], Ledger]:
        ledger = ModelLedger(clock)
        return lambda: ledger

    @pytest.fixture
    def intruder(self, ledger: Ledger) -> _Intruder:
        return _Intruder(ledger)
