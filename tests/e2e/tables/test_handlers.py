"""Messages of other programs, a worker that does what they ask for, status that follows, a namespace that goes."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from instep.answers.status import status_matrix
from instep.bus.bus import Bus
from instep.bus.nats.nats_bus import NatsBus
from instep.container import Container
from instep.domain.refs import GLOBAL, PartitionRef, Scope
from instep.domain.requests import Kind, encode, subject_of
from instep.domain.status import IndexState
from instep.domain.wants import Retries, WantState
from instep.entities.setup import EntitySetup
from instep.jobs.namespaces import delete_namespace
from instep.jobs.serve import serve, serve_each_entity
from instep.ledger.ledger import Ledger
from instep.pipeline.engine.choice import EngineChoice
from instep.planning.context import Context
from instep.requests.dead_letters import letters, requeue
from instep.requests.messages import Messages
from instep.system import SystemClock
from instep.telemetry.progress import Silent
from tests.bus.test_nats_messages import publish
from tests.doubles.clock import VirtualClock
from tests.doubles.inbox import MemoryMessages, request_for
from tests.servers.nats import NatsServer

from .quick import QuickShop

KINDS = {"Person": Kind.GLOBAL, "Ticket": Kind.NAMESPACE, "Note": Kind.NAMESPACE}
NAMESPACES = [Scope.parse("1/2"), Scope.parse("1/3")]


@contextmanager
def opened(shop: QuickShop) -> Iterator[tuple[Container, Ledger, Bus, Context]]:
    """In real time: workers of entities have threads. Nothing is waited for that has only to pass."""
    container = shop.container()
    container.clock = SystemClock()
    container.timing = replace(container.timing, stagger=20)
    with closing(container), closing(container.ledger()) as ledger:
        context = shop.quick_context(container.context(ledger, Silent()))
        yield container, ledger, container.bus(ledger), context


def handle(
    shop: QuickShop, container: Container, context: Context, names: Sequence[str] = ("Person", "Ticket")
) -> None:
    """A worker, until nothing is asked for any more. No namespace is declared."""
    quick = replace(context, timing=replace(context.timing, poll=50))
    setups_of = shop.setups_of(container)
    serve_each_entity(
        setups_of([PartitionRef(name) for name in names if KINDS[name] is Kind.GLOBAL]),
        quick,
        setups_of=setups_of,
        open_ended=[name for name in names if KINDS[name] is Kind.NAMESPACE],
        until_idle=True,
    )


def states(bus: Bus) -> dict[str, IndexState]:
    found = status_matrix(lambda: bus.status, ["Ticket"], NAMESPACES, only=True)
    return {str(each.namespace): each.state for each in found.namespaces}


def ask(
    bus: Bus, ledger: Ledger, scopes: Sequence[Scope], names: Sequence[str] = ("Person", "Ticket"), **retries: Any
) -> None:
    """By messages on NATS, which a worker takes; without NATS by those of another bus."""
    now, kinds = SystemClock().now(), {name: KINDS[name] for name in names}
    told = MemoryMessages()
    for scope in scopes:
        if isinstance(bus, NatsBus):
            publish(bus, subject_of(scope), encode(request_for(scope, now)))
        else:
            told.publish(scope, now)
    source = bus if isinstance(bus, NatsBus) else cast("Bus", told)
    take(source, ledger, kinds, Retries(**retries))


def take(bus: Bus, ledger: Ledger, kinds: dict[str, Kind], retries: Retries | None = None) -> None:
    Messages(lambda: bus, ledger, kinds, Silent(), lambda _: retries or Retries()).take()


@pytest.fixture
def quick(tmp_path: Path) -> QuickShop:
    """Its rows are an hour old."""
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
def on_bus(kind: str, shop: QuickShop) -> Iterator[None]:
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
    shop = quick_on_any_bus
    with opened(shop) as (container, ledger, bus, context):
        assert states(bus) == {"1/2": IndexState.NOT_INDEXED, "1/3": IndexState.NOT_INDEXED}
        ask(bus, ledger, [GLOBAL, NAMESPACES[0]])
        handle(shop, container, context)
        assert states(bus) == {"1/2": IndexState.INDEXED, "1/3": IndexState.NOT_INDEXED}
        assert shop.wrong("Person") == {}
        assert {row["path"][:4] for row in shop.stored("Ticket")} == {"1/2/"}

        ask(bus, ledger, NAMESPACES)
        handle(shop, container, context)
        assert states(bus) == {"1/2": IndexState.INDEXED, "1/3": IndexState.INDEXED}
        assert shop.wrong("Person", "Ticket") == {}
        assert letters(ledger) == []
        assert {each.state for each in ledger.wants.newest()} == {WantState.SUCCESSFUL}


def test_a_failing_request_is_retried_and_becomes_a_dead_letter(quick: QuickShop) -> None:
    shop = quick
    right = (shop.root / "instep.yaml").read_text()
    shop.edit("key: id\n    scope: path", "key: idd\n    scope: path")
    with opened(shop) as (container, ledger, bus, context):
        ask(bus, ledger, [NAMESPACES[0]], max_attempts=2, backoff=(0,))
        handle(shop, container, context, ["Ticket"])
        (letter,) = letters(ledger)
        assert (str(letter.ref), letter.attempts) == ("Ticket@1/2", 2)
        assert "no column 'idd'" in letter.reason
        assert states(bus)["1/2"] is not IndexState.INDEXED
    (shop.root / "instep.yaml").write_text(right)
    with opened(shop) as (container, ledger, bus, context):
        assert requeue(ledger, container.ids, [letter.ref], lambda _: Retries()) == [letter.ref]
        assert letters(ledger) == []
        handle(shop, container, context, ["Ticket"])
        assert states(bus)["1/2"] is IndexState.INDEXED


def test_a_namespace_that_is_deleted_is_gone_and_can_come_back(quick: QuickShop) -> None:
    shop = quick
    with opened(shop) as (container, ledger, bus, context):
        ask(bus, ledger, [GLOBAL, *NAMESPACES])
        handle(shop, container, context)
        tables = shop.setup("Ticket").target
        delete_namespace(NAMESPACES[0], {"Ticket": tables}, bus, context)
        assert states(bus) == {"1/2": IndexState.NOT_INDEXED, "1/3": IndexState.INDEXED}
        for kind in ("", "OPENED"):
            assert {row["path"][:4] for row in shop.stored("Ticket", kind)} == {"1/3/"}
        assert [str(each.ref) for each in ledger.checkpoints.of_entity("Ticket")] == ["Ticket@1/3"]

        ask(bus, ledger, NAMESPACES)
        handle(shop, container, context)
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
    """Whatever still waits, also for entities that come later."""
    shop, (gone, other) = quick_on_any_bus, NAMESPACES
    names = ["Ticket", "Note"]
    with opened(shop) as (container, ledger, bus, context):
        ask(bus, ledger, NAMESPACES)
        handle(shop, container, context)
        shop.put("tickets", id=2, title="changed")
        shop.save()
        ask(bus, ledger, [other])
        if isinstance(bus, NatsBus):  # while no worker is there
            publish(bus, subject_of(gone), encode(request_for(gone, SystemClock().now())))
        else:
            ask(bus, ledger, [gone])
        delete_namespace(gone, {"Ticket": shop.setup("Ticket").target}, bus, context)
    project = shop.root / "instep.yaml"
    project.write_text(project.read_text() + NOTE)
    with opened(shop) as (container, ledger, bus, context):
        if isinstance(bus, NatsBus):
            take(bus, ledger, {name: KINDS[name] for name in names})
        ask(bus, ledger, [other], names)
        handle(shop, container, context, names)
        for name in names:
            assert [each.ref.scope for each in ledger.checkpoints.of_entity(name)] == [other]
            assert {row["path"][:4] for row in shop.stored(name)} == {other.path}
        assert states(bus) == {"1/2": IndexState.NOT_INDEXED, "1/3": IndexState.INDEXED}
        ask(bus, ledger, [gone], names)
        handle(shop, container, context, names)
        assert states(bus) == {"1/2": IndexState.INDEXED, "1/3": IndexState.INDEXED}
        assert shop.wrong("Ticket") == {}
        assert len(shop.stored("Note")) == len(shop.stored("Ticket"))


def test_a_worker_that_plans_while_its_namespace_is_deleted_lets_go(quick: QuickShop) -> None:
    with opened(quick) as (container, ledger, bus, context):
        tables = quick.setup("Ticket").target
        deleted: list[str] = []

        def choose(setup: EntitySetup, work: int, /, *, documents: int = 0) -> EngineChoice:
            """Called when the plan is made, and no worker has a lease yet."""
            if not deleted:
                deleted.append(setup.ref.label)
                delete_namespace(NAMESPACES[0], {"Ticket": tables}, bus, context)
            return context.choose(setup, work)

        ask(bus, ledger, [NAMESPACES[0]])
        handle(quick, container, replace(context, choose=choose), ["Ticket"])
        assert deleted == ["Ticket@1/2"]
        assert ledger.checkpoints.of_entity("Ticket") == []
        assert states(bus)["1/2"] is IndexState.NOT_INDEXED
        assert tables.leftovers("Ticket", idle_seconds=0) == []
        assert [each for each in ledger.jobs.newest() if not each.state.ended] == []


def test_a_worker_that_has_been_there_for_long_sees_that_a_table_has_changed(quick: QuickShop) -> None:
    quick.edit("node: {label: Person, properties: [id, name]}", "node: {label: Person}")
    with opened(quick) as (container, ledger, bus, context):
        quick_ones = replace(context, timing=replace(context.timing, poll=50))
        setups_of = quick.setups_of(container)

        def change() -> bool:
            """Once the first want has been done, and the worker is still there."""
            (want,) = ledger.wants.newest(limit=1)
            if want.state is WantState.SUCCESSFUL and not changed:
                changed.append(want.id)
                for number in range(4):
                    quick.put("people", id=number, extra=f"more {number}", at=datetime.now(UTC))
                quick.save()
                ask(bus, ledger, [GLOBAL])
                return True
            return False

        changed: list[str] = []
        ask(bus, ledger, [GLOBAL])
        people = [PartitionRef("Person")]
        serve(setups_of(people), quick_ones, until_idle=True, anew=lambda: setups_of(people), also=change)
    assert {row["id"]: row.get("extra") for row in quick.stored("Person")} == {n: f"more {n}" for n in range(4)}


def test_many_namespaces_share_the_thread_of_their_entity(quick: QuickShop) -> None:
    """However many undeclared ones are asked for."""
    with opened(quick) as (container, ledger, bus, context):
        names = set[str]()
        real = context.choose

        def choose(setup: EntitySetup, work: int, /, *, documents: int = 0) -> EngineChoice:
            names.update(each.name for each in threading.enumerate() if each.name.startswith("worker-"))
            return real(setup, work)

        ask(bus, ledger, [*NAMESPACES, *(Scope.parse(str(number)) for number in range(20, 26))])
        handle(quick, container, replace(context, choose=choose), ["Ticket"])
        assert names == {"worker-Ticket"}
        assert {each.state for each in ledger.wants.newest()} == {WantState.SUCCESSFUL}
