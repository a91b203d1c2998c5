"""What is special about requests in JetStream: others may write there, and answers may be lost."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import nats.errors
import pytest
from nats.js.client import JetStreamContext

from instep.bus.nats.nats_bus import NatsBus, open_nats
from instep.bus.nats.slots import Slots
from instep.domain import request_rules
from instep.domain.refs import PartitionRef
from instep.domain.request_rules import Policy
from instep.domain.requests import Kind, NamespaceRequest, encode
from instep.errors import Fenced
from instep.servers.address import nats_address
from instep.telemetry.context import within
from tests.contracts.bus.fixtures import NAMESPACE, PATIENCE, ask, consumer, taken
from tests.servers.nats import running_nats

_numbers = itertools.count(1)
REF = PartitionRef("Issue", NAMESPACE)
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
NONSENSE = [
    b"NATS/1.0",
    b"NATS/1.0\r\n\r\n",
    b"nonsense\r\n\r\n",
    b"NATS/1.0 404 No Messages\r\n\r\n",
    b"NATS/1.0 \xff\xff\r\n\r\n",
    b"NATS/1.0\r\nStatus: 404\r\n\r\n",
    b"NATS/1.0\r\nNats-Sequence: x\r\nNats-Subject: y\r\nNats-Time-Stamp: z\r\n\r\n",
    b"NATS/1.0\r\ntraceparent\r\n\r\n",
    b"NATS/1.0\r\ntraceparent: \xff\xfe\r\n\r\n",
    b"NATS/1.0\r\ntraceparent: " + CALLER.upper().encode() + b"\r\n\r\n",
    b"NATS/1.0\r\ntraceparent: " + b"x" * 3_000 + b"\r\n\r\n",
    b"NATS/1.0\r\ntracestate: a=1\r\n\r\n",
]


@pytest.fixture
def prefix() -> str:
    return f"tokens_{next(_numbers)}"


@pytest.fixture
def opened(prefix: str) -> Iterator[Callable[[], NatsBus]]:
    buses: list[NatsBus] = []

    def another() -> NatsBus:
        buses.append(open_nats(nats_address(running_nats().url(prefix))))
        return buses[-1]

    yield another
    for bus in buses:
        bus.close()


@pytest.fixture
def bus(opened: Callable[[], NatsBus]) -> NatsBus:
    return opened()


def _send(bus: NatsBus, subject: str, data: bytes) -> None:
    """As somebody else does it."""
    bus._connection.run(bus._jetstream.publish(subject, data))


def _send_raw(bus: NatsBus, subject: bytes, headers: bytes, watermark: int | None) -> None:
    """With headers as no library would write them; without a watermark there is nothing else."""
    data = b"" if watermark is None else encode(ask(watermark))

    async def send() -> None:
        sizes = b"%d %d" % (len(headers), len(headers) + len(data))
        await bus._connection.client._send_command(b"HPUB %s  %s\r\n%s%s\r\n" % (subject, sizes, headers, data))
        await bus._connection.client.flush()

    bus._connection.run(send())


def _messages(bus: NatsBus) -> int:
    return bus._connection.run(bus._jetstream.stream_info(bus._connection.requests)).state.messages


def _purge(bus: NatsBus) -> None:
    bus._connection.run(bus._jetstream.purge_stream(bus._connection.requests))


def test_a_request_of_another_publisher_is_delivered(bus: NatsBus, prefix: str) -> None:
    mine = consumer(bus)
    _send(bus, f"{prefix}.request.namespace.42.9970", b'{"watermark": 7, "path": "42/9970", "type": "namespace"}')
    delivery = taken(mine)
    assert delivery.request == ask(7)
    _send(bus, f"{prefix}.request.namespace.42.9970", b'{"watermark": 6, "path": "42/9970/", "type": "namespace"}')
    mine.ack(delivery)
    assert mine.next(1) is None


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the request cannot be read: a request must be JSON in UTF-8"),
        (b'{"type":"global","watermark":1}', "the request is for global, its subject for 42/9970"),
        (b'{"type":"namespace","path":"42/9970/","watermark":-1}', "watermark: must be a whole number"),
    ],
)
def test_an_invalid_message_becomes_a_dead_letter_and_the_subject_continues(
    bus: NatsBus, prefix: str, data: bytes, reason: str
) -> None:
    mine = consumer(bus)
    _send(bus, f"{prefix}.request.namespace.42.9970", data)
    while not bus.dead_letters():  # A question that does not wait may come before the consumer knows of a message.
        assert mine.next() is None
    [letter] = bus.dead_letters()
    assert reason in letter.reason
    bus.publish(ask(3))
    delivery = taken(mine)
    assert delivery.request == ask(3)
    mine.ack(delivery)
    assert bus.dead_letters() == []


def test_a_trace_is_found_however_its_headers_are_written(bus: NatsBus, prefix: str) -> None:
    mine, subject = consumer(bus), f"{prefix}.request.namespace.42.9970".encode()
    for watermark, (parent, state) in enumerate(
        [("traceparent", "tracestate"), ("Traceparent", "Tracestate"), ("TRACEPARENT", "TraceState")], start=1
    ):
        _send_raw(bus, subject, f"NATS/1.0\r\n{parent}: {CALLER}\r\n{state}:a=1\r\n\r\n".encode(), watermark)
        delivery = taken(mine)
        assert (delivery.request, delivery.trace) == (ask(watermark), f"{CALLER} a=1")
        mine.ack(delivery)


def test_no_request_fails_for_its_headers_nor_the_next_one(bus: NatsBus, prefix: str) -> None:
    """Whatever the server takes. (One of these would end the library's reading for good.)"""
    mine, subject = consumer(bus), f"{prefix}.request.namespace.42.9970".encode()
    for watermark, headers in enumerate(NONSENSE, start=1):
        _send_raw(bus, subject, headers, 2 * watermark)
        delivery = taken(mine)
        assert (delivery.request, delivery.trace) == (ask(2 * watermark), ""), headers
        mine.ack(delivery)
        bus.publish(ask(2 * watermark + 1))
        delivery = taken(mine)
        assert delivery.request == ask(2 * watermark + 1), headers
        mine.ack(delivery)
    for watermark, headers in enumerate(NONSENSE, start=1_000):  # and no request at all
        _send_raw(bus, subject, headers, None)
        bus.publish(ask(watermark))
        delivery = taken(mine)
        assert delivery.request == ask(watermark), headers
        mine.ack(delivery)


def test_published_messages_carry_the_trace(bus: NatsBus, prefix: str) -> None:
    with within(f"{CALLER} a=1"):
        bus.publish(ask(1))
    bus.publish(ask(1, "1/"))
    stream = bus._connection.requests
    subjects = [f"{prefix}.request.namespace.{each}" for each in ("42.9970", "1")]
    found = [bus._connection.run(bus._jetstream.get_last_msg(stream, each)) for each in subjects]
    carried, alone = [each.headers or {} for each in found]
    assert (carried["traceparent"], carried["tracestate"]) == (CALLER, "a=1")
    assert not any(name.startswith("trace") for name in alone)


def test_a_subject_that_names_no_scope_asks_nothing_of_anybody(bus: NatsBus, prefix: str) -> None:
    mine = consumer(bus)
    _send(bus, f"{prefix}.request.namespace.Issue", b"{}")
    bus.publish(ask(1))
    mine.ack(taken(mine))
    assert mine.next() is None
    assert bus.dead_letters() == []


def test_a_stream_has_one_message_per_scope(opened: Callable[[], NatsBus]) -> None:
    first, second = opened(), opened()
    for watermark in (1, 2, 2, 1, 3):
        first.publish(ask(watermark), ask(watermark, "1/"))
        second.publish(ask(watermark))
    assert _messages(first) == 2


def test_tokens_that_are_gone_are_recreated(bus: NatsBus) -> None:
    hasty = consumer(bus, policy=Policy(backoff=(1,), ack_wait=100))
    bus.publish(ask(1))
    hasty.retry(taken(hasty), "busy")
    _purge(bus)
    assert hasty.next(0.2) is None
    bus.reconcile()
    assert taken(hasty).attempt == 2
    _purge(bus)
    again = None
    while again is None:  # until its ack wait is over
        bus.reconcile()
        again = hasty.next()
    assert (again.attempt, again.request) == (3, ask(1))


def test_a_requeue_interrupted_by_a_crash_is_completed(bus: NatsBus) -> None:
    mine = consumer(bus)
    bus.publish(ask(1))
    mine.dead(taken(mine), "bad")
    bus._connection.run(bus._slots.change(REF, request_rules.requeue))
    assert mine.next() is None
    assert bus.reconcile() == []
    assert taken(mine).request == ask(1)
    assert mine.next() is None


class _Forgetful:
    """Every second answer to what is published is lost after it had its effect."""

    def __init__(self, publish: Any) -> None:
        self._publish = publish
        self._calls = itertools.count(1)
        self.lost = 0

    async def __call__(self, context: JetStreamContext, *arguments: Any, **named: Any) -> Any:
        answer = await self._publish(context, *arguments, **named)
        if next(self._calls) % 2:
            self.lost += 1
            raise nats.errors.TimeoutError
        return answer


def test_a_call_repeated_after_a_lost_answer_has_one_effect(bus: NatsBus, monkeypatch: pytest.MonkeyPatch) -> None:
    forgetful = _Forgetful(JetStreamContext.publish)

    async def publish(context: JetStreamContext, *arguments: Any, **named: Any) -> Any:
        return await forgetful(context, *arguments, **named)

    monkeypatch.setattr(JetStreamContext, "publish", publish)
    policy = Policy(max_attempts=3, backoff=(1,), ack_wait=3_600_000, group="source", limit=1)
    mine = consumer(bus, policy=policy)
    bus.publish(ask(1))
    for attempt in (1, 2):
        delivery = taken(mine)
        assert delivery.attempt == attempt
        mine.extend(delivery)
        assert mine.retry(delivery, "busy")
    delivery = taken(mine)
    bus.publish(ask(2))
    mine.ack(delivery)
    delivery = taken(mine)
    assert (delivery.request, delivery.attempt) == (ask(2), 1)
    mine.dead(delivery, "bad")
    bus.requeue("Issue", NAMESPACE)
    again = taken(mine)
    assert again.fence == 5
    mine.ack(again)
    assert mine.next() is None
    status = bus.status
    first = status.put("status.42.Issue", {"n": 1}, revision=0)
    second = status.put("status.42.Issue", {"n": 2}, revision=first)
    status.put("status.42.Issue", {"n": 3})
    status.delete("status.42.Issue")
    assert status.get("status.42.Issue") is None
    assert second > first
    assert forgetful.lost > 10


def test_room_that_was_seen_may_be_gone(bus: NatsBus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody else was quicker."""

    async def seen(slots: Slots, policy: Policy) -> bool:
        return True

    monkeypatch.setattr(Slots, "has_room", seen)
    policy = Policy(backoff=(1,), ack_wait=3_600_000, group="source", limit=1)
    issues, notes = consumer(bus, "Issue", policy), consumer(bus, "Note", policy)
    bus.publish(ask(1))
    held = taken(issues)
    assert notes.next() is None
    issues.ack(held)
    assert taken(notes).entity == "Note"


def test_many_requests_at_once(bus: NatsBus) -> None:
    asked = [ask(1, f"{number}/") for number in range(300)]
    bus.publish(*asked)
    mine = consumer(bus)
    found: set[NamespaceRequest] = set()
    for _ in asked:
        delivery = mine.next(PATIENCE)
        assert delivery is not None
        assert isinstance(delivery.request, NamespaceRequest)
        found.add(delivery.request)
        mine.ack(delivery)
    assert found == set(asked)


def test_an_older_request_never_replaces_one_that_is_newer(
    opened: Callable[[], NatsBus], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if that comes between looking what was last asked, and asking."""
    slow, quick = opened(), opened()
    look = slow._last
    looked: list[str] = []

    async def overtaken(subject: str) -> tuple[int, int]:
        last = await look(subject)
        if not looked:
            quick.publish(ask(2))
        looked.append(subject)
        return last

    monkeypatch.setattr(slow, "_last", overtaken)
    slow.publish(ask(1))
    assert len(looked) == 2
    assert taken(consumer(slow)).request == ask(2)


def test_an_unreadable_stored_state_starts_again_with_a_warning(bus: NatsBus) -> None:
    mine = consumer(bus, policy=Policy(group="source", limit=1))
    bus.publish(ask(1))
    before = taken(mine)
    bucket = bus._slots._bucket
    for key in ("Issue.namespace.42.9970", "_group.source", "Issue.nowhere"):
        bus._connection.run(bucket.change(key, lambda _: b"junk"))
    [letter] = bus.dead_letters()
    assert "could not be read" in letter.reason
    with pytest.raises(Fenced):
        mine.ack(before)
    bus.publish(ask(2))
    delivery = taken(mine)
    assert delivery.request == ask(2)
    assert delivery.fence > before.fence
    mine.ack(delivery)
    assert bus.dead_letters() == []
    assert bus.reconcile() == []


def test_a_waiting_consumer_learns_that_the_bus_is_closed(prefix: str) -> None:
    bus = open_nats(nats_address(running_nats().url(prefix)))
    mine = bus.consumer("Issue", Kind.NAMESPACE, Policy())
    waiting = threading.Event()
    pull = mine._pull

    async def noted(wait: float) -> Any:
        waiting.set()
        return await pull(wait)

    mine._pull = noted  # type: ignore[method-assign]  # to know when it waits
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(mine.next, PATIENCE)
        assert waiting.wait(PATIENCE)
        bus.close()
        with pytest.raises(RuntimeError, match="closed"):
            asked.result()
    with pytest.raises(RuntimeError, match="closed"):
        mine.next()
