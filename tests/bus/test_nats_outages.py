"""NATS that goes away in mid-run, and how it is opened. The servers here are the tests' own: they are killed."""

from __future__ import annotations

import socket
import threading
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from instep.bus.bus import Bus
from instep.bus.nats.consumer import NatsConsumer
from instep.bus.nats.nats_bus import open_nats
from instep.bus.open import open_bus
from instep.domain.refs import PartitionRef
from instep.domain.request_rules import Policy
from instep.domain.requests import Kind
from instep.errors import Away, Fenced, Transient, Unknown, UserError
from instep.servers.address import nats_address
from tests.contracts.bus.fixtures import PATIENCE, PATIENT, ask, consumer, taken
from tests.doubles.clock import VirtualClock
from tests.doubles.ledger import MemoryLedger
from tests.servers.nats import NatsServer


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
    clock = VirtualClock()
    return open_bus(url, MemoryLedger(clock), clock=clock)


def test_a_restart_in_mid_run_loses_and_doubles_nothing(server: NatsServer) -> None:
    paths, names, last = ("1/", "2/", "3/"), ("Issue", "Note"), 30
    policy = Policy(max_attempts=100, backoff=(1,), ack_wait=2_000)
    lock, over = threading.Lock(), threading.Event()
    done: dict[PartitionRef, list[int]] = defaultdict(list)

    def work(bus: Bus, name: str) -> None:
        mine = consumer(bus, name, policy)
        while not over.is_set():
            delivery = mine.next(0.5)
            if delivery is None:
                continue
            try:
                mine.ack(delivery)
            except Fenced:
                continue  # Somebody else has it now, and does it.
            with lock:
                done[delivery.ref].append(delivery.request.watermark)
                ends = [done[PartitionRef(each, ask(1, path).scope)][-1:] for each in names for path in paths]
            if all(end == [last] for end in ends):
                over.set()

    buses = [_open(server.url()) for _ in range(3)]
    with ThreadPoolExecutor(5) as pool:
        tasks = [pool.submit(work, bus, name) for bus in buses[1:] for name in names]
        try:
            for watermark in range(1, last + 1):
                buses[0].publish(*[ask(watermark, path) for path in paths])
                buses[0].status.put("status.1.Issue", {"n": watermark})
                if watermark % 10 == 0:
                    server.restart()
            assert over.wait(PATIENCE), dict(done)
        finally:
            over.set()
        for task in tasks:
            task.result()
    for ref, watermarks in done.items():
        assert watermarks == sorted(set(watermarks)), ref
    entry = buses[0].status.get("status.1.Issue")
    assert entry is not None
    assert entry.value == {"n": last}
    assert buses[0].dead_letters() == []
    for bus in buses:
        bus.close()


def test_requests_made_while_nats_is_down_are_delivered_when_it_is_up(any_server: NatsServer) -> None:
    bus = _open(any_server.url())
    mine = consumer(bus, policy=Policy(backoff=(1,), ack_wait=1_000))
    bus.publish(ask(1))
    delivery = taken(mine)
    any_server.kill()
    with ThreadPoolExecutor(2) as pool:
        asked = pool.submit(bus.publish, ask(2))
        answered = pool.submit(mine.ack, delivery)
        any_server.restart()
        asked.result()
        answered.result()
    assert taken(mine).request == ask(2)
    bus.close()


def test_a_connection_that_led_nowhere_is_closed_before_the_next_is_tried(server: NatsServer) -> None:
    bus = _open(server.url())
    server.kill()
    with socket.create_server(("127.0.0.1", server.port)) as impostor:
        impostor.settimeout(PATIENCE)
        first, _ = impostor.accept()
        with first:
            first.sendall(b"-ERR 'nobody is at home'\r\n")
            second, _ = impostor.accept()
            with second:
                first.settimeout(PATIENCE)
                assert first.recv(1) == b""
                bus.close()


def test_one_that_stays_away_is_reported_without_secrets(server: NatsServer) -> None:
    address = nats_address(server.url())
    other = open_nats(address)
    other.publish(ask(1))
    delivery = taken(consumer(other))
    other.close()
    # Asks nothing while the server is up: it may be late, too.
    bus = open_nats(address, patience=0.2)
    mine = NatsConsumer("Issue", Kind.NAMESPACE, PATIENT, bus._connection, bus._slots)
    server.kill()
    for asking, expected in (
        (lambda: bus.publish(ask(2)), Unknown),
        (lambda: bus.status.put("status.1", {}), Unknown),
        (lambda: bus.status.get("status.1"), Transient),
        (lambda: bus.status.under("status"), Transient),
        (lambda: mine.ack(delivery), (Unknown, Transient)),
        (mine.next, Transient),
        (bus.dead_letters, Transient),
        (bus.reconcile, Transient),
    ):
        with pytest.raises(expected) as caught:
            asking()
        _demand_no_secrets(str(caught.value))
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
