"""Wants that a worker cannot plan: what spends an attempt, what spends none, and what ends one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import pytest

from instep.domain.events import Event, WantCanceled, WantCreated, WantFailed
from instep.domain.jobs import JobState
from instep.domain.refs import PartitionRef
from instep.domain.requests import Kind
from instep.domain.wants import Retries, Want, WantState
from instep.entities.plan_request import PlanOptions
from instep.errors import Away, Fenced, InstepError, Transient, Unknown, UserError
from instep.jobs.want_scheduler import WantScheduler
from instep.ledger.ledger import Ledger
from instep.ledger.open import open_ledger
from instep.planning.planner import Planner
from instep.requests.wants import fail_undeclared
from tests.doubles.clock import VirtualClock
from tests.jobs.progress_log import ProgressLog, context
from tests.jobs.quiet import Quiet

ISSUE = PartitionRef.parse("Issue@42/9970")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def ledger(tmp_path: Path, clock: VirtualClock) -> Iterator[Ledger]:
    with closing(open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}", clock=clock)) as opened:
        yield opened


@pytest.fixture
def refuse(ledger: Ledger, clock: VirtualClock) -> Callable[[InstepError], None]:
    """A worker could not plan the partition because of an error."""
    told = context(ProgressLog(), ledger=ledger, clock=clock)
    scheduler = WantScheduler(Planner({}, told, PlanOptions(), {}))
    return lambda error: scheduler._refused(ISSUE, "", error)


def want(ledger: Ledger, id: str, retries: Retries | None = None) -> None:
    ledger.events.append([WantCreated(want=id, refs=(str(ISSUE),), retries=retries)])


def found(ledger: Ledger, id: str) -> Want:
    want = ledger.wants.get(id)
    assert want is not None
    return want


@pytest.mark.parametrize("error", [Away("the source does not answer"), Transient("locked"), Unknown("gone")])
def test_a_transient_error_spends_no_attempt(
    ledger: Ledger, refuse: Callable[[InstepError], None], error: InstepError
) -> None:
    want(ledger, "w", Retries(max_attempts=1))
    for _ in range(3):
        refuse(error)
    assert (found(ledger, "w").state, found(ledger, "w").attempts) == (WantState.IDLE, 0)


def test_a_mistake_is_retried_until_its_attempts_are_spent(
    ledger: Ledger, refuse: Callable[[InstepError], None], clock: VirtualClock
) -> None:
    want(ledger, "message", Retries(max_attempts=3, backoff=(1_000,)))
    want(ledger, "person")
    error = UserError("no such column", hint="password=hunter2")
    refuse(error)
    refuse(error)  # in the pause
    assert (found(ledger, "person").state, found(ledger, "person").error) == (
        WantState.FAILED,
        "no such column. password=***",
    )
    assert (found(ledger, "message").state, found(ledger, "message").attempts) == (WantState.IDLE, 1)
    assert ledger.wants.refs_in_hand() == []
    for attempt in (2, 3):
        clock.sleep(1)
        assert ledger.wants.refs_in_hand() == [ISSUE]
        refuse(error)
        assert found(ledger, "message").attempts == attempt
    assert found(ledger, "message").given_up
    assert [each.id for each in ledger.wants.given_up()] == ["message"]
    assert ledger.wants.open_refs() == []


def test_a_want_on_what_is_not_declared_ends_with_its_reason(ledger: Ledger, clock: VirtualClock) -> None:
    """After a while: a worker of a newer project may know it."""
    want(ledger, "w")
    fail_undeclared(ledger, {"Issue": Kind.NAMESPACE}, after=600_000)
    fail_undeclared(ledger, {}, after=600_000)
    assert found(ledger, "w").state is WantState.IDLE
    clock.sleep(600)
    fail_undeclared(ledger, {"Issue": Kind.NAMESPACE}, after=600_000)
    assert found(ledger, "w").state is WantState.IDLE
    fail_undeclared(ledger, {"Issue": Kind.GLOBAL}, after=600_000)
    assert found(ledger, "w").state is WantState.FAILED
    assert found(ledger, "w").error == "the project declares no partition Issue@42/9970"


def test_an_error_that_stops_the_job_again_and_again_spends_the_attempts() -> None:
    """What was done of the job stays, and the next want goes on with it."""
    world = Quiet()
    world.want("message", Retries(max_attempts=2, backoff=(1_000,)))
    world.want("person")
    wrong = [True]

    def refuse() -> None:
        if wrong:
            raise UserError("no such column")

    world.before(world.target, "commit", refuse, times=99)
    world.work()
    person, message = world.wanted("person"), world.wanted("message")
    assert (person.state, person.error) == (WantState.FAILED, "no such column")
    assert (message.state, message.attempts, message.error) == (WantState.BUILDING, 1, "no such column")
    world.rest(900)
    world.work()
    assert world.wanted("message").given_up
    assert world.wanted("message").error == "no such column"
    (job,) = world.ledger.jobs.newest()
    assert job.state is JobState.STOPPED
    world.rest(900)
    wrong.clear()
    world.work()
    assert job.id == world.current.worked_on_by, "a job that no want waits for stays as it is"
    world.want("again")
    world.work()
    assert world.wanted("again").state is WantState.SUCCESSFUL
    assert [each.id for each in world.ledger.jobs.newest()] == [job.id]


@pytest.mark.parametrize(
    ("end", "goes"), [(WantFailed(want="w", error="no"), True), (WantCanceled(want="w"), False), (None, True)]
)
def test_a_want_that_fails_meanwhile_has_still_asked_for_its_other_targets(
    ledger: Ledger, clock: VirtualClock, end: Event | None, goes: bool
) -> None:
    """One worker begins one of them, which fails at once, while another one plans the other."""
    other = PartitionRef.parse("Beside@42/9970")
    told = context(ProgressLog(), ledger=ledger, clock=clock)
    setups: Any = {ISSUE: None, other: None}
    scheduler = WantScheduler(Planner(setups, told, PlanOptions(), {}))
    ledger.events.append([WantCreated(want="w", refs=(str(ISSUE), str(other)))])
    assert scheduler._due() == [(ISSUE, ""), (other, "")]
    if end is not None:
        ledger.events.append([end])
    with nullcontext() if goes else pytest.raises(Fenced):
        scheduler._demand([(other, "")])
    with pytest.raises(Fenced):
        scheduler._demand([(other, "v2")])
