"""A model of the ledger: the same behaviour without a database, for simulations (docs/adr/0018 says why)."""

from tests.simulator.model.ledger import ModelLedger

__all__ = ["ModelLedger"]
