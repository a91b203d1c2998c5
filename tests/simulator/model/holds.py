"""Rows of key leases in the model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from instep.domain.clock import Clock
from instep.domain.key_leases import KeyLease, KeyLeaseState
from instep.domain.pending_queue import QueueKey
from instep.ledger.key_lease_rows import KeyLeaseCount, KeyLeaseRows


@dataclass(slots=True)
class MemoryHolds(KeyLeaseRows):
    """The ledger's own lock stands in for those of rows."""

    clock: Clock
    fences: dict[str, int] = field(default_factory=dict)
    queues: dict[str, dict[QueueKey, KeyLease]] = field(default_factory=dict)

    def now(self) -> int:
        return self.clock.now()

    def lock(self, queue: str) -> int:
        return self.fences.get(queue, 0)

    def advance(self, queue: str, fence: int) -> None:
        self.fences[queue] = fence

    def of(self, queue: str, keys: Iterable[QueueKey], *, lock: bool) -> dict[QueueKey, KeyLease]:
        held = self.queues.get(queue, {})
        return {key: held[key] for key in keys if key in held}

    def due(self, queue: str, limit: int) -> dict[QueueKey, KeyLease]:
        now = self.now()
        due = [(each.due or 0, *_place(key)) for key, each in self._all(queue).items() if each.is_due(now)]
        return {key: self.queues[queue][key] for _, _, key in sorted(due)[:limit]}

    def parked(self, queue: str, after: QueueKey | None, limit: int) -> dict[QueueKey, KeyLease]:
        parked = (key for key, each in self._all(queue).items() if each.state is KeyLeaseState.PARKED)
        return self._by_key(queue, [key for key in parked if after is None or _place(key) > _place(after)], limit)

    def held_by(self, queue: str, holder: str, limit: int | None) -> dict[QueueKey, KeyLease]:
        held = (key for key, each in self._all(queue).items() if each.holder == holder)
        return self._by_key(queue, list(held), limit)

    def extend_held_by(self, queue: str, holder: str, until: int) -> int:
        held = self.held_by(queue, holder, None)
        self._all(queue).update({key: replace(each, due=until) for key, each in held.items()})
        return len(held)

    def put(self, queue: str, before: Mapping[QueueKey, KeyLease], after: Mapping[QueueKey, KeyLease | None]) -> None:
        rows = self._all(queue)
        for key, each in after.items():
            if each is None:
                rows.pop(key, None)
            else:
                rows[key] = each

    def count(self, queue: str) -> dict[KeyLeaseState, KeyLeaseCount]:
        now, counts = self.now(), dict[KeyLeaseState, KeyLeaseCount]()
        for each in self._all(queue).values():
            keys, due, since = counts.get(each.state, KeyLeaseCount(0, 0, each.since))
            counts[each.state] = KeyLeaseCount(keys + 1, due + each.is_due(now), min(since, each.since))
        return counts

    def drop(self, queue: str) -> None:
        self.queues.pop(queue, None)

    def _all(self, queue: str) -> dict[QueueKey, KeyLease]:
        return self.queues.setdefault(queue, {})

    def _by_key(self, queue: str, keys: Iterable[QueueKey], limit: int | None) -> dict[QueueKey, KeyLease]:
        return {key: self.queues[queue][key] for key in sorted(keys, key=_place)[:limit]}


def _place(key: QueueKey) -> tuple[bool, QueueKey]:
    """Numbers come before texts, as in the bytes of a ledger."""
    return isinstance(key, str), key
