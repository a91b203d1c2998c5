"""Handlers: what they make of requests, whatever goes wrong. The buses are real, the work is not."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from instep.bus.bus import Bus, Consumer, Delivery
from instep.bus.open import open_bus
from instep.domain.clock import Timing
from instep.domain.request_rules import Policy
from instep.domain.requests import Kind
from instep.domain.status import IndexState
from instep.errors import Away, Conflict, Fenced, InstepError, Transient, Unknown, UserError
from instep.jobs.acquisition import Busy
from instep.ledger.open import open_ledger
from instep.requests.handler_pool import HandlerPool
from instep.requests.handlers import Indexed
from instep.system import SystemClock
from tests.contracts.bus.fixtures import NAMESPACE, PATIENCE, ask, ask_global, taken
from tests.jobs.handler_pools import DONE, QUICK, TIMES, Gate, Told, Work, context, handler, pool
from tests.waiting import until

ISSUE = "Issue@42/9970"
#: Whatever counts as an attempt makes a dead letter.
ONCE = Policy(max_attempts=1, backoff=(1,), ack_wait=3_600_000)


@pytest.fixture
def buses(tmp_path: Path) -> Iterator[Callable[[], Bus]]:
    """Handles of one bus, as different servers have."""
    clock, ledgers = SystemClock(), []

    def another() -> Bus:
        ledgers.append(open_ledger(f"sqlite:///{tmp_path}/ledger.db", clock=clock))
        return open_bus(None, ledgers[-1], clock=clock, timing=TIMES)

    yield another
    for each in ledgers:
        each.close()


@pytest.fixture
def bus(buses: Callable[[], Bus]) -> Bus:
    return buses()


@pytest.fixture
def work() -> Work:
    return Work()


def nothing_left(bus: Bus, *entities: str) -> bool:
    return all(bus.consumer(each, Kind.NAMESPACE, QUICK).next(0.05) is None for each in entities)


def test_a_request_reaches_the_handlers_of_its_kind(bus: Bus, work: Work) -> None:
    bus.publish(ask(1), ask_global(2))
    handlers = [handler("Issue"), handler("Note"), handler("User", kind=Kind.GLOBAL)]
    with pool(bus, work, *handlers, until_idle=True) as mine:
        mine.wait()
    assert sorted(work.done) == [(ISSUE, 1), ("Note@42/9970", 1), ("User@global", 2)]
    assert bus.dead_letters() == []
    assert nothing_left(bus, "Issue", "Note")


def test_a_slow_entity_does_not_delay_another(bus: Bus, work: Work) -> None:
    slow = Gate()
    work.plan(ISSUE, slow)
    with pool(bus, work, handler("Issue"), handler("Note")):
        bus.publish(ask(1))
        assert slow.reached.wait(PATIENCE)
        bus.publish(ask(2), ask(1, "7/"))
        until(lambda: {("Note@42/9970", 2), ("Note@7", 1)} <= set(work.done), work.done)
        assert [each for each in work.asked if each[0].startswith("Issue")] == [(ISSUE, 1)]
        slow.open()
        until(lambda: {(ISSUE, 1), (ISSUE, 2), ("Issue@7", 1)} <= set(work.done), work.done)


def test_a_newer_request_is_done_after_the_one_in_work(bus: Bus, work: Work) -> None:
    first = Gate()
    work.plan(ISSUE, first)
    with pool(bus, work, handler("Issue")):
        bus.publish(ask(1))
        assert first.reached.wait(PATIENCE)
        bus.publish(ask(2))
        bus.publish(ask(3))
        first.open()
        until(lambda: (ISSUE, 3) in work.done, work.done)
    assert work.done == [(ISSUE, 1), (ISSUE, 3)]


def test_of_two_handlers_of_an_entity_one_works_at_a_time(buses: Callable[[], Bus], work: Work) -> None:
    here, there, office = buses(), buses(), buses()
    with pool(here, work, handler("Issue")), pool(there, work, handler("Issue")):
        for watermark in range(1, 21):
            office.publish(ask(watermark), ask(watermark, "7/"))
        until(lambda: {(ISSUE, 20), ("Issue@7", 20)} <= set(work.done), work.done)
    assert work.doubled == []
    assert len(work.asked) == len(set(work.asked))


# What work comes to.


@pytest.mark.parametrize("state", [IndexState.BACKFILLING, IndexState.INDEXING])
def test_a_request_that_is_not_indexed_yet_is_not_acknowledged(bus: Bus, work: Work, state: IndexState) -> None:
    """A consolidation that is deferred to another run, in mid-backfill."""
    told = Told()
    work.plan(ISSUE, Indexed(state, ["2 of 5 slices are in work elsewhere"]), Indexed(state))
    bus.publish(ask(1))
    with pool(bus, work, handler("Issue", ONCE), told=told):
        until(lambda: (ISSUE, 1) in work.done, work.asked)
    assert work.asked == [(ISSUE, 1)] * 3
    assert bus.dead_letters() == []
    assert ("Issue@42/9970", f"postponed: {state}; 2 of 5 slices are in work elsewhere") in told.lines


@pytest.mark.parametrize(
    "error",
    [
        Away("the source does not answer"),
        Busy("held by job 1f0c"),
        Transient("locked"),
        Unknown("gone"),
        Conflict("moved"),
        Fenced("taken over"),
    ],
)
def test_a_transient_error_spends_no_attempt(bus: Bus, work: Work, error: InstepError) -> None:
    work.plan(ISSUE, error, error)
    bus.publish(ask(1))
    with pool(bus, work, handler("Issue", ONCE)):
        until(lambda: (ISSUE, 1) in work.done, work.asked)
    assert work.asked == [(ISSUE, 1)] * 3
    assert bus.dead_letters() == []


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        (UserError("no such column", hint="password=hunter2"), "no such column. password=***"),
        (ZeroDivisionError("in a transform"), "unexpected ZeroDivisionError: in a transform"),
        (SystemExit("in a transform"), "unexpected SystemExit: in a transform"),
        (Indexed(IndexState.ERROR, ["3 slices failed"]), "Error; 3 slices failed"),
    ],
)
def test_a_mistake_is_retried_until_its_attempts_are_spent(bus: Bus, work: Work, failure: Any, reason: str) -> None:
    work.plan(ISSUE, *[failure] * 3)
    bus.publish(ask(1))
    with pool(bus, work, handler("Issue"), handler("Note")):
        until(lambda: bus.dead_letters() != [], work.asked)
        assert [each for each in work.asked if each[0] == ISSUE] == [(ISSUE, 1)] * 3
        [letter] = bus.dead_letters()
        assert (letter.entity, letter.request, letter.attempts, letter.reason) == ("Issue", ask(1), 3, reason)
        bus.publish(ask(2))  # the subject is not blocked, and a success covers the letter
        until(lambda: (ISSUE, 2) in work.done, work.asked)
        until(lambda: bus.dead_letters() == [])
        until(lambda: ("Note@42/9970", 2) in work.done)


# Handlers that end.


def test_a_stopping_pool_gives_its_deliveries_back_at_once_unspent(buses: Callable[[], Bus], work: Work) -> None:
    bus, told, gate = buses(), Told(), Gate()
    work.plan(ISSUE, gate)
    bus.publish(ask(1))
    with pool(bus, work, handler("Issue", ONCE), told=told):
        assert gate.reached.wait(PATIENCE)
    again = taken(buses().consumer("Issue", Kind.NAMESPACE, ONCE))
    assert (again.request, again.attempt) == (ask(1), 1)
    assert ("Issue@42/9970", "given back") in told.lines
    gate.open()
    until(lambda: any("let go" in line for _, line in told.lines), told.lines)


def test_work_that_fails_because_it_is_stopped_spends_no_attempt(bus: Bus, work: Work) -> None:
    gate = Gate()

    def stopped() -> Indexed:
        gate()
        raise UserError("stopped")

    work.plan(ISSUE, stopped)
    bus.publish(ask(1))
    mine = pool(bus, work, handler("Issue", ONCE), timing=Timing(poll=5))
    with mine:
        assert gate.reached.wait(PATIENCE)
        mine._stopping.set()
        gate.open()
    assert bus.dead_letters() == []
    assert taken(bus.consumer("Issue", Kind.NAMESPACE, ONCE)).attempt == 1


def test_until_idle_ends_when_nothing_can_be_taken(bus: Bus, work: Work) -> None:
    """Also when the others of a group have taken all its room."""
    group = Policy(ack_wait=3_600_000, group="source", limit=1)
    bus.publish(ask(1), ask(1, "7/"))
    with pool(bus, work, handler("Issue", group), handler("Note", group), until_idle=True) as mine:
        mine.wait()
    assert len(work.done) == 4


def test_the_last_crashed_attempt_is_reconciled_and_blocks_nothing(buses: Callable[[], Bus], work: Work) -> None:
    lost = buses()
    lost.publish(ask(1))
    taken(lost.consumer("Issue", Kind.NAMESPACE, Policy(max_attempts=1, ack_wait=1)))  # and never heard of again
    told, bus = Told(), buses()
    with pool(bus, work, handler("Note"), told=told):  # nobody asks for Issue
        until(lambda: bus.dead_letters() != [])
        until(lambda: any("became a dead letter" in line for _, line in told.lines), told.lines)
    [letter] = bus.dead_letters()
    assert (letter.entity, letter.request, letter.attempts) == ("Issue", ask(1), 1)
    bus.publish(ask(2))
    with pool(bus, work, handler("Issue"), until_idle=True) as mine:
        mine.wait()
    assert (ISSUE, 2) in work.done
    assert bus.dead_letters() == []


def test_reconciliation_comes_first(buses: Callable[[], Bus], work: Work) -> None:
    """Not only with the first sweep, which a test never has here."""
    lost, bus = buses(), buses()
    lost.publish(ask(1))
    taken(lost.consumer("Issue", Kind.NAMESPACE, Policy(max_attempts=1, ack_wait=1)))
    other = lost.consumer("Other", Kind.GLOBAL, QUICK)
    other.next(0.05)  # Until the ack wait is over, by the bus's own clock.
    beats = Beats()
    with HandlerPool([], bus, work, context(Told(), timing=TIMES, background=beats), stopping=threading.Event()):
        assert [each.entity for each in bus.dead_letters()] == ["Issue"]
        assert list(beats.tasks) == ["reconcile"]


# A bus that fails.


class Flaky:
    """A bus with its consumers, whose calls fail when a test says so."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.failing: dict[str, list[Exception]] = {}
        self.extended = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bus, name)

    def _fail(self, name: str) -> None:
        if self.failing.get(name):
            raise self.failing[name].pop(0)

    def reconcile(self) -> Any:
        self._fail("reconcile")
        return self._bus.reconcile()

    def consumer(self, name: str, kind: Kind, policy: Policy) -> Consumer:
        self._fail("consumer")
        real, flaky = self._bus.consumer(name, kind, policy), self

        class Consuming:
            name = real.name

            def __getattr__(self, call: str) -> Any:
                def made(*args: Any, **kwargs: Any) -> Any:
                    flaky._fail(call)
                    answer = getattr(real, call)(*args, **kwargs)
                    if call == "extend":
                        flaky.extended += 1
                    return answer

                return made

        return Consuming()


