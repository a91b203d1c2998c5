"""Requests over a bus, handlers that have partitions indexed for them, status that follows, a namespace that goes."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from instep.answers.status import status_matrix
from instep.bus.bus import Bus
from instep.container import Container
from instep.domain.refs import GLOBAL, Scope
from instep.domain.request_rules import Policy
from instep.domain.requests import Kind
from instep.domain.status import IndexState
from instep.entities.setup import EntitySetup
from instep.jobs.namespaces import delete_namespace
from instep.ledger.ledger import Ledger
from instep.pipeline.engine.choice import EngineChoice
from instep.planning.context import Context
from instep.requests.dispatch import dispatch
from instep.requests.handler_pool import HandlerPool
from instep.requests.handlers import Handler, Indexer
from instep.system import SystemClock
from instep.telemetry.progress import Silent
from tests.doubles.clock import VirtualClock
from tests.servers.nats import NatsServer

from .quick import QuickShop
from .shop import Shop

KINDS = {"Person": Kind.GLOBAL, "Ticket": Kind.NAMESPACE, "Note": Kind.NAMESPACE}
NAMESPACES = [Scope.parse("1/2"), Scope.parse("1/3")]


@contextmanager
def opened(shop: Shop) -> Iterator[tuple[Container, Ledger, Bus, Context]]:
    """In real time: handlers have threads."""
    container = shop.container()
    container.clock = SystemClock()
    with closing(container), closing(container.ledger()) as ledger:
        yield container, ledger, container.bus(ledger), container.context(ledger, Silent())


def handle(
    container: Container,
    bus: Bus,
    context: Context,
    names: Sequence[str] = ("Person", "Ticket"),
    indexer: Indexer | None = None,
) -> None:
    """Until nothing is asked for any more."""
    handlers = [Handler(name, KINDS[name], Policy()) for name in names]
    indexer = indexer or container.indexer(context, wait_seconds=60)
    stopping = threading.Event()
    quick = replace(context, timing=replace(context.timing, poll=50))
    with HandlerPool(handlers, bus, indexer, quick, stopping=stopping, until_idle=True):
        assert stopping.wait(240)


def states(bus: Bus) -> dict[str, IndexState]:
    found = status_matrix(lambda: bus.status, ["Ticket"], NAMESPACES, only=True)
    return {str(each.namespace): each.state for each in found.namespaces}


def ask(bus: Bus, scopes: Sequence[Scope]) -> None:
    now = SystemClock().now()
    dispatch(bus, KINDS, scopes, watermark=now, now=now)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    """Its rows are an hour old."""
    made = Shop(tmp_path / "shop", "type: lance, uri: index", VirtualClock(SystemClock().now() - 3_600_000))
    made.declare()
    made.fill(people=10, tickets=100)
    return made


@pytest.fixture
def quick(tmp_path: Path) -> QuickShop:
    made = QuickShop(tmp_path / "shop", "type: lance, uri: index", VirtualClock(SystemClock().now() - 3_600_000))
    made.declare()
    made.edit("slices: 3", "slices: 1")
    made.fill(people=4, tickets=20)
    return made


@pytest.fixture
def quick_on_any_bus(bus_kind: str, quick: QuickShop) -> Iterator[QuickShop]:
    with on_bus(bus_kind, quick):
        yield quick


@pytest.fixture(params=["ledger", "nats"])
def bus_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@contextmanager
def on_bus(kind: str, shop: Shop) -> Iterator[None]:
    if kind == "ledger":
        yield
        return
    server = NatsServer()
    server.start()
    try:
        shop.edit("name: shop", f"name: shop\nbus: {server.url('shop')}")
        yield
    finally:
        server.stop()


def test_a_request_is_handled_by_every_entity_of_its_scope_and_shown_in_the_matrix(quick_on_any_bus: QuickShop) -> None:
    shop, names = quick_on_any_bus, ["Person", "Ticket"]
    with opened(shop) as (container, _, bus, context):
        indexer = shop.indexer(container, context)
        assert states(bus) == {"1/2": IndexState.NOT_INDEXED, "1/3": IndexState.NOT_INDEXED}
        ask(bus, [GLOBAL, NAMESPACES[0]])
        handle(container, bus, context, names, indexer)
        assert states(bus) == {"1/2": IndexState.INDEXED, "1/3": IndexState.NOT_INDEXED}
        assert shop.wrong("Person") == {}
        assert {row["path"][:4] for row in shop.stored("Ticket")} == {"1/2/"}

        ask(bus, NAMESPACES)
        handle(container, bus, context, names, indexer)
        assert states(bus) == {"1/2": IndexState.INDEXED, "1/3": IndexState.INDEXED}
        assert shop.wrong("Person", "Ticket") == {}
        assert bus.dead_letters() == []


def test_a_failing_request_is_retried_and_becomes_a_dead_letter(shop: Shop) -> None:
    shop.edit("key: id\n    scope: path", "key: idd\n    scope: path")
    with opened(shop) as (container, _, bus, context):
        ask(bus, [NAMESPACES[0]])
        handler = Handler("Ticket", Kind.NAMESPACE, Policy(max_attempts=2, backoff=(0,)))
        stopping = threading.Event()
        quick = replace(context, timing=replace(context.timing, poll=50))
        indexer = container.indexer(context, wait_seconds=60)
        with HandlerPool([handler], bus, indexer, quick, stopping=stopping, until_idle=True):
            assert stopping.wait(240)
        (letter,) = bus.dead_letters()
        assert letter.attempts == 2
        assert "no column 'idd'" in letter.reason
        assert states(bus)["1/2"] is not IndexState.INDEXED


def test_a_namespace_that_is_deleted_is_gone_and_can_come_back(shop: Shop) -> None:
    with opened(shop) as (container, ledger, bus, context):
        ask(bus, [GLOBAL, *NAMESPACES])
        handle(container, bus, context)
        tables = shop.setup("Ticket").target
        delete_namespace(NAMESPACES[0], {"Ticket": tables}, bus, context)
        assert states(bus) == {"1/2": IndexState.NOT_INDEXED, "1/3": IndexState.INDEXED}
        for kind in ("", "OPENED"):
            assert {row["path"][:4] for row in shop.stored("Ticket", kind)} == {"1/3/"}
        assert [str(each.ref) for each in ledger.checkpoints.of_entity("Ticket")] == ["Ticket@1/3"]

        ask(bus, NAMESPACES)
        handle(container, bus, context)
        assert states(bus) == {"1/2": IndexState.INDEXED, "1/3": IndexState.INDEXED}
        assert shop.wrong("Person", "Ticket") == {}
        assert ledger.events.verify().differences == ()


#: Another entity on the same table.
NOTE = """
  Note:
    source: {type: spark, path: tickets}
    key: id
    scope: path
    watermark: at
    deleted: gone
    slices: 1
