"""The ledger in memory: the same behaviour, for simulations and for a `plan` before anything exists."""

from instep.ledger.memory.ledger import MemoryLedger

__all__ = ["MemoryLedger"]
