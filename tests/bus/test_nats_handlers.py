"""Handlers on NATS, which is restarted under them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from instep.bus.nats.nats_bus import open_nats
from instep.domain.clock import Timing
from instep.domain.request_rules import Policy
from instep.requests.handlers import Indexed
from instep.servers.address import nats_address
from tests.contracts.bus.fixtures import ask
from tests.jobs.handler_pools import DONE, QUICK, Told, Work, handler, pool
from tests.servers.nats import NatsServer
from tests.waiting import until

TIMES = Timing(poll=100, sweep=50)


@pytest.fixture
def server() -> Iterator[NatsServer]:
    server = NatsServer()
    server.start()
    yield server
    server.stop()


def test_handlers_continue_when_nats_is_restarted_in_mid_run(server: NatsServer) -> None:
    """Once while a handler is at work, and once while the handlers wait for requests."""
    work, told = Work(), Told()
    address = nats_address(server.url())
    bus, other = open_nats(address, patience=1.0), open_nats(address)
    policy = Policy(max_attempts=100, backoff=(1,), ack_wait=1_000)

    def restart() -> Indexed:
        server.restart()
        return DONE

    try:
        work.plan("Issue@42/9970", restart)
        other.publish(ask(1))
        with pool(bus, work, handler("Issue"), handler("Note", policy), told=told, timing=TIMES):
            until(lambda: {("Issue@42/9970", 1), ("Note@42/9970", 1)} <= set(work.done), work.done, told.lines)
            server.restart()
            other.publish(ask(2))
            until(lambda: {("Issue@42/9970", 2), ("Note@42/9970", 2)} <= set(work.done), work.done, told.lines)
            until(lambda: told.lines.count(("Issue@42/9970", "Indexed")) == 2, told.lines)
        assert work.doubled == []
        assert other.dead_letters() == []
        assert [each for each in work.asked if each[0].startswith("Issue")] == [
            ("Issue@42/9970", 1),
            ("Issue@42/9970", 2),
        ]
        assert other.consumer("Issue", handler("Issue").kind, QUICK).next(0.2) is None
    finally:
        bus.close()
        other.close()
