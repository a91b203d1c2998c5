"""Messages that other programs publish on NATS become wants in the ledger, each once."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from instep.bus.nats.nats_bus import NatsBus, open_nats
from instep.domain.refs import PartitionRef
from instep.domain.requests import GlobalRequest, Kind, NamespaceRequest
from instep.errors import Unknown
from instep.ledger.ledger import Ledger
from instep.ledger.open import open_ledger
from instep.requests.messages import Messages
from instep.servers.address import nats_address
from instep.system import SystemClock
from instep.telemetry.progress import Silent
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
    return Messages(lambda: bus, ledger, ENTITIES, Silent())


def publish(bus: NatsBus, subject: str, data: bytes) -> None:
    async def send() -> None:
        await bus._jetstream.publish(f"{bus._prefix}.{subject}", data)

    bus._connection.run(send())


def wanted(ledger: Ledger) -> list[tuple[tuple[str, ...], int | None]]:
    return sorted((each.refs, each.needed) for each in ledger.wants.newest(limit=100))


def test_a_message_is_a_want_for_each_entity_of_its_scope(bus: NatsBus, ledger: Ledger) -> None:
    """Whether the namespace is declared or not; the trace goes with it."""
    bus.publish(GlobalRequest(AT * 1_000), NamespaceRequest("42/9970/", AT * 1_000))
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
    bus.publish(GlobalRequest(AT * 1_000))
    inbox = messages(bus, ledger)
    assert inbox.take()
    assert len(wanted(ledger)) == after
    for _ in range(100):
        inbox.take()
        if not unacknowledged(bus):
            break
    assert wanted(ledger) == [(("User@global",), AT)]


def unacknowledged(bus: NatsBus) -> int:
    async def ask() -> int:
        found = await bus._jetstream.consumer_info(bus._connection.requests, "_wants")
        return (found.num_ack_pending or 0) + (found.num_pending or 0)

    return bus._connection.run(ask())


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
    bus.publish(GlobalRequest(AT * 1_000))
    assert messages(bus, ledger).take()
    assert [each.ref for each in bus.dead_letters()] == [
        PartitionRef.parse("Issue@42/9970"),
        PartitionRef.parse("Note@42/9970"),
    ]
    assert all(reason in each.reason for each in bus.dead_letters())
    assert wanted(ledger) == [(("User@global",), AT)], "it holds up nothing"
    assert unacknowledged(bus) == 0


def test_one_of_many_workers_takes_a_message(bus: NatsBus, ledger: Ledger) -> None:
    one, other = messages(bus, ledger), messages(bus, ledger)
    take: list[Callable[[], bool]] = [one.take, other.take]
    for number, each in enumerate(take * 3):
        bus.publish(NamespaceRequest(f"{number + 1}/", AT * 1_000))
        assert each()
    assert len(wanted(ledger)) == 12
    assert unacknowledged(bus) == 0
