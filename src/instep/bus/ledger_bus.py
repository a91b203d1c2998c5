"""The bus in the ledger's database: status keys beside everything else, and no messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from instep.bus.bus import StatusEntry, entry_of
from instep.domain import status
from instep.domain.refs import Scope
from instep.ledger.ledger import Ledger


class LedgerBus:
    """Implements `bus.Bus`."""

    def __init__(self, ledger: Ledger) -> None:
        self.status = LedgerStatusKeys(ledger)

    def close(self) -> None:
        """The ledger is its owner's to close."""

    def stop_waiting(self) -> None:
        """It waits for nothing but the ledger."""

    def inbox(self) -> None:
        """No other program publishes here."""

    def purge(self, namespace: Scope) -> None:
        """There are no messages."""


class LedgerStatusKeys:
    """Implements `bus.StatusKeys`."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def put(self, key: str, value: Mapping[str, Any], *, revision: int | None = None) -> int:
        status.demand_key(key)
        text = status.encode(value)
        return self._ledger.status_keys.put(key, text, revision=revision)

    def get(self, key: str) -> StatusEntry | None:
        status.demand_key(key)
        row = self._ledger.status_keys.get(key)
        return None if row is None else entry_of(*row)

    def delete(self, key: str, *, revision: int | None = None) -> None:
        status.demand_key(key)
        self._ledger.status_keys.put(key, None, revision=revision)

    def under(self, prefix: str) -> list[StatusEntry]:
        status.demand_prefix(prefix)
        return [entry_of(*row) for row in self._ledger.status_keys.under(prefix)]