def test_a_bus_that_is_away_for_a_while_is_waited_for(bus: Bus, work: Work) -> None:
    flaky, told = Flaky(bus), Told()
    down: list[Exception] = [Transient("the bus does not answer")]
    flaky.failing = {"reconcile": [*down], "consumer": down * 2, "next": [*down, Unknown("?")], "ack": [Unknown("?")]}
    bus.publish(ask(1))
    with pool(flaky, work, handler("Issue"), told=told, until_idle=True) as mine:
        mine.wait()
    assert work.asked == [(ISSUE, 1)]
    assert nothing_left(bus, "Issue")
    assert ("Issue", "the bus does not answer; trying again") in told.lines


def test_an_error_of_the_bus_ends_all_handlers(bus: Bus, work: Work) -> None:
    flaky = Flaky(bus)
    flaky.failing = {"next": [UserError("the bus refused a request")]}
    with pytest.raises(UserError, match="refused"), pool(flaky, work, handler("Issue"), handler("Note")) as mine:
        mine.wait()


class Beats:
    """Implements `domain.clock.Background`: a test says when something is due."""

    def __init__(self) -> None:
        self.tasks: dict[str, tuple[float, Callable[[], bool]]] = {}

    def every(self, seconds: float, task: Callable[[], bool], name: str) -> Callable[[], None]:
        self.tasks[name] = (seconds, task)

        def stop() -> None:
            del self.tasks[name]

        return stop


