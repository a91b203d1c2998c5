"""NATS that goes away in mid-run, and how it is opened. The servers here are the tests' own: they are killed."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from functools import partial
from typing import Any

import pytest
from nats.js.api import Header

from instep.bus.bus import Bus, Message
from instep.bus.nats.inbox import NatsInbox
from instep.bus.nats.nats_bus import NatsBus, open_nats
from instep.bus.open import open_bus
from instep.bus.status_reporter import StatusReporter
from instep.domain.refs import PartitionRef, Scope
from instep.domain.requests import Kind, NamespaceRequest, encode, subject_of
from instep.domain.status import IndexState
from instep.errors import Away, Transient, Unknown, UserError
from instep.requests.messages import Messages
from instep.servers.address import nats_address
from instep.system import SystemClock
from instep.telemetry.progress import Silent
from tests.contracts.bus.fixtures import TIMEOUT_SECONDS
from tests.doubles.clock import VirtualClock
from tests.doubles.ledger import MemoryLedger
from tests.jobs.progress_log import ProgressLog
from tests.servers.nats import NatsServer
from tests.waiting import until


@pytest.fixture
def server() -> Iterator[NatsServer]:
    server = NatsServer()
    server.start()
    yield server
    server.stop()


@pytest.fixture(params=["user", "token", "tls"])
def any_server(request: pytest.FixtureRequest) -> Iterator[NatsServer]:
    server = NatsServer(token=request.param == "token", tls=request.param == "tls")
    server.start()
    yield server
    server.stop()


def _open(url: str) -> Bus:
    return open_bus(url, MemoryLedger(VirtualClock()))


def _self(bus: Bus) -> Bus:
    return bus


def publish(bus: Bus, watermark: int, path: str) -> None:
    """As another program does it: again, until the server says that it has it."""
    assert isinstance(bus, NatsBus)
    connection, request = bus._connection, NamespaceRequest(path, watermark)
    subject = f"{connection.address.prefix}.{subject_of(request.scope)}"
    jetstream = connection.client.jetstream(timeout=connection.timeout)
    headers = {Header.MSG_ID.value: f"{path}@{watermark}"}
    connection.run(
        connection.with_retries(lambda: jetstream.publish(subject, encode(request), headers=headers), writes=True)
    )


def _put(bus: Bus, key: str, value: Mapping[str, Any]) -> bool:
    """Whether it could be put: a status key is not waited for."""
    with suppress(Transient, Unknown):
        bus.status.put(key, value)
        return True
    return False


def test_a_restart_in_mid_run_loses_and_doubles_nothing(server: NatsServer) -> None:
    """Of each scope the last message becomes a want, and no message becomes two."""
    paths, last = ("1/", "2/", "3/"), 30
    buses = [_open(server.url()) for _ in range(3)]
    clock = SystemClock()
    with closing(MemoryLedger(clock)) as ledger:
        mine = [Messages(partial(_self, bus), ledger, {"Issue": Kind.NAMESPACE}, Silent()) for bus in buses[1:]]
        over = threading.Event()

        def newest() -> dict[str, int]:
            """By scope. One that took an earlier message may store its want after that of the last one."""
            wants = sorted((each.refs[0], each.needed or 0) for each in ledger.wants.newest(limit=1_000))
            return dict(wants)

        def work(messages: Messages) -> None:
            while not over.is_set():
                messages.take()

        with ThreadPoolExecutor(2) as pool:
            tasks = [pool.submit(work, each) for each in mine]
            try:
                for watermark in range(1, last + 1):
                    for path in paths:
                        publish(buses[0], watermark * 1_000, path)
                    until(partial(_put, buses[0], "status.1.Issue", {"n": watermark}))
                    if watermark % 10 == 0:
                        server.restart()
                until(lambda: newest() == {f"Issue@{path[0]}": last for path in paths}, newest)
            finally:
                over.set()
            for task in tasks:
                task.result()
        found = [(each.refs, each.needed) for each in ledger.wants.newest(limit=1_000)]
        assert len(found) == len(set(found))
    entry = buses[0].status.get("status.1.Issue")
    assert entry is not None
    assert entry.value == {"n": last}
    for bus in buses:
        bus.close()


def test_messages_answered_while_nats_is_down_are_answered_when_it_is_up(any_server: NatsServer) -> None:
    bus = _open(any_server.url())
    publish(bus, 1, "1/")
    inbox = bus.inbox()
    assert inbox is not None
    message = inbox.next(TIMEOUT_SECONDS)
    assert message is not None
    any_server.kill()
    with ThreadPoolExecutor(2) as pool:
        asked = pool.submit(publish, bus, 2, "1/")
        answered = pool.submit(inbox.ack, message)
        any_server.restart()
        asked.result()
        answered.result()
    after = inbox.next(TIMEOUT_SECONDS)
    assert after is not None
    assert after.data == encode(NamespaceRequest("1/", 2))
    bus.close()


def test_a_connection_that_led_nowhere_is_closed_before_the_next_is_tried(server: NatsServer) -> None:
    bus = _open(server.url())
    server.kill()
    with socket.create_server(("127.0.0.1", server.port)) as impostor:
        impostor.settimeout(TIMEOUT_SECONDS)
        first, _ = impostor.accept()
        with first:
            first.sendall(b"-ERR 'not available'\r\n")
            second, _ = impostor.accept()
            with second:
                first.settimeout(TIMEOUT_SECONDS)
                assert first.recv(1) == b""
                bus.close()


def test_one_that_stays_away_is_reported_without_secrets(server: NatsServer) -> None:
    address = nats_address(server.url())
    # Asks nothing while the server is up: it may be late, too.
    bus = open_nats(address, outage=0.2)
    inbox = bus.inbox()
    message = Message("1", None, b"", "messages", token="$JS.ACK.none")
    server.kill()
    for asking, expected in (
        (lambda: bus.status.put("status.1", {}), (Unknown, Transient)),
        (lambda: bus.status.get("status.1"), Transient),
        (lambda: bus.status.under("status"), Transient),
        (lambda: inbox.next(0.0), Transient),
        (lambda: inbox.withdrawn(message), Transient),
        (lambda: bus.purge(Scope.parse("1")), (Unknown, Transient)),
    ):
        with pytest.raises(expected) as caught:
            asking()
        _demand_no_secrets(str(caught.value))
    bus.close()


def test_a_worker_that_stops_does_not_wait_for_a_bus_that_is_away(server: NatsServer) -> None:
    bus = open_nats(nats_address(server.url()), outage=3_600.0)
    with closing(MemoryLedger(SystemClock())) as ledger:
        messages = Messages(lambda: bus, ledger, {"Issue": Kind.NAMESPACE}, Silent())
        messages.take()
        inbox, asked = messages._inbox, threading.Event()
        assert isinstance(inbox, NatsInbox)
        pull = inbox._pull

        async def noted(wait: float) -> Any:
            asked.set()
            return await pull(wait)

        inbox._pull = noted  # type: ignore[method-assign]  # to know when it waits
        server.kill()
        waiting = threading.Thread(target=messages.take, daemon=True)
        waiting.start()
        assert asked.wait(TIMEOUT_SECONDS)
        messages.stop()
        bus.close()
        waiting.join(TIMEOUT_SECONDS)
        assert not waiting.is_alive()


def test_a_status_key_of_a_bus_that_is_away_delays_no_job(server: NatsServer) -> None:
    bus = open_nats(nats_address(server.url()), outage=3_600.0)
    told = ProgressLog()
    reporter = StatusReporter(lambda: bus.status, told)
    ref = PartitionRef.parse("Issue@1")
    assert reporter.tell(ref, IndexState.INDEXING, epoch=1) is None
    server.kill()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(reporter.tell, ref, IndexState.INDEXED, epoch=2)
        note = waiting.result(TIMEOUT_SECONDS)
    assert note is not None
    assert "status.1.Issue could not be written" in note
    assert reporter.unsent == {ref}
    bus.close()


def test_a_wrong_password_or_token_is_reported(any_server: NatsServer) -> None:
    with pytest.raises(UserError, match="refused the user, the password or the token") as caught:
        _open(any_server.url(password="wr0ng-s3cret"))
    _demand_no_secrets(repr(caught.value) + str(caught.value))
    assert caught.value.__cause__ is None


def test_one_that_is_not_there_is_away(server: NatsServer) -> None:
    url = server.url()
    server.kill()
    with pytest.raises(Away, match="the bus cannot be reached") as caught:
        _open(url)
    _demand_no_secrets(str(caught.value))


def _demand_no_secrets(said: str) -> None:
    for secret in (NatsServer.password, NatsServer.token, "wr0ng"):
        assert secret not in said
