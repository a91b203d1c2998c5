"""The simulator's model of the ledger under the contract."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from instep.domain.instances import Instance
from instep.ledger.key_lease_rows import KeyLeaseRows
from instep.ledger.ledger import Ledger
from instep.ledger.transaction import Store
from tests.contracts.ledger import LedgerContract, VirtualClock
from tests.doubles.ledger import MemoryLedger
from tests.simulator.model import ModelLedger
from tests.simulator.model.holds import MemoryHolds


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


@pytest.mark.proof
class TestModelLedger(LedgerContract):
    @pytest.fixture
    def ledgers(self, clock: VirtualClock) -> Callable[[], Ledger]:
        ledger = ModelLedger(clock)
        return lambda: ledger

    @pytest.fixture
    def intruder(self, ledger: Ledger) -> _Intruder:
        return _Intruder(ledger)


def _methods(owner: type) -> set[str]:
    return {name for name, each in vars(owner).items() if callable(each) and not name.startswith("_")}


def test_every_method_is_the_models_own() -> None:
    """mypy compares the signatures. What the model lacks would be the product's, which has no database here."""
    real, model = vars(MemoryLedger(VirtualClock())), vars(ModelLedger(VirtualClock()))
    pairs: dict[str, tuple[type, type]] = {
        name: (type(each), type(model[name])) for name, each in real.items() if isinstance(each, Store)
    }
    # Its rules are the product's, over rows of the model's own.
    pairs["key_leases"] = (KeyLeaseRows, MemoryHolds)
    pairs["ledger"] = (Ledger, ModelLedger)
    # Without a folder for files the product's ask no database.
    del pairs["plans"]
    assert [name for name, (product, own) in pairs.items() if _methods(product) - _methods(own)] == []
