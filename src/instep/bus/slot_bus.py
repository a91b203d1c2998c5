"""A bus over a store of slots that can be changed one at a time, in the ledger's database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from instep.bus.bus import DeadLetter, Delivery, StatusEntry, StatusKeys
from instep.domain import request_rules, status_keys
from instep.domain.clock import Clock
from instep.domain.refs import PartitionRef, Scope, is_entity_name
from instep.domain.request_rules import Policy, Slot
from instep.domain.requests import Kind, Request, request_of
from instep.domain.timing import TIMING, Timing
from instep.errors import Conflict
from instep.telemetry.context import here

#: The slot after a change, which is given the slot before it and the time.
Change = Callable[[Slot, int], Slot]


class Store(Protocol):
    """Every method is atomic."""

    @property
    def status(self) -> StatusKeys: ...

    def close(self) -> None: ...

    def publish(self, requests: Sequence[Request], trace: str) -> None:
        """In the slots of all consumers of their kinds."""

    def forget(self, namespace: Scope) -> list[PartitionRef]:
        """See `port.Bus.forget`."""

    def register(self, name: str, kind: Kind, policy: Policy) -> None:
        """From now on the consumer has slots; for all scopes that were asked for before, too. Slots of another kind
        are gone.
        """

    def take(self, name: str, policy: Policy) -> tuple[PartitionRef, Slot] | None:
        """What `deliveries.take` makes of the slot that has been due for longest, while the group has room."""

    def change(self, ref: PartitionRef, change: Change) -> Slot:
        """Raises `Conflict` when there is no such slot, and what `change` raises."""

    def reconcile(self) -> list[tuple[PartitionRef, Slot]]:
        """The slots that `deliveries.reconcile` changed."""

    def buried(self, name: str | None) -> list[tuple[PartitionRef, Slot]]: ...


class StoredBus:
    """Implements `port.Bus`."""

    def __init__(self, store: Store, clock: Clock, timing: Timing = TIMING) -> None:
        self._store = store
        self._clock = clock
        self._poll = timing.poll / 1_000

    @property
    def status(self) -> StatusKeys:
        return self._store.status

    def close(self) -> None:
        self._store.close()

    def publish(self, *requests: Request) -> None:
        if requests:
            self._store.publish(newest(requests), here().traceparent)

    def forget(self, namespace: Scope) -> list[PartitionRef]:
        return self._store.forget(namespace)

    def consumer(self, name: str, kind: Kind, policy: Policy) -> StoredConsumer:
        demand_name(name)
        self._store.register(name, kind, policy)
        return StoredConsumer(name, policy, self._store, self._clock, self._poll)

    def reconcile(self) -> list[DeadLetter]:
        return letters(self._store.reconcile())

    def dead_letters(self, name: str | None = None) -> list[DeadLetter]:
        return letters(self._store.buried(name))

    def requeue(self, name: str, scope: Scope) -> None:
        trace = here().traceparent
        self._store.change(PartitionRef(name, scope), lambda slot, now: request_rules.requeue(slot, now, trace))

    def drop(self, name: str, scope: Scope) -> None:
        self._store.change(PartitionRef(name, scope), lambda slot, _: request_rules.drop(slot))


@dataclass(frozen=True, slots=True)
class StoredConsumer:
    """Implements `port.Consumer`."""

    name: str
    policy: Policy
    store: Store
    clock: Clock
    poll: float

    def next(self, timeout: float = 0.0) -> Delivery | None:
        deadline = self.clock.monotonic() + timeout
        while True:
            taken = self.store.take(self.name, self.policy)
            if taken is not None:
                return delivery_of(*taken)
            left = deadline - self.clock.monotonic()
            if left <= 0:
                return None
            self.clock.sleep(min(left, self.poll))

    def ack(self, delivery: Delivery) -> None:
        fence, watermark = delivery.fence, delivery.request.watermark
        self.store.change(delivery.ref, lambda slot, now: request_rules.acknowledge(slot, fence, watermark, now))

    def retry(self, delivery: Delivery, reason: str, *, delay: int | None = None) -> bool:
        pause = self.policy.pause(delivery.attempt) if delay is None else delay
        after = self.store.change(
            delivery.ref, lambda slot, now: request_rules.retry(slot, delivery.fence, pause, reason, now)
        )
        return not is_buried(after, delivery)

    def postpone(self, delivery: Delivery, *, delay: int = 0) -> None:
        self.store.change(delivery.ref, lambda slot, now: request_rules.postpone(slot, delivery.fence, delay, now))

    def dead(self, delivery: Delivery, reason: str) -> None:
        fence, watermark = delivery.fence, delivery.request.watermark
        self.store.change(delivery.ref, lambda slot, now: request_rules.bury(slot, fence, watermark, reason, now))

    def extend(self, delivery: Delivery) -> None:
        self.store.change(delivery.ref, lambda slot, now: request_rules.extend(slot, delivery.fence, self.policy, now))


# What every bus makes of slots.


def demand_name(name: str) -> None:
    if not is_entity_name(name):
        raise ValueError(f"{name[:100]!r} is not the name of an entity")


def newest(requests: Sequence[Request]) -> list[Request]:
    """The newest of each scope, in the order of their scopes: whoever locks them one by one collides with nobody."""
    by_scope: dict[Scope, Request] = {}
    for request in sorted(requests, key=lambda each: (each.scope, each.watermark)):
        by_scope[request.scope] = request
    return list(by_scope.values())


def delivery_of(ref: PartitionRef, slot: Slot, token: str = "") -> Delivery:
    assert slot.working is not None
    return Delivery(ref.entity, request_of(ref.scope, slot.working), slot.attempts, slot.fence, slot.trace, token)


def is_buried(slot: Slot, delivery: Delivery) -> bool:
    return slot.buried is not None and slot.buried.watermark == delivery.request.watermark


def letters(slots: Sequence[tuple[PartitionRef, Slot]]) -> list[DeadLetter]:
    found = [(ref, slot.buried) for ref, slot in sorted(slots, key=lambda each: each[0]) if slot.buried is not None]
    return [
        DeadLetter(ref.entity, request_of(ref.scope, each.watermark), each.attempts, each.reason, each.at)
        for ref, each in found
    ]


def demand_revision(key: str, found: int, wanted: int | None) -> None:
    """`found` is 0 for a key that is not there."""
    if wanted is not None and found != wanted:
        raise Conflict(f"{key} has changed: its revision is {found}, not {wanted}")


def entry_of(key: str, data: str | bytes, revision: int) -> StatusEntry:
    try:
        return StatusEntry(key, status_keys.decode(data), revision)
    except status_keys.StatusKeyError as error:
        return StatusEntry(key, None, revision, unreadable=str(error))
