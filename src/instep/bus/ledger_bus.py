"""The bus in the ledger's database: requests and status keys beside everything else, by the ledger's own clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from instep.bus.bus import StatusEntry
from instep.bus.slot_bus import Change, entry_of
from instep.domain import status_keys
from instep.domain.refs import PartitionRef, Scope
from instep.domain.request_rules import Policy, Slot
from instep.domain.requests import Kind, Request
from instep.ledger import request_rows
from instep.ledger import status_keys as status_rows
from instep.ledger.sql_ledger import SqlLedger


class LedgerStore:
    """Implements `stored.Store`. May be shared by threads."""

    def __init__(self, ledger: SqlLedger) -> None:
        self._ledger = ledger
        self.status = LedgerStatusKeys(ledger)

    def close(self) -> None:
        """The ledger is its owner's to close."""

    def publish(self, requests: Sequence[Request], trace: str) -> None:
        self._ledger.change(lambda tx: request_rows.publish(tx, requests, trace))

    def forget(self, namespace: Scope) -> list[PartitionRef]:
        return self._ledger.change(lambda tx: request_rows.forget(tx, namespace))

    def register(self, name: str, kind: Kind, policy: Policy) -> None:
        self._ledger.change(lambda tx: request_rows.register(tx, name, kind, policy))

    def take(self, name: str, policy: Policy) -> tuple[PartitionRef, Slot] | None:
        # Who finds nothing, as most do, keeps nobody from writing.
        if not self._ledger.look(lambda tx: request_rows.anything_due(tx, name, policy)):
            return None
        return self._ledger.change(lambda tx: request_rows.take(tx, name, policy))

    def change(self, ref: PartitionRef, change: Change) -> Slot:
        return self._ledger.change(lambda tx: request_rows.change(tx, ref, change))

    def reconcile(self) -> list[tuple[PartitionRef, Slot]]:
        return self._ledger.change(request_rows.reconcile)

    def buried(self, name: str | None) -> list[tuple[PartitionRef, Slot]]:
        return self._ledger.look(lambda tx: request_rows.buried(tx, name))


class LedgerStatusKeys:
    """Implements `port.StatusKeys`."""

    def __init__(self, ledger: SqlLedger) -> None:
        self._ledger = ledger

    def put(self, key: str, value: Mapping[str, Any], *, revision: int | None = None) -> int:
        status_keys.demand_key(key)
        text = status_keys.encode(value)
        return self._ledger.change(lambda tx: status_rows.put(tx, key, text, revision))

    def get(self, key: str) -> StatusEntry | None:
        status_keys.demand_key(key)
        row = self._ledger.look(lambda tx: status_rows.get(tx, key))
        return None if row is None else entry_of(*row)

    def delete(self, key: str, *, revision: int | None = None) -> None:
        status_keys.demand_key(key)
        self._ledger.change(lambda tx: status_rows.put(tx, key, None, revision))

    def under(self, prefix: str) -> list[StatusEntry]:
        status_keys.demand_prefix(prefix)
        rows = self._ledger.look(lambda tx: status_rows.under(tx, prefix))
        return [entry_of(*row) for row in rows]
