"""The bus in the ledger's database: requests and status keys beside everything else, by the ledger's own clock."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from instep.bus.bus import DeadLetter, Delivery, StatusEntry
from instep.bus.slot_bus import delivery_of, demand_name, entry_of, is_buried, letters, newest
from instep.domain import request_rules, status
from instep.domain.clock import TIMING, Clock, Timing
from instep.domain.refs import PartitionRef, Scope
from instep.domain.request_rules import Policy, Slot
from instep.domain.requests import Kind, Request
from instep.ledger import request_rows
from instep.ledger import status_keys as status_rows
from instep.ledger.ledger import Ledger
from instep.telemetry.context import here

#: The slot after a change, which is given the slot before it and the time.
Change = Callable[[Slot, int], Slot]


class LedgerBus:
    """Implements `bus.Bus`. May be shared by threads."""

    def __init__(self, ledger: Ledger, clock: Clock, timing: Timing = TIMING) -> None:
        self._ledger = ledger
        self._clock = clock
        self._poll = timing.poll / 1_000
        self.status = LedgerStatusKeys(ledger)

    def close(self) -> None:
        """The ledger is its owner's to close."""

    def publish(self, *requests: Request) -> None:
        if requests:
            trace = here().traceparent
            self._ledger.database.write(lambda tx: request_rows.publish(tx, newest(requests), trace))

    def forget(self, namespace: Scope) -> list[PartitionRef]:
        return self._ledger.database.write(lambda tx: request_rows.forget(tx, namespace))

    def consumer(self, name: str, kind: Kind, policy: Policy) -> LedgerConsumer:
        demand_name(name)
        self._ledger.database.write(lambda tx: request_rows.register(tx, name, kind, policy))
        return LedgerConsumer(name, policy, self._ledger, self._clock, self._poll)

    def inbox(self) -> None:
        """No other program publishes here."""

    def reconcile(self) -> list[DeadLetter]:
        return letters(self._ledger.database.write(request_rows.reconcile))

    def dead_letters(self, name: str | None = None) -> list[DeadLetter]:
        return letters(self._ledger.database.read(lambda tx: request_rows.buried(tx, name)))

    def requeue(self, name: str, scope: Scope) -> None:
        trace = here().traceparent
        _change(self._ledger, PartitionRef(name, scope), lambda slot, now: request_rules.requeue(slot, now, trace))

    def drop(self, name: str, scope: Scope) -> None:
        _change(self._ledger, PartitionRef(name, scope), lambda slot, _: request_rules.drop(slot))


@dataclass(frozen=True, slots=True)
class LedgerConsumer:
    """Implements `bus.Consumer`."""

    name: str
    policy: Policy
    ledger: Ledger
    clock: Clock
    poll: float

    def next(self, timeout: float = 0.0) -> Delivery | None:
        deadline = self.clock.monotonic() + timeout
        while True:
            taken = self._take()
            if taken is not None:
                return delivery_of(*taken)
            left = deadline - self.clock.monotonic()
            if left <= 0:
                return None
            self.clock.sleep(min(left, self.poll))

    def _take(self) -> tuple[PartitionRef, Slot] | None:
        # A poll that finds nothing, as most do, takes no write lock.
        if not self.ledger.database.read(lambda tx: request_rows.anything_due(tx, self.name, self.policy)):
            return None
        return self.ledger.database.write(lambda tx: request_rows.take(tx, self.name, self.policy))

    def ack(self, delivery: Delivery) -> None:
        fence, watermark = delivery.fence, delivery.request.watermark
        _change(self.ledger, delivery.ref, lambda slot, now: request_rules.acknowledge(slot, fence, watermark, now))

    def retry(self, delivery: Delivery, reason: str, *, delay: int | None = None) -> bool:
        pause = self.policy.pause(delivery.attempt) if delay is None else delay
        after = _change(
            self.ledger, delivery.ref, lambda slot, now: request_rules.retry(slot, delivery.fence, pause, reason, now)
        )
        return not is_buried(after, delivery)

    def postpone(self, delivery: Delivery, *, delay: int = 0) -> None:
        _change(self.ledger, delivery.ref, lambda slot, now: request_rules.postpone(slot, delivery.fence, delay, now))

    def dead(self, delivery: Delivery, reason: str) -> None:
        fence, watermark = delivery.fence, delivery.request.watermark
        _change(self.ledger, delivery.ref, lambda slot, now: request_rules.bury(slot, fence, watermark, reason, now))

    def extend(self, delivery: Delivery) -> None:
        _change(
            self.ledger, delivery.ref, lambda slot, now: request_rules.extend(slot, delivery.fence, self.policy, now)
        )


def _change(ledger: Ledger, ref: PartitionRef, change: Change) -> Slot:
    return ledger.database.write(lambda tx: request_rows.change(tx, ref, change))


class LedgerStatusKeys:
    """Implements `port.StatusKeys`."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def put(self, key: str, value: Mapping[str, Any], *, revision: int | None = None) -> int:
        status.demand_key(key)
        text = status.encode(value)
        return self._ledger.database.write(lambda tx: status_rows.put(tx, key, text, revision))

    def get(self, key: str) -> StatusEntry | None:
        status.demand_key(key)
        row = self._ledger.database.read(lambda tx: status_rows.get(tx, key))
        return None if row is None else entry_of(*row)

    def delete(self, key: str, *, revision: int | None = None) -> None:
        status.demand_key(key)
        self._ledger.database.write(lambda tx: status_rows.put(tx, key, None, revision))

    def under(self, prefix: str) -> list[StatusEntry]:
        status.demand_prefix(prefix)
        rows = self._ledger.database.read(lambda tx: status_rows.under(tx, prefix))
        return [entry_of(*row) for row in rows]
