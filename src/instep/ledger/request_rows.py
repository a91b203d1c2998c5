"""Rows of requests and of what handlers have made of them: the rules are in `domain.request_rules`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Row, Select, delete, func, insert, select, true, update

from instep.domain import request_rules
from instep.domain.refs import PartitionRef, Scope
from instep.domain.request_rules import Buried, Policy, Slot
from instep.domain.requests import Kind, Request
from instep.errors import Conflict
from instep.ledger.tables import bus_consumers, bus_groups, bus_kinds, bus_requests, bus_slots
from instep.ledger.transaction import Transaction, batches

Found = list[tuple[PartitionRef, Slot]]


# Asking.


def publish(tx: Transaction, requests: Sequence[Request], trace: str) -> None:
    """Publish requests, in the order of their scopes: two that publish the same wait for each other, and do not
    deadlock.
    """
    for kind in Kind:
        new = [each for each in requests if each.kind is kind]
        if new:
            _lock_kind(tx, kind, alone=False)
            new = _remember(tx, new, trace)
            names = tx.connection.scalars(select(bus_consumers.c.name).where(bus_consumers.c.kind == kind.value)).all()
            _request(tx, {PartitionRef(name, each.scope): (each.watermark, trace) for each in new for name in names})


def forget(tx: Transaction, namespace: Scope) -> list[PartitionRef]:
    _lock_kind(tx, Kind.NAMESPACE, alone=True)
    of_kind = Kind.NAMESPACE.value
    scopes = tx.connection.scalars(select(bus_requests.c.scope).where(bus_requests.c.kind == of_kind)).all()
    for gone in batches(each for each in scopes if Scope.parse(each).within(namespace)):
        tx.connection.execute(delete(bus_requests).where(bus_requests.c.scope.in_(gone)))
    refs = tx.connection.scalars(select(bus_slots.c.ref).where(bus_slots.c.kind == of_kind)).all()
    forgotten: list[PartitionRef] = []
    for some in batches(each for each in sorted(refs) if PartitionRef.parse(each).scope.within(namespace)):
        for ref, slot in _locked(tx, bus_slots.c.ref.in_(some)):
            forgotten += [] if slot.idle else [ref]
            _store(tx, ref, slot, request_rules.forget(slot))
    return sorted(forgotten)


def register(tx: Transaction, name: str, kind: Kind, policy: Policy) -> None:
    if (
        policy.group
        and tx.connection.scalar(select(bus_groups.c.name).where(bus_groups.c.name == policy.group)) is None
    ):
        tx.connection.execute(insert(bus_groups).values(name=policy.group))
    of_it = select(bus_consumers.c.kind).where(bus_consumers.c.name == name)
    if tx.connection.scalar(of_it) == kind.value:
        return
    for each in Kind:
        _lock_kind(tx, each, alone=True)
    if tx.connection.scalar(of_it) == kind.value:
        return  # Another handler of the entity was first, and may be at work.
    tx.connection.execute(delete(bus_slots).where(bus_slots.c.consumer == name))
    tx.connection.execute(delete(bus_consumers).where(bus_consumers.c.name == name))
    tx.connection.execute(insert(bus_consumers).values(name=name, kind=kind.value))
    asked = select(bus_requests).where(bus_requests.c.kind == kind.value).order_by(bus_requests.c.scope)
    rows = tx.connection.execute(asked).all()
    _request(tx, {PartitionRef(name, Scope.parse(row.scope)): (row.watermark, row.trace or "") for row in rows})


def _lock_kind(tx: Transaction, kind: Kind, *, alone: bool) -> None:
    locked = select(bus_kinds.c.kind).where(bus_kinds.c.kind == kind.value).with_for_update(read=not alone)
    if tx.connection.scalar(locked) is None:
        tx.connection.execute(insert(bus_kinds).values(kind=kind.value))


def _remember(tx: Transaction, requests: Sequence[Request], trace: str) -> list[Request]:
    """Store the watermarks of requests, and return those that are newer than before."""
    before: dict[str, int] = {}
    for some in batches(str(each.scope) for each in requests):
        locked = select(bus_requests.c.scope, bus_requests.c.watermark).where(bus_requests.c.scope.in_(some))
        rows = tx.connection.execute(locked.order_by(bus_requests.c.scope).with_for_update()).all()
        before |= {row.scope: row.watermark for row in rows}
    newer = [each for each in requests if before.get(str(each.scope), -1) < each.watermark]
    for each in newer:
        values = {"watermark": each.watermark, "published_at": tx.now(), "trace": trace or None}
        if str(each.scope) in before:
            here = bus_requests.c.scope == str(each.scope)
            tx.connection.execute(update(bus_requests).where(here).values(values))
        else:
            tx.connection.execute(insert(bus_requests).values(scope=str(each.scope), kind=each.kind.value, **values))
    return newer


def _request(tx: Transaction, asked: Mapping[PartitionRef, tuple[int, str]]) -> None:
    """Store requests: by partition a watermark, and the trace of its publisher."""
    now = tx.now()

    def requested(ref: PartitionRef, slot: Slot) -> Slot:
        watermark, trace = asked[ref]
        return request_rules.request(slot, watermark, now, trace)

    for some in batches(sorted(asked)):
        before = dict(_locked(tx, bus_slots.c.ref.in_(list(map(str, some)))))
        new = [_row(ref, requested(ref, Slot())) for ref in some if ref not in before]
        if new:
            tx.connection.execute(insert(bus_slots), new)
        for ref, slot in before.items():
            _store(tx, ref, slot, requested(ref, slot))


# Taking.


def anything_due(tx: Transaction, name: str, policy: Policy) -> bool:
    return tx.connection.execute(_due(tx, name, policy)).first() is not None


def take(tx: Transaction, name: str, policy: Policy) -> tuple[PartitionRef, Slot] | None:
    if policy.group and not _has_room(tx, policy):
        return None
    first = _due(tx, name, policy).order_by(bus_slots.c.due_at, bus_slots.c.ref).limit(1)
    while (row := tx.connection.execute(first.with_for_update(skip_locked=True)).one_or_none()) is not None:
        ref, slot = _slot(row)
        after = request_rules.reconcile(slot, tx.now())
        taken = request_rules.take(after, policy, tx.now())
        _store(tx, ref, slot, taken or after, working_group=policy.group or None)
        if taken is not None:
            return ref, taken
    return None


def _due(tx: Transaction, name: str, policy: Policy) -> Select[Any]:
    """The condition of `Policy.is_due` in SQL."""
    due = bus_slots.c.due_at.is_not(None) & ~_ahead(tx, policy)
    return select(bus_slots).where(bus_slots.c.consumer == name, due).limit(1)


def _ahead(tx: Transaction, policy: Policy) -> ColumnElement[bool]:
    return bus_slots.c.due_at.between(tx.now() + 1, tx.now() + policy.longest)


def _has_room(tx: Transaction, policy: Policy) -> bool:
    """Whether the group has room; locks it, so that no other consumer takes a request for it."""
    tx.connection.execute(select(bus_groups.c.name).where(bus_groups.c.name == policy.group).with_for_update())
    in_work = select(func.count()).where(bus_slots.c.working_group == policy.group, _ahead(tx, policy))
    return int(tx.connection.execute(in_work).scalar_one()) < policy.limit


# Changing.


def change(tx: Transaction, ref: PartitionRef, how: Callable[[Slot, int], Slot]) -> Slot:
    row = _locked_row(tx, ref)
    if row is None:
        raise Conflict(f"nothing was asked of {ref}")
    _, slot = _slot(row)
    after = how(slot, tx.now())
    _store(tx, ref, slot, after)
    return after


def reconcile(tx: Transaction) -> Found:
    silent = _locked(tx, bus_slots.c.is_last.is_(true()), bus_slots.c.due_at <= tx.now())
    changed = [(ref, slot, request_rules.reconcile(slot, tx.now())) for ref, slot in silent]
    for ref, slot, after in changed:
        _store(tx, ref, slot, after)
    return [(ref, after) for ref, slot, after in changed if after is not slot]


def buried(tx: Transaction, name: str | None) -> Found:
    of = [] if name is None else [bus_slots.c.consumer == name]
    return [
        _slot(row) for row in tx.connection.execute(select(bus_slots).where(bus_slots.c.buried_at.is_not(None), *of))
    ]


# Rows.


def _locked(tx: Transaction, *conditions: ColumnElement[bool]) -> Iterable[tuple[PartitionRef, Slot]]:
    locked = select(bus_slots).where(*conditions).order_by(bus_slots.c.ref).with_for_update()
    return [_slot(row) for row in tx.connection.execute(locked)]


def _locked_row(tx: Transaction, ref: PartitionRef) -> Row[Any] | None:
    return tx.connection.execute(select(bus_slots).where(bus_slots.c.ref == str(ref)).with_for_update()).one_or_none()


def _store(tx: Transaction, ref: PartitionRef, before: Slot, after: Slot, **more: Any) -> None:
    if after is before:
        return
    if after.working is None:
        more["working_group"] = None
    tx.connection.execute(update(bus_slots).where(bus_slots.c.ref == str(ref)).values(**_row(ref, after), **more))


def _row(ref: PartitionRef, slot: Slot) -> dict[str, Any]:
    letter = slot.buried
    return {
        "ref": str(ref),
        "consumer": ref.entity,
        "kind": Kind.of(ref.scope).value,
        "seen": slot.seen,
        "done": slot.done,
        "waiting": slot.waiting,
        "working": slot.working,
        "attempts": slot.attempts,
        "is_last": slot.last,
        "fence": slot.fence,
        "due_at": None if slot.idle else slot.due,
        "buried_watermark": letter and letter.watermark,
        "buried_attempts": letter and letter.attempts,
        "buried_reason": letter and letter.reason,
        "buried_at": letter and letter.at,
        "trace": slot.trace or None,
    }


def _slot(row: Row[Any]) -> tuple[PartitionRef, Slot]:
    letter = None
    if row.buried_at is not None:
        letter = Buried(row.buried_watermark, row.buried_attempts, row.buried_reason, row.buried_at)
    slot = Slot(
        seen=row.seen,
        done=row.done,
        waiting=row.waiting,
        working=row.working,
        attempts=row.attempts,
        last=row.is_last,
        fence=row.fence,
        due=row.due_at or 0,
        buried=letter,
        trace=row.trace or "",
    )
    return PartitionRef.parse(row.ref), slot
