"""Wants: open until the instances of their partitions satisfy them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from instep.domain.events import (
    DependencyMissed,
    InstanceCreated,
    InstanceServed,
    InstanceTainted,
    WantCanceled,
    WantCreated,
    WantFailed,
)
from instep.domain.instances import InstanceState, Reason
from instep.domain.jobs import JobPart, JobState
from instep.domain.refs import PartitionRef
from instep.domain.wants import Retries, Want, WantState
from instep.errors import Conflict
from instep.ledger.ledger import Ledger
from tests.contracts.ledger.building import (
    OTHER,
    REF,
    START,
    VirtualClock,
    canonical_of,
    complete_all,
    end,
    fail,
    imported,
    plans,
    running,
)
from tests.contracts.ledger.fixtures import Fixtures

UPSTREAM = PartitionRef("Upstream")


def _ask(
    ledger: Ledger, id: str, refs: Sequence[PartitionRef] = (REF,), *, fresh_within: int | None = None, by: str = ""
) -> Want:
    ledger.events.append([WantCreated(want=id, refs=tuple(map(str, refs)), fresh_within=fresh_within, by=by)])
    return _want(ledger, id)


def _want(ledger: Ledger, id: str) -> Want:
    want = ledger.wants.get(id)
    assert want is not None
    return want


def _states(ledger: Ledger, *ids: str) -> list[WantState]:
    return [_want(ledger, each).state for each in ids]


def _finish(ledger: Ledger, part: JobPart, job_id: str = "job") -> None:
    complete_all(ledger, part, job_id=job_id)
    end(ledger, part, job_id)


class Wants(Fixtures):
    def test_four_wants_of_one_partition_are_one_job(self, ledger: Ledger, clock: VirtualClock) -> None:
        users = ["ann", "bob", "cid", "dan"]
        assert [_ask(ledger, user, by=user).state for user in users[:2]] == [WantState.IDLE] * 2
        part = running(ledger, plans(1))
        assert _states(ledger, *users[:2]) == [WantState.BUILDING] * 2
        assert [_ask(ledger, user, by=user).state for user in users[2:]] == [WantState.BUILDING] * 2
        clock.advance(5)
        _finish(ledger, part)
        for want in (_want(ledger, user) for user in users):
            assert (want.state, want.instances, want.ended_at) == (WantState.SUCCESSFUL, (part.instance,), START + 5)
        assert ledger.wants.newest(open_only=True) == []
        assert len(ledger.instances.newest(REF)) == 1

    def test_a_want_that_is_already_met_succeeds_at_once(self, ledger: Ledger, clock: VirtualClock) -> None:
        there = imported(ledger)
        clock.advance(1_000)
        want = _ask(ledger, "a")
        assert (want.state, want.ended_at, want.instances) == (WantState.SUCCESSFUL, START + 1_000, (there.uuid,))
        assert _ask(ledger, "b", fresh_within=1_000).state is WantState.SUCCESSFUL
        assert _ask(ledger, "c", fresh_within=999).state is WantState.IDLE

    def test_a_want_of_something_fresher_waits_for_a_refresh(self, ledger: Ledger, clock: VirtualClock) -> None:
        _finish(ledger, running(ledger, plans(1)))
        clock.advance(1_000)
        assert _ask(ledger, "a", fresh_within=100).state is WantState.IDLE
        part = running(ledger, plans(1), job_id="refresh", fresh=False)
        assert _states(ledger, "a") == [WantState.BUILDING]
        _finish(ledger, part, "refresh")
        assert _states(ledger, "a") == [WantState.SUCCESSFUL]

    def test_a_want_of_several_partitions_has_all_of_them_or_waits(self, ledger: Ledger) -> None:
        _ask(ledger, "both", (REF, OTHER))
        part = running(ledger, plans(1))
        assert _states(ledger, "both") == [WantState.BUILDING]
        _finish(ledger, part)
        assert _states(ledger, "both") == [WantState.IDLE]
        other = imported(ledger, OTHER)
        want = _want(ledger, "both")
        assert (want.state, want.instances) == (WantState.SUCCESSFUL, (part.instance, other.uuid))

    def test_waiting_wants_follow_the_partition_to_its_next_instance(self, ledger: Ledger, clock: VirtualClock) -> None:
        _finish(ledger, running(ledger, plans(1), job_id="first"), "first")
        clock.advance(10)
        _ask(ledger, "a", fresh_within=0)
        ledger.events.append([InstanceTainted(instance=canonical_of(ledger).uuid)])
        assert _states(ledger, "a") == [WantState.IDLE]
        failing = running(ledger, plans(1), job_id="second")
        ledger.parts.finish("second", failing, JobState.FAILED, worker_id="ann", error="no luck", retry=True)
        assert _states(ledger, "a") == [WantState.IDLE]
        part = running(ledger, plans(1), job_id="third")
        _finish(ledger, part, "third")
        assert _want(ledger, "a").instances == (part.instance,)

    @pytest.mark.parametrize("fresh", [True, False])
    def test_wants_fail_with_a_build_that_is_not_retried(self, ledger: Ledger, fresh: bool) -> None:
        part = running(ledger, plans(1), fresh=fresh)
        _ask(ledger, "a", fresh_within=None if fresh else 0)
        _ask(ledger, "elsewhere", (OTHER,))
        if not fresh:
            ledger.events.append([WantCreated(want="later", refs=(str(REF),), as_of=START + 1)])
        fail(ledger, part, error="no luck")
        ended = _want(ledger, "a" if fresh else "later")
        assert ended.state is WantState.FAILED
        assert "no luck" in (ended.error or "")
        assert _states(ledger, "elsewhere") == [WantState.IDLE]

    def test_a_want_is_canceled_once(self, ledger: Ledger) -> None:
        _ask(ledger, "a")
        ledger.events.append([WantCanceled(want="a", by="ann", why="a mistake")])
        want = _want(ledger, "a")
        assert (want.state, want.error) == (WantState.CANCELED, "canceled by ann: a mistake")
        before = ledger.events.rows()
        for wrong in (WantCanceled(want="a"), WantCanceled(want="b"), WantCreated(want="a", refs=(str(REF),))):
            with pytest.raises(Conflict):
                ledger.events.append([wrong])
        assert ledger.events.rows() == before

    def test_a_missed_dependency_is_waited_for(self, ledger: Ledger) -> None:
        users = ["ann", "bob"]
        part = running(ledger, plans(1))
        for user in users:
            _ask(ledger, user)
        ledger.events.append(
            [DependencyMissed(job="job", instances=(part.instance,), want="up", missing=(str(UPSTREAM),))]
        )
        assert _states(ledger, *users, "up") == [
            WantState.UPSTREAM_BUILDING,
            WantState.UPSTREAM_BUILDING,
            WantState.IDLE,
        ]
        assert _want(ledger, "ann").upstream == ("up",)
        assert canonical_of(ledger).waits == ("up",)
        imported(ledger, UPSTREAM)
        assert _states(ledger, *users) == [WantState.BUILDING] * 2
        _finish(ledger, part)
        assert _states(ledger, *users) == [WantState.SUCCESSFUL] * 2

    def test_a_canceled_dependency_fails_the_wants_waiting_for_it(self, ledger: Ledger) -> None:
        part = running(ledger, plans(1))
        _ask(ledger, "a")
        missed = DependencyMissed(job="job", instances=(part.instance,), want="up", missing=(str(UPSTREAM),))
        ledger.events.append([missed])
        ledger.events.append([WantCanceled(want="up", by="ann")])
        want = _want(ledger, "a")
        assert (want.state, want.upstream) == (WantState.UPSTREAM_FAILED, ("up",))
        assert str(UPSTREAM) in (want.error or "")
        assert canonical_of(ledger).state is InstanceState.MISSING

    def test_a_partition_does_not_wait_for_itself(self, ledger: Ledger) -> None:
        part = running(ledger, plans(1))
        before = ledger.events.rows()
        with pytest.raises(Conflict, match="wait for itself"):
            ledger.events.append(
                [DependencyMissed(job="job", instances=(part.instance,), want="up", missing=(str(REF),))]
            )
        assert ledger.events.rows() == before

    def test_wants_are_of_one_generation(self, ledger: Ledger) -> None:
        imported(ledger)
        ledger.events.append([WantCreated(want="a", refs=(str(REF),), generation="v2")])
        assert _states(ledger, "a") == [WantState.IDLE]
        ledger.events.append([InstanceCreated(ref=str(REF), reason=Reason.GENERATION, generation="v2")])
        assert [each.id for each in ledger.wants.newest(ref=REF, open_only=True)] == ["a"]

    def test_an_earlier_instance_can_be_served_again(self, ledger: Ledger) -> None:
        first = imported(ledger)
        part = running(ledger, plans(1))
        _finish(ledger, part)
        reading = ledger.events.state().reading(str(REF))
        assert reading is not None
        assert reading.uuid == part.instance
        ledger.events.append([InstanceServed(instance=first.uuid, by="ann")])
        assert ledger.events.state().reading(str(REF)) == ledger.instances.get(first.uuid)
        assert ledger.events.verify().differences == ()

    # Looking.

    def test_wants_are_listed_newest_first(self, ledger: Ledger) -> None:
        imported(ledger, OTHER)
        ids = ["d", "b", "c", "a"]
        for id in ids:
            _ask(ledger, id, (REF, OTHER) if id in "bc" else (OTHER,) if id == "a" else (REF,))
        assert [each.id for each in ledger.wants.newest()] == ["a", "c", "b", "d"]
        assert [each.id for each in ledger.wants.newest(limit=2)] == ["a", "c"]
        assert [each.id for each in ledger.wants.newest(ref=REF)] == ["c", "b", "d"]
        assert [each.id for each in ledger.wants.newest(ref=REF, limit=1)] == ["c"]
        assert [each.id for each in ledger.wants.newest(ref=OTHER)] == ["a", "c", "b"]
        assert [each.id for each in ledger.wants.newest(open_only=True)] == ["c", "b", "d"]
        assert [each.id for each in ledger.wants.newest(ref=OTHER, open_only=True)] == ["c", "b"]
        assert ledger.wants.newest(ref=UPSTREAM) == []
        assert ledger.wants.get("unknown") is None

    def test_wants_that_change_keep_their_place(self, ledger: Ledger) -> None:
        for id in ("a", "b", "c"):
            _ask(ledger, id)
        ledger.events.append([WantCanceled(want="a")])
        running(ledger, plans(1))
        assert [each.id for each in ledger.wants.newest()] == ["c", "b", "a"]
        assert [each.id for each in ledger.wants.newest(open_only=True)] == ["c", "b"]

    def test_a_want_pauses_between_its_attempts_and_becomes_a_dead_letter(
        self, ledger: Ledger, clock: VirtualClock
    ) -> None:
        retries = Retries(max_attempts=2, backoff=(1_000,))
        ledger.events.append([WantCreated(want="w", refs=(str(REF),), retries=retries)])
        _ask(ledger, "later", [OTHER])
        assert ledger.wants.open_refs() == ledger.wants.refs_in_hand() == sorted([REF, OTHER])
        ledger.events.append([WantFailed(want="w", error="no source")])
        assert (_want(ledger, "w").state, _want(ledger, "w").attempts) == (WantState.IDLE, 1)
        assert [each.id for each in ledger.wants.startable([REF, OTHER])] == ["later"]
        assert (ledger.wants.open_refs(), ledger.wants.refs_in_hand()) == (sorted([REF, OTHER]), [OTHER])
        with pytest.raises(Conflict):
            ledger.events.append([WantFailed(want="w", error="no source")])
        clock.sleep(1)
        assert [each.id for each in ledger.wants.startable([REF])] == ["w"]
        ledger.events.append([WantFailed(want="w", error="no source")])
        ledger.events.append([WantFailed(want="later", error="no source")])
        assert _states(ledger, "w", "later") == [WantState.FAILED] * 2
        assert [each.id for each in ledger.wants.given_up()] == ["w"]
        assert ledger.wants.open_refs() == []
        ledger.events.collect([], ["w"])
        assert ledger.wants.given_up() == []
        assert ledger.events.verify().differences == ()

    def test_a_build_that_fails_spends_an_attempt(self, ledger: Ledger, clock: VirtualClock) -> None:
        retries = Retries(max_attempts=2, backoff=(1_000,))
        part = running(ledger, plans(1))
        ledger.events.append([WantCreated(want="w", refs=(str(REF),), retries=retries)])
        fail(ledger, part)
        assert (_want(ledger, "w").state, _want(ledger, "w").attempts) == (WantState.IDLE, 1)
        assert ledger.wants.refs_in_hand() == []
        clock.sleep(1)
        assert ledger.wants.refs_in_hand() == [REF]
        assert ledger.events.verify().differences == ()
