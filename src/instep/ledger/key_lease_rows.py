"""Rows of key leases: one for each key that is leased or has failed, one for the fence of each queue."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, Row, and_, case, delete, func, insert, or_, select, update

from instep.domain.key_leases import AHEAD, KeyLease, KeyLeaseState
from instep.domain.pending_queue import QueueKey
from instep.ledger.tables import queue_fences, queue_holds
from instep.ledger.transaction import Transaction, batches

_rows = queue_holds.c


class KeyLeaseCount(NamedTuple):
    """The number of keys in a state, of those leased, and the time at which the oldest came into it."""

    keys: int
    due: int
    since: int


class KeyLeaseRows:
    """The rows, within one transaction. Rows read for a change are locked; new rows need the lock of the queue."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._connection = tx.connection

    def now(self) -> int:
        return self._tx.now()

    def lock(self, queue: str) -> int:
        """Lock the queue, so that no other call makes rows or takes a fence; returns the last fence."""
        fence = self._connection.scalar(
            select(queue_fences.c.fence).where(queue_fences.c.queue == queue).with_for_update()
        )
        if fence is None:
            self._connection.execute(insert(queue_fences).values(queue=queue, fence=0))
        return fence or 0

    def advance(self, queue: str, fence: int) -> None:
        self._connection.execute(update(queue_fences).where(queue_fences.c.queue == queue).values(fence=fence))

    def of(self, queue: str, keys: Iterable[QueueKey], *, lock: bool) -> dict[QueueKey, KeyLease]:
        found: dict[QueueKey, KeyLease] = {}
        # In order, so that two that lock the same rows wait, not collide.
        for some in batches(sorted(keys)):
            rows = select(queue_holds).where(_rows.queue == queue, _rows.key.in_(some)).order_by(_rows.key)
            found |= _holds(self._connection.execute(rows.with_for_update() if lock else rows))
        return found

    def due(self, queue: str, limit: int) -> dict[QueueKey, KeyLease]:
        """Read due keys, in the order in which they were due."""
        due = select(queue_holds).where(_rows.queue == queue, self._due())
        return _holds(self._connection.execute(due.order_by(_rows.due_at, _rows.key).limit(limit)))

    def parked(self, queue: str, after: QueueKey | None, limit: int) -> dict[QueueKey, KeyLease]:
        """Read parked keys, in order."""
        parked = select(queue_holds).where(_rows.queue == queue, _rows.due_at.is_(None))
        if after is not None:
            parked = parked.where(_rows.key > after)
        return _holds(self._connection.execute(parked.order_by(_rows.key).limit(limit)))

    def held_by(self, queue: str, holder: str, limit: int | None) -> dict[QueueKey, KeyLease]:
        """Read the keys of a holder, in order."""
        held = select(queue_holds).where(*_of_holder(queue, holder))
        return _holds(self._connection.execute(held.order_by(_rows.key).limit(limit)))

    def extend_held_by(self, queue: str, holder: str, until: int) -> int:
        return self._connection.execute(
            update(queue_holds).where(*_of_holder(queue, holder)).values(due_at=until)
        ).rowcount

    def put(self, queue: str, before: Mapping[QueueKey, KeyLease], after: Mapping[QueueKey, KeyLease | None]) -> None:
        """Make rows of `after`: new where there was none before, gone where there is none after."""
        new = [
            {"queue": queue, "key": key} | _values(each) for key, each in after.items() if each and key not in before
        ]
        if new:
            self._connection.execute(insert(queue_holds), new)
        # Keys that were leased together become the same, as a rule.
        alike: defaultdict[KeyLease | None, list[QueueKey]] = defaultdict(list)
        for key, each in after.items():
            if key in before and each != before[key]:
                alike[each].append(key)
        for each, keys in alike.items():
            self._change(queue, sorted(keys), each)

    def _change(self, queue: str, keys: Sequence[QueueKey], to: KeyLease | None) -> None:
        for some in batches(keys):
            those = (_rows.queue == queue, _rows.key.in_(some))
            if to is None:
                self._connection.execute(delete(queue_holds).where(*those))
            else:
                self._connection.execute(update(queue_holds).where(*those).values(_values(to)))

    def count(self, queue: str) -> dict[KeyLeaseState, KeyLeaseCount]:
        state = case(
            (_rows.holder.is_not(None), KeyLeaseState.LEASED.value),
            (_rows.due_at.is_(None), KeyLeaseState.PARKED.value),
            else_=KeyLeaseState.WAITING.value,
        ).label("state")
        due = func.sum(case((self._due(), 1), else_=0))
        counted = select(state, func.count(), due, func.min(_rows.since)).where(_rows.queue == queue)
        found = self._connection.execute(counted.group_by(state)).all()
        return {KeyLeaseState(name): KeyLeaseCount(int(keys), int(due), int(since)) for name, keys, due, since in found}

    def _due(self) -> ColumnElement[bool]:
        """The condition of `KeyLease.is_due` in SQL."""
        now = self.now()
        return and_(_rows.due_at.is_not(None), or_(_rows.due_at <= now, _rows.since > now + AHEAD))

    def drop(self, queue: str) -> None:
        self._connection.execute(delete(queue_holds).where(_rows.queue == queue))


def _of_holder(queue: str, holder: str) -> tuple[ColumnElement[bool], ...]:
    return (_rows.queue == queue, _rows.holder == holder)


def _holds(rows: Iterable[Row[Any]]) -> dict[QueueKey, KeyLease]:
    return {row.key: KeyLease(row.fence, row.holder, row.due_at, row.attempts, row.since, row.error) for row in rows}


def _values(hold: KeyLease) -> dict[str, Any]:
    return {
        "fence": hold.fence,
        "holder": hold.holder,
        "due_at": hold.due,
        "attempts": hold.attempts,
        "since": hold.since,
        "error": hold.error,
    }
