"""Requests that other programs publish on NATS, each once for all workers of a project."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, Header

from instep.bus.bus import Message
from instep.bus.nats.connection import Connection
from instep.bus.nats.consumer import pull, scope_of_subject, trace_of
from instep.bus.nats.slots import Slots
from instep.domain import request_rules
from instep.domain.refs import PartitionRef

#: The durable consumer that all workers share. No entity has this name.
_NAME: Final = "_wants"
#: A message without acknowledgement is delivered again after so many seconds.
_ACK_WAIT: Final = 30.0
#: Before a message that was given back comes again, in nanoseconds.
_PAUSE: Final = 500_000_000


class NatsInbox:
    """Implements `bus.Inbox`."""

    def __init__(self, connection: Connection, slots: Slots) -> None:
        self._connection = connection
        self._slots = slots
        self._next_subject = f"$JS.API.CONSUMER.MSG.NEXT.{connection.requests}.{_NAME}"
        connection.run(self._register())

    async def _register(self) -> None:
        connection = self._connection
        jetstream = connection.client.jetstream(timeout=connection.timeout)
        config = ConsumerConfig(
            name=_NAME,
            durable_name=_NAME,
            filter_subject=f"{connection.address.prefix}.request.>",
            deliver_policy=DeliverPolicy.ALL,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=_ACK_WAIT,
            max_deliver=-1,
            max_ack_pending=-1,
        )
        await connection.with_retries(lambda: jetstream.add_consumer(connection.requests, config), writes=True)

    def next(self, timeout: float) -> Message | None:
        return self._connection.run(self._next(timeout))

    async def _next(self, timeout: float) -> Message | None:
        found = await self._connection.with_retries(partial(pull, self._connection, self._next_subject, timeout))
        if found is None:
            return None
        given = {name.lower(): value for name, value in (found.headers or {}).items()}.get(Header.MSG_ID.value.lower())
        name = given or str(found.metadata.sequence.stream)
        scope = scope_of_subject(found.subject)
        return Message(f"{found.subject} {name}", scope, found.data, trace_of(found), found.reply)

    def ack(self, message: Message) -> None:
        self._connection.run(self._say(message, b"+ACK"))

    def give_back(self, message: Message) -> None:
        self._connection.run(self._say(message, b'-NAK {"delay": %d}' % _PAUSE))

    def refuse(self, message: Message, entities: Sequence[str], reason: str) -> None:
        self._connection.run(self._refuse(message, entities, reason))

    async def _refuse(self, message: Message, entities: Sequence[str], reason: str) -> None:
        """The dead letters first: a message is passed over only when they are stored."""
        scope = message.scope
        for ref in [PartitionRef(entity, scope) for entity in entities] if scope is not None else ():
            await self._slots.change(ref, lambda slot, now: request_rules.refuse(slot, reason, now), new=True)
        await self._say(message, b"+TERM")

    async def _say(self, message: Message, word: bytes) -> None:
        client = self._connection.client
        await self._connection.with_retries(lambda: client.publish(message.token, word))
