"""Slots and status keys as every bus has them."""

from __future__ import annotations

from collections.abc import Sequence

from instep.bus.bus import DeadLetter, Delivery, StatusEntry
from instep.domain import status
from instep.domain.refs import PartitionRef, Scope, is_entity_name
from instep.domain.request_rules import Slot
from instep.domain.requests import Request, request_of
from instep.errors import Conflict


def demand_name(name: str) -> None:
    if not is_entity_name(name):
        raise ValueError(f"{name[:100]!r} is not the name of an entity")


def newest(requests: Sequence[Request]) -> list[Request]:
    """The newest of each scope, in the order of their scopes: so that locking them one by one causes no deadlock."""
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
        return StatusEntry(key, status.decode(data), revision)
    except status.StatusKeyError as error:
        return StatusEntry(key, None, revision, unreadable=str(error))
