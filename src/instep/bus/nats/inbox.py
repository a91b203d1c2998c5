"""Requests that other programs publish on NATS, each once for all workers of a project."""

from __future__ import annotations

import json
from functools import partial
from typing import Final

from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, Header
from nats.js.errors import NotFoundError

from instep.bus.bus import Message
from instep.bus.nats.connection import Connection
from instep.domain.refs import Scope
from instep.domain.requests import RequestError, scope_of_dotted
from instep.telemetry.context import received

#: The durable consumer that all workers share. No entity has this name.
_NAME: Final = "_wants"
#: A message without acknowledgement is delivered again after so many seconds.
_ACK_WAIT: Final = 30.0
#: Before a message that was given back comes again, in nanoseconds.
_PAUSE: Final = 500_000_000


class NatsInbox:
    """Implements `bus.Inbox`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
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
        found = await self._connection.with_retries(partial(self._pull, timeout))
        if found is None:
            return None
        given = {name.lower(): value for name, value in (found.headers or {}).items()}.get(Header.MSG_ID.value.lower())
        # A stream that was made anew counts from 1 again: its messages are others, by their time.
        name = given or f"{found.metadata.sequence.stream}@{found.metadata.timestamp.isoformat()}"
        scope = scope_of_subject(found.subject)
        return Message(f"{found.subject} {name}", scope, found.data, found.subject, trace_of(found), found.reply)

    async def _pull(self, wait: float) -> Msg | None:
        """The next message. Each question has an inbox of its own and is answered by the server, if only with
        "nothing": so none comes after the caller has stopped listening.
        """
        connection, client = self._connection, self._connection.client
        question = {"batch": 1} | ({"expires": round(wait * 1e9)} if wait > 0.01 else {"no_wait": True})
        inbox = client.new_inbox()
        subscription = await client.subscribe(inbox)
        try:
            await client.publish(self._next_subject, json.dumps(question).encode(), reply=inbox)
            message = await subscription.next_msg(timeout=wait + connection.timeout)
        finally:
            await subscription.unsubscribe()
        # A program's message may have such a header too; the server's own answer names no reply subject.
        status = None if message.reply else (message.headers or {}).get("Status")
        if status == "503":
            raise ConnectionError("no server answers for the stream")
        return None if status else message

    def ack(self, message: Message) -> None:
        self._connection.run(self._say(message, b"+ACK"))

    def give_back(self, message: Message) -> None:
        self._connection.run(self._say(message, b'-NAK {"delay": %d}' % _PAUSE))

    def withdrawn(self, message: Message) -> bool:
        return self._connection.run(self._connection.with_retries(lambda: self._is_gone(message.subject)))

    async def _is_gone(self, subject: str) -> bool:
        connection = self._connection
        try:
            await connection.client.jetstream(timeout=connection.timeout).get_last_msg(connection.requests, subject)
        except NotFoundError:
            return True
        return False

    async def _say(self, message: Message, word: bytes) -> None:
        client = self._connection.client
        await self._connection.with_retries(lambda: client.publish(message.token, word))


def scope_of_subject(subject: str) -> Scope | None:
    """The scope of `prefix.request.…`. None when it names none: such a message asks for nothing."""
    try:
        return scope_of_dotted(subject.split(".", 2)[2])
    except RequestError:
        return None


def trace_of(message: Msg) -> str:
    """Names of headers count here, and programs write them in every way."""
    return received({name.lower(): value for name, value in (message.headers or {}).items()})
