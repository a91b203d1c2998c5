"""Workers: their rows and heartbeats, and how they end in good order."""

from __future__ import annotations

import pytest

from instep.domain.clock import TIMING
from instep.domain.jobs import SliceState
from instep.errors import Fenced
from instep.ledger.leases import Lease
from instep.ledger.ledger import Ledger
from instep.ledger.workers import WorkerInfo
from tests.contracts.ledger.building import (
    OTHER,
    REF,
    START,
    VirtualClock,
    claim_all,
    job_of,
    joined,
    lease_of,
    outcome,
    plans,
    register,
    running,
    running_two,
)
from tests.contracts.ledger.fixtures import Fixtures


class Workers(Fixtures):
    def test_the_clock_is_the_ledgers_own(self, ledger: Ledger, clock: VirtualClock) -> None:
        clock.advance(5)
        assert ledger.now() == START + 5

    def test_workers_are_listed_the_oldest_first(self, ledger: Ledger, clock: VirtualClock) -> None:
        assert ledger.workers.all() == []
        ledger.workers.register("bob", kind="worker", host="castle", pid=42)
        clock.advance(1)
        ledger.workers.register("ann", kind="run", host="tower", pid=7)
        ledger.workers.register("cid", kind="run", host="tower", pid=8)
        clock.advance(1)
        ledger.workers.heartbeat("bob", [])
        assert ledger.workers.all() == [
            WorkerInfo("bob", "worker", "castle", 42, START, START + 2),
            WorkerInfo("ann", "run", "tower", 7, START + 1, START + 1),
            WorkerInfo("cid", "run", "tower", 8, START + 1, START + 1),
        ]

    def test_a_worker_shows_its_activity(self, ledger: Ledger, clock: VirtualClock) -> None:
        running_two(ledger, plans(2), plans(1))
        joined(ledger, "bob")
        ledger.jobs.begin("another", "ann", {})
        clock.advance(3)
        ledger.slices.claim("job", REF, "ann", work=1, limit=1)
        clock.advance(4)
        claim_all(ledger)
        claim_all(ledger, ref=OTHER)
        ann, bob = sorted(ledger.workers.all(), key=lambda each: each.id)
        assert (ann.job_ids, ann.refs, ann.slices, ann.busy_since) == (("another", "job"), (REF, OTHER), 3, START + 3)
        assert (bob.job_ids, bob.refs, bob.slices, bob.busy_since) == (("job",), (), 0, None)

    def test_a_heartbeat_needs_a_registered_worker(self, ledger: Ledger) -> None:
        with pytest.raises(Fenced):
            ledger.workers.heartbeat("ann", [])
        register(ledger, "ann")
        assert ledger.workers.heartbeat("ann", []) == 0
        ledger.workers.retire("ann")
        with pytest.raises(Fenced):
            ledger.workers.heartbeat("ann", [])
        ledger.workers.retire("ann")

    def test_a_worker_that_registers_again_keeps_its_slices(self, ledger: Ledger, clock: VirtualClock) -> None:
        running(ledger, plans(1))
        claims = claim_all(ledger)
        clock.advance(5)
        ledger.workers.register("ann", kind="worker", host="here", pid=2)
        assert ledger.slices.holds(claims, "ann")
        assert ledger.workers.all() == [
            WorkerInfo("ann", "worker", "here", 2, START + 5, START + 5, ("job",), (REF,), 1, START)
        ]

    def test_a_heartbeat_gives_back_slices_that_are_not_running(self, ledger: Ledger, clock: VirtualClock) -> None:
        part = running(ledger, plans(4))
        joined(ledger, "bob")
        forgotten, *runs = ledger.slices.claim("job", REF, "ann", work=10**9, limit=3)
        theirs = claim_all(ledger, "bob")
        clock.advance(TIMING.heartbeat + 1)
        assert ledger.workers.heartbeat("ann", {claim.slice_id for claim in runs}) == 1
        assert ledger.slices.holds([*runs], "ann")
        assert ledger.slices.holds(theirs, "bob")
        assert not ledger.slices.holds([forgotten], "ann")
        with pytest.raises(Fenced):
            ledger.slices.complete(part, "ann", [outcome(forgotten)], job_id="job")
        (again,) = claim_all(ledger, "bob")
        assert (again.slice_id, again.fence, again.attempts) == (forgotten.slice_id, 2, 0)
        assert ledger.workers.heartbeat("ann", [claim.slice_id for claim in runs]) == 0

    def test_a_heartbeat_spares_slices_just_claimed(self, ledger: Ledger, clock: VirtualClock) -> None:
        running(ledger, plans(1))
        claims = claim_all(ledger)
        clock.advance(TIMING.heartbeat)
        assert ledger.workers.heartbeat("ann", []) == 0, "the reply to the claim may be on its way"
        assert ledger.slices.holds(claims, "ann")
        clock.advance(1)
        assert ledger.workers.heartbeat("ann", []) == 1
        assert not ledger.slices.holds(claims, "ann")

    def test_a_heartbeat_leaves_completed_slices_alone(self, ledger: Ledger, clock: VirtualClock) -> None:
        part = running(ledger, plans(1))
        ledger.slices.complete(part, "ann", list(map(outcome, claim_all(ledger))), job_id="job")
        clock.advance(2 * TIMING.heartbeat)
        assert ledger.workers.heartbeat("ann", []) == 0
        assert job_of(ledger).slices == {SliceState.COMPLETED: 1}

    def test_a_retired_workers_slices_are_pending_again_without_a_spent_attempt(self, ledger: Ledger) -> None:
        part = running(ledger, plans(3))
        joined(ledger, "bob")
        done, *held = claim_all(ledger)
        ledger.slices.complete(part, "ann", [outcome(done)], job_id="job")
        ledger.workers.retire("ann")
        assert job_of(ledger).slices == {SliceState.COMPLETED: 1, SliceState.PENDING: 2}
        again = claim_all(ledger, "bob")
        assert [(claim.slice_id, claim.attempts, claim.fence) for claim in again] == [
            (claim.slice_id, 0, 2) for claim in held
        ]

    def test_a_retired_worker_takes_part_in_nothing(self, ledger: Ledger) -> None:
        lease_of(ledger, "ann")
        lease_of(ledger, "ann", OTHER, job_id="another")
        ledger.workers.retire("ann")
        assert ledger.workers.all() == []
        for ref in (REF, OTHER):
            assert isinstance(lease_of(ledger, "bob", ref, job_id="next"), Lease)