"""


def test_a_deleted_namespace_stays_away_until_it_is_requested_again(quick_on_any_bus: QuickShop) -> None:
    """Whatever still waits on the bus, also for handlers that come later."""
    shop, (gone, other) = quick_on_any_bus, NAMESPACES
    with opened(shop) as (container, _, bus, context):
        ask(bus, NAMESPACES)
        handle(container, bus, context, ["Ticket"], shop.indexer(container, context))
        shop.put("tickets", id=2, title="changed")
        shop.save()
        ask(bus, NAMESPACES)  # while no handler is there
        delete_namespace(gone, {"Ticket": shop.setup("Ticket").target}, bus, context)
    project = shop.root / "instep.yaml"
    project.write_text(project.read_text() + NOTE)
    with opened(shop) as (container, ledger, bus, context):
        indexer = shop.indexer(container, context)
        handle(container, bus, context, ["Ticket", "Note"], indexer)
        for name in ("Ticket", "Note"):
            assert [each.ref.scope for each in ledger.checkpoints.of_entity(name)] == [other]
            assert {row["path"][:4] for row in shop.stored(name)} == {other.path}
        assert states(bus) == {"1/2": IndexState.NOT_INDEXED, "1/3": IndexState.INDEXED}
        ask(bus, [gone])
        handle(container, bus, context, ["Ticket", "Note"], indexer)
        assert states(bus) == {"1/2": IndexState.INDEXED, "1/3": IndexState.INDEXED}
        assert shop.wrong("Ticket") == {}
        assert len(shop.stored("Note")) == len(shop.stored("Ticket"))


def test_a_handler_that_plans_while_its_namespace_is_deleted_lets_go(quick: QuickShop) -> None:
    with opened(quick) as (container, ledger, bus, context):
        tables = quick.setup("Ticket").target
        deleted: list[str] = []

        def choose(setup: EntitySetup, work: int) -> EngineChoice:
            """Called when the plan is made, and nobody has a lease yet."""
            if not deleted:
                deleted.append(setup.ref.label)
                delete_namespace(NAMESPACES[0], {"Ticket": tables}, bus, context)
            return context.choose(setup, work)

        ask(bus, [NAMESPACES[0]])
        handle(container, bus, context, ["Ticket"], quick.indexer(container, replace(context, choose=choose)))
        assert deleted == ["Ticket@1/2"]
        assert ledger.checkpoints.of_entity("Ticket") == []
        assert states(bus)["1/2"] is IndexState.NOT_INDEXED
        assert tables.leftovers("Ticket", idle_seconds=0) == []
        assert [each for each in ledger.jobs.newest() if not each.state.ended] == []


def test_a_handler_that_has_been_there_for_long_sees_that_a_table_has_changed(quick: QuickShop) -> None:
    quick.edit("node: {label: Person, properties: [id, name]}", "node: {label: Person}")
    with opened(quick) as (container, _, bus, context):
        indexer = quick.indexer(container, context)
        ask(bus, [GLOBAL])
        handle(container, bus, context, ["Person"], indexer)
        for number in range(4):
            quick.put("people", id=number, extra=f"more {number}", at=datetime.now(UTC))
        quick.save()
        ask(bus, [GLOBAL])
        handle(container, bus, context, ["Person"], indexer)
    assert {row["id"]: row.get("extra") for row in quick.stored("Person")} == {n: f"more {n}" for n in range(4)}
