"""A handler's deliveries from JetStream. Which request is in work is in its slot; a token says when to look at it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Final

from nats.aio.msg import Msg

from instep.bus.bus import Delivery
from instep.bus.nats.connection import Connection
from instep.bus.nats.slots import Slots
from instep.bus.slot_bus import delivery_of, is_buried
from instep.domain import request_rules
from instep.domain.refs import PartitionRef, Scope
from instep.domain.request_rules import Policy, Slot
from instep.domain.requests import Kind, RequestError, decode, scope_of_dotted
from instep.errors import Fenced
from instep.telemetry.context import received

#: How long the server holds a question open; when it goes down, no answer comes.
_SLICE_SECONDS: Final = 2.0
#: When to look again at a scope that is in work, or a group that is full. Milliseconds.
_LOOK_AGAIN: Final = 500


class NatsConsumer:
    """Implements `port.Consumer`."""

    def __init__(self, name: str, kind: Kind, policy: Policy, connection: Connection, slots: Slots) -> None:
        self._name = name
        self._kind = kind
        self._policy = policy
        self._connection = connection
        self._slots = slots
        self._next_subject = f"$JS.API.CONSUMER.MSG.NEXT.{connection.requests}.{name}"

    @property
    def name(self) -> str:
        return self._name

    def next(self, timeout: float = 0.0) -> Delivery | None:
        return self._connection.run(self._next(timeout))

    def ack(self, delivery: Delivery) -> None:
        fence, watermark = delivery.fence, delivery.request.watermark
        self._connection.run(
            self._answer(delivery, lambda slot, now: request_rules.acknowledge(slot, fence, watermark, now))
        )

    def retry(self, delivery: Delivery, reason: str, *, delay: int | None = None) -> bool:
        pause = self._policy.pause(delivery.attempt) if delay is None else delay
        after = self._connection.run(
            self._answer(
                delivery, lambda slot, now: request_rules.retry(slot, delivery.fence, pause, reason, now), pause=pause
            )
        )
        return not is_buried(after, delivery)

    def postpone(self, delivery: Delivery, *, delay: int = 0) -> None:
        self._connection.run(
            self._answer(
                delivery, lambda slot, now: request_rules.postpone(slot, delivery.fence, delay, now), pause=delay
            )
        )

    def dead(self, delivery: Delivery, reason: str) -> None:
        fence, watermark = delivery.fence, delivery.request.watermark
        self._connection.run(
            self._answer(delivery, lambda slot, now: request_rules.bury(slot, fence, watermark, reason, now))
        )

    def extend(self, delivery: Delivery) -> None:
        self._connection.run(self._extend(delivery))

    async def _extend(self, delivery: Delivery) -> None:
        policy = self._policy
        await self._slots.change(
            delivery.ref, lambda slot, now: request_rules.extend(slot, delivery.fence, policy, now)
        )
        await self._slots.stay(policy, delivery.id)
        await self._say(delivery.token, b"+WPI")

    async def _answer(
        self, delivery: Delivery, change: Callable[[Slot, int], Slot], *, pause: int | None = None
    ) -> Slot:
        """First what counts, then the group's room, then the token: it is looked at in vain if this is not reached."""
        try:
            after = await self._slots.change(delivery.ref, change)
        except Fenced:
            await self._slots.leave(self._policy, delivery.id)  # Perhaps forgotten: no other call gives it back.
            raise
        await self._slots.leave(self._policy, delivery.id)
        if pause is not None and not is_buried(after, delivery):
            await self._look_later(delivery.token, pause)
        else:
            await self._say(delivery.token, b"+ACK")
        return after

    # Taking.

    async def _next(self, timeout: float) -> Delivery | None:
        deadline = time.monotonic() + timeout
        while True:
            left = max(0.0, deadline - time.monotonic())
            if self._policy.group and not await self._slots.has_room(self._policy):
                # Nothing is asked for: it would have to be put back.
                message = None
                await asyncio.sleep(min(left, _LOOK_AGAIN / 1_000))
            else:
                wait = min(left, _SLICE_SECONDS)
                message = await self._connection.with_retries(lambda: self._pull(wait))  # noqa: B023 - awaited at once
            if message is not None:
                delivery = await self._look(message)
                if delivery is not None:
                    return delivery
            elif left <= 0:
                return None

    async def _pull(self, wait: float) -> Msg | None:
        return await pull(self._connection, self._next_subject, wait)

    async def _look(self, message: Msg) -> Delivery | None:
        """At the slot of this token: take the request that waits there, or see to it that it is looked at again."""
        scope = scope_of_subject(message.subject)
        if scope is None or Kind.of(scope) is not self._kind:
            await self._say(message.reply, b"+TERM")
            return None
        ref = PartitionRef(self._name, scope)
        fence = (await self._slots.get(ref)).fence + 1
        permit = f"{ref}#{fence}"
        if not await self._slots.enter(self._policy, permit):
            await self._look_later(message.reply, _LOOK_AGAIN)
            return None
        is_taken = False

        def change(slot: Slot, now: int) -> Slot:
            nonlocal is_taken
            slot = _requested(slot, message, scope, now)
            taken = request_rules.take(slot, self._policy, now) if slot.fence + 1 == fence else None
            is_taken = taken is not None
            return taken or request_rules.reconcile(slot, now)

        after = await self._slots.change(ref, change, new=True)
        if is_taken:
            return delivery_of(ref, after, message.reply)
        await self._slots.leave(self._policy, permit)
        await self._put_back(message, after)
        return None

    async def _put_back(self, message: Msg, slot: Slot) -> None:
        if slot.idle:
            await self._say(message.reply, b"+ACK")
        elif slot.working is not None:
            await self._look_later(message.reply, _LOOK_AGAIN)
        else:
            await self._look_later(message.reply, max(0, slot.due - await self._connection.now()))

    async def _look_later(self, token: str, delay: int) -> None:
        await self._say(token, b'-NAK {"delay": %d}' % (delay * 1_000_000) if delay else b"-NAK")

    async def _say(self, token: str, word: bytes) -> None:
        await self._connection.with_retries(lambda: self._connection.client.publish(token, word))


