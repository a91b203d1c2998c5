"""Keys that NATS lists: all in one answer, and none that was left out in silence."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from instep.bus.nats import listing
from instep.bus.nats.listing import Found, _Answer, _end_of, find
from instep.bus.nats.nats_bus import NatsBus, open_nats
from instep.servers.address import nats_address
from tests.contracts.bus.fixtures import TIMEOUT_SECONDS
from tests.servers.nats import running_nats


@pytest.fixture
def bus() -> Iterator[NatsBus]:
    bus = open_nats(nats_address(running_nats().url("listing")))
    yield bus
    bus.close()


def listed(bus: NatsBus, pattern: str = ">") -> dict[str, Found]:
    connection = bus._connection
    return connection.run(find(connection, connection.status, pattern))


def consumers(bus: NatsBus) -> int:
    jetstream = bus._connection.client.jetstream()
    return len(bus._connection.run(jetstream.consumers_info(f"KV_{bus._connection.status}")))


def test_the_librarys_own_way_finds_the_same(bus: NatsBus, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is taken when the short one is not there any more."""
    monkeypatch.setattr(listing, "_KEPT", 3_600.0)
    status = bus.status
    for number in range(300):
        status.put(f"status.1.Entity{number}", {"n": number})
    status.put("status.1.Entity7", {"n": "again"})
    status.delete("status.1.Entity8")
    quickly = listed(bus)
    assert len(quickly) == 299
    assert quickly["status.1.Entity7"].data == b'{"n":"again"}'
    assert list(listed(bus, "status.1.Entity9")) == ["status.1.Entity9"]
    assert listed(bus, "status.2.>") == {}
    monkeypatch.setattr(bus._connection.client, "taking", lambda *_: nullcontext())
    assert listed(bus) == quickly
    assert listed(bus, "status.2.>") == {}
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while consumers(bus):  # The server is told to forget them, and not waited for.
        assert time.monotonic() < deadline


@pytest.mark.parametrize(
    ("first", "last"),
    [
        ("$JS.ACK.stream.consumer.1.71.1.17.1", "$JS.ACK.stream.consumer.1.{}.{}.17.0"),
        ("$JS.ACK.hub.account.stream.consumer.1.71.1.17.1.x", "$JS.ACK.hub.account.stream.consumer.1.{}.{}.17.0.x"),
    ],
)
def test_an_answer_with_a_gap_is_none(first: str, last: str) -> None:
    async def answered(number: int) -> dict[str, Found]:
        answer = _Answer(len("$KV.bucket."))
        answer.take("$KV.bucket.a", first, b"1", False)
        answer.take("$KV.bucket.b", last.format(90, number), b"2", False)
        await _end_of(answer, 0.0)
        return answer.found()

    assert asyncio.run(answered(2)) == {"a": Found(b"1", 71), "b": Found(b"2", 90)}
    with pytest.raises(ConnectionError):
        asyncio.run(answered(3))


def test_an_answer_that_does_not_end_is_none() -> None:
    async def answered() -> None:
        answer = _Answer(0)
        answer.take("a", "$JS.ACK.stream.consumer.1.71.1.17.1", b"1", False)
        await _end_of(answer, 0.01)

    with pytest.raises(TimeoutError):
        asyncio.run(answered())
