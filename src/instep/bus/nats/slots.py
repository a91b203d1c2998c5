"""Slots and groups in a bucket of JetStream's, and the requests that say which slots are to be looked at.

A message in the stream of requests is a **token**: a handler must look at the slot of its scope. As long as there is
something to do in a slot, its consumer has a token that is not acknowledged; tokens too many do no harm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from instep.bus.nats.connection import Connection
from instep.bus.nats.entry import Found
from instep.bus.nats.keys import Bucket
from instep.domain import request_rules
from instep.domain.refs import PartitionRef
from instep.domain.request_rules import Policy, Slot
from instep.domain.requests import RequestError, dotted, scope_of_dotted
from instep.errors import Conflict

#: Before the names of groups among the keys: no entity has this name.
_GROUPS: Final = "_group"


@dataclass(frozen=True, slots=True)
class _Stored:
    """`by` is unique, so that who wrote it recognises it."""

    by: str
    slot: Slot


@dataclass(frozen=True, slots=True)
class _Group:
    """Until when which deliveries may be in work."""

    by: str
    permits: dict[str, int]


class Slots:
    """For the connection's loop."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._bucket = Bucket(connection, connection.deliveries)

    def _id(self) -> str:
        return self._connection.client.new_inbox()

    async def get(self, ref: PartitionRef) -> Slot:
        found = await self._bucket.get(_key(ref))
        return Slot() if found is None else _slot(found)

    async def change(self, ref: PartitionRef, change: Callable[[Slot, int], Slot], *, new: bool = False) -> Slot:
        """Raises `Conflict` when there is no such slot, unless it may be `new`, and what `change` raises."""
        now, by = await self._connection.now(), self._id()
        after = Slot()

        def attempt(found: Found | None) -> bytes | Found | None:
            nonlocal after
            if found is None and not new:
                raise Conflict(f"nothing was asked of {ref}")
            before = Slot() if found is None else _slot(found)
            after = change(before, now)
            return found if after is before else msgspec.json.encode(_Stored(by, after))

        await self._bucket.change(_key(ref), attempt)
        return after

    async def every(self, name: str | None = None) -> list[tuple[PartitionRef, Slot]]:
        found = await self._bucket.find(f"{name}.>" if name else ">")
        refs = [(_ref(key), each) for key, each in found.items()]
        return [(ref, _slot(each)) for ref, each in refs if ref is not None]

    async def forget(self, name: str) -> None:
        await self._bucket.forget(f"{name}.>")

    # Groups.

    async def has_room(self, policy: Policy) -> bool:
        found = await self._bucket.get(f"{_GROUPS}.{policy.group}")
        return len(_permits(found, await self._connection.now())) < policy.limit

    async def enter(self, policy: Policy, permit: str) -> bool:
        """Whether there was room in the group, for the ack wait."""
        entered = True

        def change(permits: dict[str, int], until: int) -> dict[str, int]:
            nonlocal entered
            entered = permit in permits or len(permits) < policy.limit
            return permits | {permit: until} if entered else permits

        await self._regroup(policy, change)
        return entered

    async def leave(self, policy: Policy, permit: str) -> None:
        await self._regroup(policy, lambda permits, _: {each: permits[each] for each in permits if each != permit})

    async def stay(self, policy: Policy, permit: str) -> None:
        """A delivery that is in work stays, whether or not there is room."""
        await self._regroup(policy, lambda permits, until: permits | {permit: until})

    async def _regroup(self, policy: Policy, change: Callable[[dict[str, int], int], dict[str, int]]) -> None:
        """`change` is given the permits that hold, and until when one would that is given now."""
        if not policy.group:
            return
        now, by = await self._connection.now(), self._id()

        def attempt(found: Found | None) -> bytes | Found | None:
            before = _permits(found, now)
            after = change(before, now + policy.ack_wait)
            return found if after == before else msgspec.json.encode(_Group(by, after))

        await self._bucket.change(f"{_GROUPS}.{policy.group}", attempt)


def _key(ref: PartitionRef) -> str:
    return f"{ref.entity}.{dotted(ref.scope)}"


def _ref(key: str) -> PartitionRef | None:
    entity, _, scope = key.partition(".")
    try:
        return None if entity == _GROUPS else PartitionRef(entity, scope_of_dotted(scope))
    except RequestError:
        return None


def _slot(found: Found) -> Slot:
    """What cannot be read (another program wrote there) begins anew, and is said. Revisions grow faster than fences."""
    try:
        return msgspec.json.decode(found.data, type=_Stored).slot
    except msgspec.MsgspecError as error:
        slot = Slot(fence=found.revision)
        return request_rules.refuse(slot, f"what the bus had stored of it could not be read: {error}", 0)


def _permits(found: Found | None, now: int) -> dict[str, int]:
    """Those that hold. What cannot be read holds nothing."""
    if found is None:
        return {}
    try:
        permits = msgspec.json.decode(found.data, type=_Group).permits
    except msgspec.MsgspecError:
        return {}
    return {each: until for each, until in permits.items() if now < until}