def test_a_delivery_in_work_is_extended_at_a_third_of_its_ack_wait(bus: Bus, work: Work) -> None:
    flaky, gate, beats = Flaky(bus), Gate(), Beats()
    flaky.failing = {"extend": [Transient("?")]}
    work.plan(ISSUE, gate)
    bus.publish(ask(1))
    site = context(Told(), timing=TIMES, background=beats)
    policy = Policy(ack_wait=3_600_000)
    with HandlerPool([handler("Issue", policy)], flaky, work, site, stopping=threading.Event()):
        assert gate.reached.wait(PATIENCE)
        seconds, extend = beats.tasks["extend-Issue@42/9970#1"]
        assert seconds == 1_200.0
        assert extend()  # in vain, but there is time for another
        assert flaky.extended == 0
        assert extend()
        assert flaky.extended == 1
        gate.open()
        until(lambda: "extend-Issue@42/9970#1" not in beats.tasks)
        assert not extend()  # answered: there is nothing to be extended
    assert beats.tasks == {}
    assert work.done == [(ISSUE, 1)]


def test_the_answer_of_a_fenced_handler_is_dropped(buses: Callable[[], Bus], work: Work) -> None:
    bus, other, told = Flaky(buses()), buses(), Told()
    bus.failing = {"extend": [Transient("?")] * 1_000}
    found: list[Delivery] = []

    def overtaken() -> Indexed:
        found.append(taken(other.consumer("Issue", Kind.NAMESPACE, QUICK)))
        return DONE

    work.plan(ISSUE, overtaken)
    other.publish(ask(1))
    with pool(bus, work, handler("Issue", Policy(ack_wait=30)), told=told):
        until(lambda: any("let go" in line for _, line in told.lines), told.lines)
    assert (found[0].request.scope, found[0].attempt) == (NAMESPACE, 2)
    other.consumer("Issue", Kind.NAMESPACE, QUICK).ack(found[0])  # its heir's counts
    assert other.dead_letters() == []