async def pull(connection: Connection, next_subject: str, wait: float) -> Msg | None:
    """The next message of a consumer. Each question has an inbox of its own and is answered by the server, if only with
    "nothing": so none comes when no consumer listens.
    """
    client = connection.client
    question = {"batch": 1} | ({"expires": round(wait * 1e9)} if wait > 0.01 else {"no_wait": True})
    inbox = client.new_inbox()
    subscription = await client.subscribe(inbox)
    try:
        await client.publish(next_subject, json.dumps(question).encode(), reply=inbox)
        message = await subscription.next_msg(timeout=wait + connection.timeout)
    finally:
        await subscription.unsubscribe()
    # A client's message may have such a header too; a status message of the server has no reply subject.
    status = None if message.reply else (message.headers or {}).get("Status")
    if status == "503":
        raise ConnectionError("no server answers for the stream")
    return None if status else message


def scope_of_subject(subject: str) -> Scope | None:
    """The scope that a subject names; None for a subject that is no request. (`prefix.request.…`,
    `prefix.again.Entity.…`)
    """
    _, verb, rest = subject.split(".", 2)
    try:
        return scope_of_dotted(rest if verb == "request" else rest.partition(".")[2])
    except RequestError:
        return None


def _requested(slot: Slot, message: Msg, scope: Scope, now: int) -> Slot:
    """With what the message asks for. One who asks again for a dead letter has put it into the slot already."""
    if message.subject.split(".", 2)[1] == "again":
        return slot
    try:
        request = decode(message.data)
    except RequestError as error:
        return request_rules.refuse(slot, f"the request cannot be read: {error}", now)
    if request.scope != scope:
        return request_rules.refuse(slot, f"the request is for {request.scope}, its subject for {scope}", now)
    return request_rules.request(slot, request.watermark, now, trace_of(message))


def trace_of(message: Msg) -> str:
    """Names of headers count here, and programs write them in every way."""
    return received({name.lower(): value for name, value in (message.headers or {}).items()})
