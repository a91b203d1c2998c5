"""Messages that other programs publish on NATS become wants in the ledger, each once, whatever they contain."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import nats.errors
import pytest
from nats.js.client import JetStreamContext

from instep.bus.bus import Inbox, Message
from instep.bus.nats.nats_bus import NatsBus, open_nats
from instep.domain.refs import PartitionRef, Scope
from instep.domain.requests import GlobalRequest, Kind, NamespaceRequest, Request, encode, subject_of
from instep.domain.wants import WantState
from instep.errors import Unknown
from instep.ledger.ledger import Ledger
from instep.ledger.open import open_ledger
from instep.requests.dead_letters import letters
from instep.requests.messages import Messages
from instep.servers.address import nats_address
from instep.system import SystemClock
from instep.telemetry.progress import Silent
from tests.contracts.bus.fixtures import NAMESPACE, TIMEOUT_SECONDS
from tests.servers.nats import running_nats

ENTITIES = {"User": Kind.GLOBAL, "Issue": Kind.NAMESPACE, "Note": Kind.NAMESPACE}
AT = 1_700_000_000_000
_numbers = itertools.count(1)


@pytest.fixture
def bus() -> Iterator[NatsBus]:
    with closing(open_nats(nats_address(running_nats().url(f"messages_{next(_numbers)}")))) as bus:
        yield bus


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with closing(open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}", clock=SystemClock())) as ledger:
        yield ledger


def messages(bus: NatsBus, ledger: Ledger) -> Messages:
    return Messages(lambda: bus, ledger, ENTITIES, Silent(), namespaces=[Scope.parse("8/1")])


def publish(bus: NatsBus, subject: str, data: bytes) -> None:
    """As another program does it."""
    connection = bus._connection
    jetstream = connection.client.jetstream()
    connection.run(jetstream.publish(f"{connection.address.prefix}.{subject}", data))


def ask(bus: NatsBus, *requests: Request) -> None:
    for each in requests:
        publish(bus, subject_of(each.scope), encode(each))


def publish_raw(bus: NatsBus, subject: str, headers: bytes, data: bytes) -> None:
    """With headers as no library would write them."""

    async def send() -> None:
        client, name = bus._connection.client, f"{bus._connection.address.prefix}.{subject}".encode()
        sizes = b"%d %d" % (len(headers), len(headers) + len(data))
        await client._send_command(b"HPUB %s  %s\r\n%s%s\r\n" % (name, sizes, headers, data))
        await client.flush()

    bus._connection.run(send())


def wanted(ledger: Ledger) -> list[tuple[tuple[str, ...], int | None]]:
    return sorted((each.refs, each.needed) for each in ledger.wants.newest(limit=100))


def test_a_message_is_a_want_for_each_entity_of_its_scope(bus: NatsBus, ledger: Ledger) -> None:
    """Whether the namespace is declared or not; the trace goes with it."""
    ask(bus, GlobalRequest(AT * 1_000), NamespaceRequest("42/9970/", AT * 1_000))
    assert messages(bus, ledger).take()
    assert wanted(ledger) == [
        (("Issue@42/9970",), AT),
        (("Note@42/9970",), AT),
        (("User@global",), AT),
    ]
    assert messages(bus, ledger).take()
    assert len(wanted(ledger)) == 3, "what was acknowledged is not delivered again"


@pytest.mark.parametrize("after", [False, True], ids=["before it is stored", "after it is stored"])
def test_a_message_that_comes_again_makes_no_second_want(
    bus: NatsBus, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, after: bool
) -> None:
    """The ledger is away for a moment: the message was not acknowledged."""
    store, gone = ledger.events.append, [True]

    def append(events: object) -> object:
        if gone and not after:
            gone.clear()
            raise Unknown("the ledger does not answer")
        done = store(events)  # type: ignore[arg-type]
        if gone:
            gone.clear()
            raise Unknown("the ledger does not answer")
        return done

    monkeypatch.setattr(ledger.events, "append", append)
    ask(bus, GlobalRequest(AT * 1_000))
    inbox = messages(bus, ledger)
    assert inbox.take()
    assert len(wanted(ledger)) == after
    for _ in range(100):
        inbox.take()
        if not unacknowledged(bus):
            break
    assert wanted(ledger) == [(("User@global",), AT)]


def test_a_message_of_a_stream_that_was_made_anew_is_another_one(ledger: Ledger) -> None:
    """The server lost its disk, say: numbers in the stream begin at 1 again."""
    address = nats_address(running_nats().url(f"messages_{next(_numbers)}"))
    for number, at in enumerate((AT, AT + 1), start=1):
        with closing(open_nats(address)) as bus:
            ask(bus, GlobalRequest(at * 1_000))
            assert messages(bus, ledger).take()
            assert len(wanted(ledger)) == number
            connection = bus._connection
            connection.run(connection.client.jetstream().delete_stream(connection.requests))
    assert wanted(ledger) == [(("User@global",), AT), (("User@global",), AT + 1)]


def open_wants(ledger: Ledger) -> list[tuple[tuple[str, ...], int | None]]:
    return sorted((each.refs, each.needed) for each in ledger.wants.newest(open_only=True))


def unacknowledged(bus: NatsBus) -> int:
    connection = bus._connection
    found = connection.run(connection.client.jetstream().consumer_info(connection.requests, "_wants"))
    return (found.num_ack_pending or 0) + (found.num_pending or 0)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"pear", "must be JSON"),
        (b'{"type":"namespace","path":"7/","watermark":1}', "it is for 7, its subject for 42/9970"),
        (b'{"type":"namespace","path":"42/9970/","watermark":9223372036854775807}', "more than a day ahead"),
    ],
)
def test_an_invalid_message_is_a_dead_letter_with_the_reason(
    bus: NatsBus, ledger: Ledger, data: bytes, reason: str
) -> None:
    publish(bus, "request.namespace.42.9970", data)
    publish(bus, "request.nowhere", b"{}")
    ask(bus, GlobalRequest(AT * 1_000))
    assert messages(bus, ledger).take()
    found = letters(ledger)
    assert [each.ref for each in found] == [PartitionRef.parse("Issue@42/9970"), PartitionRef.parse("Note@42/9970")]
    assert all(reason in each.reason for each in found)
    assert open_wants(ledger) == [(("User@global",), AT)], "it blocks nothing"
    assert unacknowledged(bus) == 0


@pytest.mark.parametrize(("path", "reason"), [("8/", "8/1 lies in namespace 8,"), ("8/1/2/", "8/1/2 lies in")])
def test_a_namespace_that_shares_rows_with_a_declared_one_is_a_dead_letter(
    bus: NatsBus, ledger: Ledger, path: str, reason: str
) -> None:
    ask(bus, NamespaceRequest(path, AT * 1_000))
    ask(bus, NamespaceRequest("8/1/", AT * 1_000))
    assert messages(bus, ledger).take()
    assert all(reason in each.reason for each in letters(ledger))
    assert len(letters(ledger)) == 2
    assert {refs for refs, _ in open_wants(ledger)} == {("Issue@8/1",), ("Note@8/1",)}
    assert unacknowledged(bus) == 0


def test_one_of_many_workers_takes_a_message(bus: NatsBus, ledger: Ledger) -> None:
    one, other = messages(bus, ledger), messages(bus, ledger)
    take: list[Callable[[], bool]] = [one.take, other.take]
    for number, each in enumerate(take * 3):
        ask(bus, NamespaceRequest(f"{number + 1}/", AT * 1_000))
        assert each()
    assert len(wanted(ledger)) == 12
    assert unacknowledged(bus) == 0


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


def taken(inbox: Inbox) -> Message:
    found = inbox.next(TIMEOUT_SECONDS)
    assert found is not None
    inbox.ack(found)
    return found


def test_a_trace_is_found_however_its_headers_are_written(bus: NatsBus, ledger: Ledger) -> None:
    for watermark, (parent, state) in enumerate(
        [("traceparent", "tracestate"), ("Traceparent", "Tracestate"), ("TRACEPARENT", "TraceState")], start=1
    ):
        headers = f"NATS/1.0\r\n{parent}: {CALLER}\r\n{state}:a=1\r\n\r\n".encode()
        publish_raw(bus, "request.global", headers, encode(GlobalRequest(watermark)))
        assert taken(bus.inbox()).trace == f"{CALLER} a=1"
    publish_raw(bus, "request.global", headers, encode(GlobalRequest(AT * 1_000)))
    messages(bus, ledger).take()
    (want,) = ledger.wants.newest()
    assert want.traceparent == f"{CALLER} a=1"


def test_no_message_fails_for_its_headers_nor_the_next_one(bus: NatsBus) -> None:
    """Whatever the server takes. (One of these would end the library's reading for good.)"""
    inbox = bus.inbox()
    for watermark, headers in enumerate(NONSENSE, start=1):
        for data in (encode(GlobalRequest(2 * watermark)), b""):
            publish_raw(bus, "request.global", headers, data)
            found = taken(inbox)
            assert (found.data, found.trace) == (data, ""), headers
        ask(bus, GlobalRequest(2 * watermark + 1))
        assert taken(inbox).data == encode(GlobalRequest(2 * watermark + 1)), headers


def test_a_purged_namespace_is_withdrawn_and_its_messages_are_not_delivered(bus: NatsBus, ledger: Ledger) -> None:
    inbox = bus.inbox()
    ask(bus, NamespaceRequest("42/9970/", 1))
    before = inbox.next(TIMEOUT_SECONDS)
    assert before is not None
    assert not inbox.withdrawn(before)
    ask(bus, NamespaceRequest("42/7/", 1), NamespaceRequest("421/", 1))
    for _ in range(2):
        bus.purge(Scope.parse("42"))
    assert inbox.withdrawn(before)
    inbox.ack(before)
    assert taken(inbox).scope == Scope.parse("421")
    assert inbox.next(0.0) is None
    ask(bus, NamespaceRequest("42/9970/", 1))
    assert taken(inbox).scope == NAMESPACE, "it can be asked for again"


def test_a_message_taken_before_its_namespace_was_deleted_is_not_done(
    bus: NatsBus, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its wants are made after those of the namespace were canceled."""
    store = ledger.events.append

    def append(events: object) -> object:
        bus.purge(NAMESPACE)
        return store(events)  # type: ignore[arg-type]

    ask(bus, NamespaceRequest("42/9970/", AT * 1_000))
    monkeypatch.setattr(ledger.events, "append", append)
    messages(bus, ledger).take()
    assert {each.state for each in ledger.wants.newest()} == {WantState.CANCELED}
    assert unacknowledged(bus) == 0


def test_a_waiting_worker_learns_that_the_bus_is_closed() -> None:
    bus = open_nats(nats_address(running_nats().url(f"messages_{next(_numbers)}")))
    inbox, waiting = bus.inbox(), threading.Event()
    pull = inbox._pull

    async def noted(wait: float) -> Any:
        waiting.set()
        return await pull(wait)

    inbox._pull = noted  # type: ignore[method-assign]  # to know when it waits
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(inbox.next, TIMEOUT_SECONDS)
        assert waiting.wait(TIMEOUT_SECONDS)
        bus.close()
        with pytest.raises(RuntimeError, match="closed"):
            asked.result()
    with pytest.raises(RuntimeError, match="closed"):
        inbox.next(0.0)


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
    status = bus.status
    first = status.put("status.42.Issue", {"n": 1}, revision=0)
    second = status.put("status.42.Issue", {"n": 2}, revision=first)
    status.put("status.42.Issue", {"n": 3})
    status.delete("status.42.Issue")
    assert status.get("status.42.Issue") is None
    assert second > first
    assert forgetful.lost > 1
