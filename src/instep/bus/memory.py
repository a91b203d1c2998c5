"""A bus in memory: for a ledger in memory, and for simulations. It lives as long as its `MemoryStore`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import RLock
from typing import Any

from instep.bus.port import StatusEntry
from instep.bus.stored import Change, demand_revision, entry_of
from instep.domain import deliveries, status_keys
from instep.domain.clock import Clock
from instep.domain.deliveries import Policy, Slot
from instep.domain.refs import PartitionRef, Scope
from instep.domain.requests import Kind, Request
from instep.errors import Conflict


class MemoryStore:
    """Implements `stored.Store`. May be shared by threads, and by several buses."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._lock = RLock()
        #: The newest of each scope, and its trace.
        self._asked: dict[Scope, tuple[Request, str]] = {}
        self._consumers: dict[str, tuple[Kind, Policy]] = {}
        self._slots: dict[PartitionRef, Slot] = {}
        self.status = MemoryStatusKeys(self._lock)

    def close(self) -> None:
        """What is in it stays: others may use it."""

    def publish(self, requests: Sequence[Request], trace: str) -> None:
        with self._lock:
            for request in requests:
                before = self._asked.get(request.scope)
                if before is None or before[0].watermark < request.watermark:
                    self._asked[request.scope] = (request, trace)
                    for name, (kind, _) in self._consumers.items():
                        if kind is request.kind:
                            self._request(name, request, trace)

    def forget(self, namespace: Scope) -> list[PartitionRef]:
        with self._lock:
            for scope in [each for each in self._asked if each.within(namespace)]:
                del self._asked[scope]
            here = {ref: slot for ref, slot in self._slots.items() if ref.scope.within(namespace)}
            self._slots.update({ref: deliveries.forget(slot) for ref, slot in here.items()})
            return sorted(ref for ref, slot in here.items() if not slot.idle)

    def register(self, name: str, kind: Kind, policy: Policy) -> None:
        with self._lock:
            self._consumers[name] = (kind, policy)
            for ref in [ref for ref in self._slots if ref.entity == name and Kind.of(ref.scope) is not kind]:
                del self._slots[ref]
            for request, trace in self._asked.values():
                if request.kind is kind:
                    self._request(name, request, trace)

    def _request(self, name: str, request: Request, trace: str) -> None:
        ref = PartitionRef(name, request.scope)
        before = self._slots.get(ref, Slot())
        self._slots[ref] = deliveries.request(before, request.watermark, self.clock.now(), trace)

    def take(self, name: str, policy: Policy) -> tuple[PartitionRef, Slot] | None:
        with self._lock:
            now = self.clock.now()
            if policy.group and self._in_work(policy, now) >= policy.limit:
                return None
            mine = [(slot.due, ref) for ref, slot in self._slots.items() if ref.entity == name]
            for _, ref in sorted(mine):
                self._slots[ref] = deliveries.reconcile(self._slots[ref], now)
                taken = deliveries.take(self._slots[ref], policy, now)
                if taken is not None:
                    self._slots[ref] = taken
                    return ref, taken
            return None

    def _in_work(self, policy: Policy, now: int) -> int:
        names = {name for name, (_, each) in self._consumers.items() if each.group == policy.group}
        return sum(
            ref.entity in names and slot.working is not None and not policy.is_due(slot.due, now)
            for ref, slot in self._slots.items()
        )

    def change(self, ref: PartitionRef, change: Change) -> Slot:
        with self._lock:
            before = self._slots.get(ref)
            if before is None:
                raise Conflict(f"nothing was asked of {ref}")
            after = self._slots[ref] = change(before, self.clock.now())
            return after

    def reconcile(self) -> list[tuple[PartitionRef, Slot]]:
        with self._lock:
            now, changed = self.clock.now(), []
            for ref, slot in self._slots.items():
                after = deliveries.reconcile(slot, now)
                if after is not slot:
                    changed.append((ref, after))
            self._slots.update(changed)
            return changed

    def buried(self, name: str | None) -> list[tuple[PartitionRef, Slot]]:
        with self._lock:
            return [(ref, slot) for ref, slot in self._slots.items() if slot.buried and name in (None, ref.entity)]


class MemoryStatusKeys:
    """Implements `port.StatusKeys`."""

    def __init__(self, lock: RLock) -> None:
        self._lock = lock
        #: By key its value as text, and its revision; no value for what was deleted.
        self.rows: dict[str, tuple[str | None, int]] = {}

    def put(self, key: str, value: Mapping[str, Any], *, revision: int | None = None) -> int:
        status_keys.demand_key(key)
        return self._set(key, status_keys.encode(value), revision)

    def get(self, key: str) -> StatusEntry | None:
        status_keys.demand_key(key)
        with self._lock:
            text, revision = self.rows.get(key, (None, 0))
            return None if text is None else entry_of(key, text, revision)

    def delete(self, key: str, *, revision: int | None = None) -> None:
        status_keys.demand_key(key)
        with self._lock:
            if revision is not None or self.rows.get(key, (None, 0))[0] is not None:
                self._set(key, None, revision)

    def under(self, prefix: str) -> list[StatusEntry]:
        status_keys.demand_prefix(prefix)
        with self._lock:
            found = [(key, *row) for key, row in self.rows.items() if key == prefix or key.startswith(f"{prefix}.")]
            return [entry_of(key, text, revision) for key, text, revision in sorted(found) if text is not None]

    def _set(self, key: str, text: str | None, wanted: int | None) -> int:
        with self._lock:
            before, revision = self.rows.get(key, (None, 0))
            demand_revision(key, 0 if before is None else revision, wanted)
            self.rows[key] = (text, revision + 1)
            return revision + 1
