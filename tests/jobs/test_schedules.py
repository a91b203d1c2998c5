"""Wants of schedules: one for each tick, whatever number of workers looks; missed ticks are one."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, cast

import pytest

from instep.domain.events import WantCanceled, WantFailed
from instep.domain.jobs import JobState
from instep.domain.refs import PartitionRef
from instep.domain.schedules import Schedule
from instep.domain.wants import SCHEDULE, Retries, Want, WantState
from instep.errors import Transient, Unknown
from instep.ledger.ledger import Ledger
from instep.requests.dead_letters import drop, letters, requeue
from instep.requests.schedules import Schedules
from instep.requests.wants import make_want
from instep.system import RandomIds
from tests.cli import ledgers
from tests.doubles.clock import VirtualClock
from tests.doubles.ledger import MemoryLedger
from tests.doubles.through import replaced
from tests.jobs.test_rebuilds import refused

REF, OTHER = PartitionRef("Document"), PartitionRef("Ticket")
EVERY_FIVE = Schedule("*/5 * * * *")
MINUTE = 60_000


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(1_800_000_000_000 - 1_800_000_000_000 % (5 * MINUTE) + MINUTE)


@pytest.fixture
def ledger(clock: VirtualClock) -> Ledger:
    return MemoryLedger(clock)


def made(ledger: Ledger, ref: PartitionRef = REF, *, open_only: bool = False) -> list[Want]:
    return ledger.wants.newest(ref=ref, open_only=open_only, limit=1_000)


def build(ledger: Ledger, job_id: str = ledgers.JOB) -> None:
    parts = ledgers.begin(ledger, job_id=job_id, slices=1)
    ledgers.complete(ledger, parts[0], 1, job_id=job_id)
    ledgers.finish(ledger, parts[0], JobState.COMPLETED, job_id=job_id)


def test_all_workers_together_want_a_tick_once(ledger: Ledger, clock: VirtualClock) -> None:
    workers = [Schedules({REF: EVERY_FIVE, OTHER: Schedule("0 3 * * *")}, ledger) for _ in range(3)]
    for _ in range(4):
        assert all(each.take() for each in workers)
        clock.sleep(10)
    (want,), (other,) = made(ledger), made(ledger, OTHER)
    assert (want.by, want.needed, want.retries) == (SCHEDULE, EVERY_FIVE.latest(clock.now()), Retries())
    assert other.refs == (str(OTHER),)


def test_ticks_that_nobody_was_there_for_count_as_one(ledger: Ledger, clock: VirtualClock) -> None:
    Schedules({REF: EVERY_FIVE}, ledger).take()
    build(ledger)
    clock.sleep(24 * 3600)
    for _ in range(3):
        Schedules({REF: EVERY_FIVE}, ledger).take()
    assert len(made(ledger)) == 2
    assert [each.needed for each in made(ledger, open_only=True)] == [EVERY_FIVE.latest(clock.now())]


def test_ticks_during_a_long_build_are_one_after_it(ledger: Ledger, clock: VirtualClock) -> None:
    schedules = Schedules({REF: EVERY_FIVE}, ledger)
    schedules.take()
    parts = ledgers.begin(ledger, slices=1)
    for _ in range(20):
        clock.sleep(60)
        schedules.take()
    assert len(made(ledger)) == 1
    ledgers.complete(ledger, parts[0], 1)
    ledgers.finish(ledger, parts[0], JobState.COMPLETED)
    schedules.take()
    assert [each.needed for each in made(ledger, open_only=True)] == [EVERY_FIVE.latest(clock.now())]
    assert len(made(ledger)) == 2


def test_an_index_that_is_complete_up_to_the_tick_is_not_wanted_for_long(ledger: Ledger) -> None:
    build(ledger)
    Schedules({REF: EVERY_FIVE}, ledger).take()
    (want,) = made(ledger)
    assert want.state is WantState.SUCCESSFUL


def test_a_want_of_a_person_holds_no_tick_back(ledger: Ledger) -> None:
    make_want(ledger, "w1", [REF], by="ann")
    Schedules({REF: EVERY_FIVE}, ledger).take()
    assert sorted(each.by for each in made(ledger)) == ["ann", SCHEDULE]


def test_a_canceled_tick_does_not_come_back_and_the_next_one_does(ledger: Ledger, clock: VirtualClock) -> None:
    Schedules({REF: EVERY_FIVE}, ledger).take()
    (want,) = made(ledger)
    ledger.events.append([WantCanceled(want=want.id)])
    Schedules({REF: EVERY_FIVE}, ledger).take()
    assert made(ledger, open_only=True) == []
    clock.sleep(300)
    Schedules({REF: EVERY_FIVE}, ledger).take()
    assert len(made(ledger, open_only=True)) == 1


@pytest.mark.parametrize("answer", [drop, lambda ledger, refs: requeue(ledger, RandomIds(), refs, lambda _: Retries())])
def test_a_dead_letter_of_a_schedule_that_was_answered_does_not_come_back(
    ledger: Ledger, clock: VirtualClock, answer: Callable[[Ledger, list[PartitionRef]], object]
) -> None:
    Schedules({REF: EVERY_FIVE}, ledger).take()
    (want,) = made(ledger)
    ledger.events.append([WantFailed(want=want.id, error="no such table", final=True)])
    assert [each.want for each in letters(ledger)] == [want.id]
    answer(ledger, [REF])
    for _ in range(2):
        Schedules({REF: EVERY_FIVE}, ledger).take()
    assert letters(ledger) == []
    assert [each.id for each in made(ledger, open_only=True) if each.by == SCHEDULE] == []
    assert [each.state for each in made(ledger) if each.id == want.id] == [WantState.CANCELED]


def test_a_project_without_schedules_asks_for_nothing(ledger: Ledger) -> None:
    assert not Schedules({}, ledger).take()


@pytest.mark.parametrize("seed", range(10))
def test_each_tick_is_wanted_once_whatever_the_ledger_answers(seed: int) -> None:
    """Lost answers, refusals, and workers that begin anew: every tick is one want, no matter who looked first."""
    chance, clock = random.Random(seed), VirtualClock()
    ledger = MemoryLedger(clock)

    def append(real: Callable[..., Any], events: object) -> object:
        if chance.random() < 0.2:
            raise Transient("the ledger does not answer")
        done = real(events)
        if chance.random() < 0.3:
            raise Unknown("the ledger did not say what became of it")
        return done

    through = cast("Ledger", replaced(ledger, {"events.append": append}))
    workers = [Schedules({REF: EVERY_FIVE}, through) for _ in range(3)]
    ticks = set()
    for _ in range(40):
        clock.sleep(chance.choice([20, 90, 300]))
        if chance.random() < 0.2:
            workers[0] = Schedules({REF: EVERY_FIVE}, through)
        for each in chance.sample(workers, 3):
            each.take()
        for want in made(ledger, open_only=True):
            ticks.add(want.needed)
            if chance.random() < 0.7:
                ledger.events.append([WantCanceled(want=want.id)])
    wanted = [each.needed for each in made(ledger)]
    assert len(wanted) == len(set(wanted)) > 5
    assert all(each is not None and each % (5 * MINUTE) == 0 for each in wanted)
    assert ledger.events.verify().differences == ()


def test_a_build_that_was_refused_is_not_repeated_at_each_tick() -> None:
    world = refused()
    jobs = len(world.parts())
    Schedules({REF: EVERY_FIVE}, world.ledger).take()
    world.work()
    assert len(world.parts()) == jobs
    assert "4 of 12 documents" in world.run_once().notes[0]
