"""Taint, rebuild, expire: what they leave, what is to be built, and what they refuse, on a SQLite ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from instep.answers.answer import as_json
from instep.answers.instances import instance_answer
from instep.domain.instances import Instance, InstanceState, Reason
from instep.domain.jobs import JobPart, JobState
from instep.domain.refs import PartitionRef
from instep.entities.instances import Left, ending, expire, expire_overdue, overdue, rebuild, taint
from instep.errors import UserError
from instep.ledger.leases import Lease
from instep.ledger.ledger import Ledger
from instep.ledger.open import open_ledger
from instep.ledger.parts import NewPart
from tests.cli import ledgers
from tests.cli.ledgers import ANN, JOB
from tests.doubles.clock import VirtualClock

REF = PartitionRef("Document")
TICKET = PartitionRef("Ticket")
HOUR = 3_600_000


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def ledger(tmp_path: Path, clock: VirtualClock) -> Iterator[Ledger]:
    with closing(open_ledger(f"sqlite:///{tmp_path / 'ledger.db'}", clock=clock)) as opened:
        yield opened


def build(ledger: Ledger, *entities: str) -> list[Instance]:
    """One Live instance of each."""
    parts = ledgers.begin(ledger, entities=entities or ("Document",), slices=1)
    for part in parts:
        ledgers.complete(ledger, part, 1)
        ledgers.finish(ledger, part, JobState.COMPLETED)
    return [current(ledger, part.ref) for part in parts]


def current(ledger: Ledger, ref: PartitionRef = REF) -> Instance:
    found = ledger.instances.canonical(ref)
    assert found is not None
    return found


def refusal(act: Callable[[], object]) -> str:
    with pytest.raises(UserError) as caught:
        act()
    assert caught.value.hint
    return str(caught.value)


@pytest.mark.parametrize(
    ("act", "state", "reason", "words"),
    [
        (lambda ledger: taint(ledger, REF, why="broken", by="ann"), InstanceState.TAINTED, Reason.TAINT, "broken"),
        (lambda ledger: expire(ledger, REF, by="ann"), InstanceState.EXPIRED, Reason.EXPIRY, "expired"),
        (lambda ledger: rebuild(ledger, REF, by="ann"), InstanceState.LIVE, Reason.REBUILD, "replaced for a rebuild"),
    ],
)
def test_a_live_instance_is_abandoned_and_the_next_is_to_be_built(
    ledger: Ledger, act: Callable[[Ledger], Left], state: InstanceState, reason: Reason, words: str
) -> None:
    (before,) = build(ledger)
    left = act(ledger)
    assert left.changed
    assert left.old is not None
    assert left.new is not None
    assert (left.old.uuid, left.old.state, left.old.left) == (before.uuid, state, True)
    assert (left.new.state, left.new.reason, left.new.previous) == (InstanceState.MISSING, reason, before.uuid)
    assert left.new.by == "ann"
    assert words in str(ending(left.old))
    assert ending(left.new) is None
    assert current(ledger) == left.new
    served = ledger.checkpoints.get(REF)
    assert served is not None
    assert served.instance == before.uuid, "readers keep what there is"


def test_nothing_that_is_not_there_is_tainted_or_expires(ledger: Ledger) -> None:
    for act in (taint, expire):
        assert "has no Live instance" in refusal(partial(act, ledger, REF))
    build(ledger)
    taint(ledger, REF)
    events = len(ledger.events.rows())
    for act in (taint, expire):
        assert "next `instep run`" in refusal(partial(act, ledger, REF))
    assert len(ledger.events.rows()) == events


def test_an_instance_in_work_is_refused_with_its_job(ledger: Ledger) -> None:
    ledgers.begin(ledger)
    for act in (taint, expire, rebuild):
        text = refusal(partial(act, ledger, REF))
        assert f"job {JOB[:8]} builds it" in text
        assert f"instep job show {JOB[:8]}" in text


def test_a_refresh_is_waited_for(ledger: Ledger) -> None:
    (live,) = build(ledger)
    ledger.jobs.begin("job-2", ANN, {})
    lease = ledger.leases.acquire(REF, "job-2", ANN)
    assert isinstance(lease, Lease)
    part = JobPart(REF, live.uuid, f"{live.uuid}-index", {"chunker": "c1"}, 16, lease.epoch, 7, fresh=False)
    ledger.parts.plan("job-2", [NewPart(part, [ledgers.a_slice(0)])])
    assert current(ledger).state is InstanceState.REFRESHING
    for act in (taint, expire, rebuild):
        assert "job job-2 refreshes it" in refusal(partial(act, ledger, REF))


def test_a_rebuild_of_an_instance_still_to_be_built_changes_nothing(ledger: Ledger) -> None:
    nothing = rebuild(ledger, REF)
    assert (nothing.changed, nothing.old, nothing.new) == (False, None, None)
    build(ledger)
    first = rebuild(ledger, REF)
    again = rebuild(ledger, REF)
    assert first.changed
    assert not again.changed
    assert again.new == first.new


def test_a_second_taint_is_answered_with_the_first(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    (before,) = build(ledger)
    taint(ledger, REF)
    # Both looked before the first one wrote.
    monkeypatch.setattr("instep.entities.instances.live", lambda *_: before)
    text = refusal(lambda: taint(ledger, REF))
    assert "cannot be tainted now" in text
    assert "was left" in text


def test_time_to_live_counts_from_the_build(ledger: Ledger, clock: VirtualClock) -> None:
    document, ticket = build(ledger, "Document", "Ticket")
    ttls = {REF: HOUR, TICKET: 2 * HOUR, PartitionRef("Nothing"): 1}
    clock.sleep(HOUR / 1000 - 0.001)
    assert overdue(ledger, ttls) == {}
    clock.sleep(0.001)
    assert overdue(ledger, ttls) == {REF: document}
    (left,) = expire_overdue(ledger, ttls, by="ann")
    assert left.old is not None
    assert ending(left.old) == "expired: its time to live of 1h was over"
    assert current(ledger, TICKET) == ticket
    assert expire_overdue(ledger, ttls) == []


def test_an_instance_in_work_does_not_expire_by_itself(ledger: Ledger, clock: VirtualClock) -> None:
    ledgers.begin(ledger)
    clock.sleep(2 * HOUR / 1000)
    assert expire_overdue(ledger, {REF: HOUR}) == []


def test_the_details_of_an_instance_are_plain_data(ledger: Ledger) -> None:
    (built,) = build(ledger)
    taint(ledger, REF, why="broken")
    new, old = (as_json(instance_answer(each)) for each in ledger.instances.newest(REF))
    assert (old["uuid"], old["canonical"], old["ended"]) == (built.uuid, False, "tainted: broken")
    assert (old["job"], old["fingerprint"], old["counts"]["read"]) == (JOB, {"chunker": "c1"}, ledgers.UNITS)
    assert old["window"] == {"floor": 0, "target": built.target}
    assert (new["previous"], new["window"], new["counts"], new["ended"]) == (built.uuid, None, None, None)
