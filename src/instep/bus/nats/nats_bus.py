"""The bus on NATS JetStream: a stream of requests, buckets for what became of them and for status keys."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, Header
from nats.js.errors import APIError, NotFoundError

from instep.bus.bus import DeadLetter, StatusKeys
from instep.bus.nats.connection import PATIENCE_SECONDS, Connection, is_wrong_revision
from instep.bus.nats.consumer import NatsConsumer, scope_of_subject
from instep.bus.nats.inbox import NatsInbox
from instep.bus.nats.slots import Slots
from instep.bus.nats.status import NatsStatusKeys
from instep.bus.slot_bus import demand_name, letters, newest
from instep.domain import request_rules
from instep.domain.refs import PartitionRef, Scope
from instep.domain.request_rules import Policy, Slot
from instep.domain.requests import (
    Kind,
    Request,
    RequestError,
    decode,
    dotted,
    encode,
    message_id,
    subject_of,
    subjects_of,
)
from instep.servers.address import NatsAddress
from instep.telemetry.context import here, sent

#: So many requests are on their way at once.
_AT_ONCE: Final = 32


def open_nats(address: NatsAddress, *, patience: float = PATIENCE_SECONDS) -> NatsBus:
    """Raises `UserError` when it cannot be opened. A test may have less patience."""
    return NatsBus(Connection(address, patience=patience))


class NatsBus:
    """Implements `port.Bus`. May be shared by threads."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._slots = Slots(connection)
        self._status = NatsStatusKeys(connection)
        self._jetstream = connection.client.jetstream(timeout=connection.timeout)
        self._prefix = connection.address.prefix

    def close(self) -> None:
        self._connection.close()

    @property
    def status(self) -> StatusKeys:
        return self._status

    # Requests.

    def publish(self, *requests: Request) -> None:
        self._connection.run(self._publish_all(newest(requests), sent()))

    async def _publish_all(self, requests: Sequence[Request], trace: Mapping[str, str]) -> None:
        room = asyncio.Semaphore(_AT_ONCE)

        async def one(request: Request) -> None:
            async with room:
                await self._connection.with_retries(lambda: self._publish(request, trace), writes=True)

        try:
            async with asyncio.TaskGroup() as group:
                for each in requests:
                    group.create_task(one(each))
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from failed

    async def _publish(self, request: Request, trace: Mapping[str, str]) -> None:
        """Unless what was last asked in the scope is as new."""
        subject = f"{self._prefix}.{subject_of(request.scope)}"
        while True:
            last, watermark = await self._last(subject)
            if watermark >= request.watermark:
                return
            headers = {Header.MSG_ID.value: message_id(request), Header.EXPECTED_LAST_SUBJECT_SEQUENCE.value: str(last)}
            try:
                await self._jetstream.publish(subject, encode(request), headers={**trace, **headers})
            except APIError as error:
                if not is_wrong_revision(error):
                    raise
            else:
                return

    async def _last(self, subject: str) -> tuple[int, int]:
        """Sequence and watermark of the last request on a subject; one that cannot be read is older than any. (A direct
        question would be answered among the headers of the message, and mixed up with them.)
        """
        try:
            message = await self._jetstream.get_last_msg(self._connection.requests, subject)
        except NotFoundError:
            return 0, -1
        try:
            return message.seq or 0, decode(message.data or b"").watermark
        except RequestError:
            return message.seq or 0, -1

    def forget(self, namespace: Scope) -> list[PartitionRef]:
        return self._connection.run(self._forget(namespace))

    async def _forget(self, namespace: Scope) -> list[PartitionRef]:
        """Messages before slots: a handler that has just taken one finds in its slot that it was seen already. So there
        are slots for all that could have.
        """
        asked = await self._connection.with_retries(lambda: self._asked(namespace))
        for subject in (subject_of(namespace), f"again.*.{dotted(namespace)}"):
            for pattern in (subject, f"{subject}.>"):
                await self._connection.with_retries(partial(self._purge, f"{self._prefix}.{pattern}"), writes=True)
        before = {ref: slot for ref, slot in await self._slots.every() if ref.scope.within(namespace)}
        for name in await self._connection.with_retries(self._names):
            before = {PartitionRef(name, scope): Slot() for scope in asked} | before
        for ref in before:
            seen = asked.get(ref.scope, -1)
            await self._slots.change(ref, lambda slot, _: request_rules.forget(slot, seen), new=True)  # noqa: B023 - at once
        return sorted(ref for ref, slot in before.items() if not slot.idle or slot.seen < asked.get(ref.scope, -1))

    async def _asked(self, namespace: Scope) -> dict[Scope, int]:
        """The watermarks of what was last asked of a namespace and of those in it."""
        found: dict[Scope, int] = {}
        subject = f"{self._prefix}.{subject_of(namespace)}"
        for pattern in (subject, f"{subject}.>"):
            info = await self._jetstream.stream_info(self._connection.requests, subjects_filter=pattern)
            for each in info.state.subjects or {}:
                scope = scope_of_subject(each)
                if scope is not None:
                    found[scope] = (await self._last(each))[1]
        return found

    async def _purge(self, subject: str) -> None:
        await self._jetstream.purge_stream(self._connection.requests, subject=subject)

    async def _names(self) -> list[str]:
        """Of the consumers that take requests for namespaces."""
        wanted, names = f"{self._prefix}.{subjects_of(Kind.NAMESPACE)}", list[str]()
        seen = 0
        while some := await self._jetstream.consumers_info(self._connection.requests, offset=seen):
            names += [each.name for each in some if wanted in (each.config.filter_subjects or [])]
            seen += len(some)
        return names

    # Consumers.

    def consumer(self, name: str, kind: Kind, policy: Policy) -> NatsConsumer:
        demand_name(name)
        self._connection.run(self._register(name, kind, policy))
        return NatsConsumer(name, kind, policy, self._connection, self._slots)

    async def _register(self, name: str, kind: Kind, policy: Policy) -> None:
        stream = self._connection.requests
        subjects = [f"{self._prefix}.{subjects_of(kind)}", f"{self._prefix}.again.{name}.>"]
        config = ConsumerConfig(
            name=name,
            durable_name=name,
            filter_subjects=subjects,
            deliver_policy=DeliverPolicy.ALL,
            ack_policy=AckPolicy.EXPLICIT,
            ack_wait=policy.ack_wait / 1_000,
            # Attempts are counted in slots, and what waits for its pause must not keep others waiting.
            max_deliver=-1,
            max_ack_pending=-1,
        )

        async def register() -> None:
            there = await self._subjects_of(name)
            if there is not None and sorted(there) != sorted(subjects):
                await self._jetstream.delete_consumer(stream, name)
                await self._slots.forget(name)
            await self._jetstream.add_consumer(stream, config)

        await self._connection.with_retries(register, writes=True)

    async def _subjects_of(self, name: str) -> list[str] | None:
        try:
            info = await self._jetstream.consumer_info(self._connection.requests, name)
        except NotFoundError:
            return None
        return info.config.filter_subjects or []

    def inbox(self) -> NatsInbox:
        return NatsInbox(self._connection, self._slots)

    # Dead letters.

    def reconcile(self) -> list[DeadLetter]:
        return letters(self._connection.run(self._reconcile()))

    async def _reconcile(self) -> list[tuple[PartitionRef, Slot]]:
        now = await self._connection.now()
        changed: list[tuple[PartitionRef, Slot]] = []
        for ref, slot in await self._slots.every():
            after = slot
            if request_rules.reconcile(slot, now) is not slot:
                after = await self._slots.change(ref, request_rules.reconcile)
                if after.buried is not None and after.buried != slot.buried:
                    changed.append((ref, after))
            if not after.idle and after.due <= now and await self._has_no_token(ref.entity):
                await self._connection.with_retries(lambda: self._send_token(ref, after), writes=True)  # noqa: B023 - at once
        return changed

    async def _has_no_token(self, name: str) -> bool:
        """Whether the consumer is there, and has nothing to look at."""

        async def ask() -> bool:
            try:
                info = await self._jetstream.consumer_info(self._connection.requests, name)
            except NotFoundError:
                return False
            return not info.num_pending and not info.num_ack_pending

        return await self._connection.with_retries(ask)

    def dead_letters(self, name: str | None = None) -> list[DeadLetter]:
        return letters(self._connection.run(self._slots.every(name)))

    def requeue(self, name: str, scope: Scope) -> None:
        self._connection.run(self._requeue(PartitionRef(name, scope), here().traceparent))

    async def _requeue(self, ref: PartitionRef, trace: str) -> None:
        after = await self._slots.change(ref, lambda slot, now: request_rules.requeue(slot, now, trace))
        # If this is not reached, the next reconciliation does it.
        await self._connection.with_retries(lambda: self._send_token(ref, after), writes=True)

    async def _send_token(self, ref: PartitionRef, slot: Slot) -> None:
        subject = f"{self._prefix}.again.{ref.entity}.{dotted(ref.scope)}"
        await self._jetstream.publish(subject, b"", headers={Header.MSG_ID.value: f"{ref}#{slot.fence}@{slot.due}"})

    def drop(self, name: str, scope: Scope) -> None:
        self._connection.run(self._slots.change(PartitionRef(name, scope), lambda slot, _: request_rules.drop(slot)))
