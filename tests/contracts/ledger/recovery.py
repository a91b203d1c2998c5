"""Recovery: the proved dead are evicted, and any worker sweeps up after the silent ones."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from instep.domain.clock import TIMING
from instep.domain.jobs import JobState, SliceState
from instep.errors import Conflict, Fenced
from instep.ledger.leases import Lease
from instep.ledger.ledger import Ledger
from instep.ledger.parts import NewPart
from instep.ledger.sweep import Swept
from tests.contracts.ledger.building import (
    OTHER,
    REF,
    START,
    VirtualClock,
    claim_all,
    complete_all,
    end,
    job_of,
    joined,
    lease_of,
    outcome,
    part_of,
    planned,
    plans,
    register,
    running,
    running_two,
    state_of_everything,
)
from tests.contracts.ledger.fixtures import Fixtures


class Recovery(Fixtures):
    # Burying one that was proved dead.

    def test_an_evicted_workers_slices_have_ended_badly(self, ledger: Ledger) -> None:
        part = running(ledger, plans(4))
        joined(ledger, "bob")
        done, *held = ledger.slices.claim("job", REF, "ann", work=10**9, limit=3)
        ledger.slices.complete(part, "ann", [outcome(done)], job_id="job")
        theirs = claim_all(ledger, "bob")
        assert ledger.workers.evict("ann") == 2
        assert [each.id for each in ledger.workers.all()] == ["bob"]
        assert ledger.slices.holds(theirs, "bob")
        again = claim_all(ledger, "bob")
        assert [(claim.slice_id, claim.attempts, claim.fence) for claim in again] == [
            (claim.slice_id, 1, 2) for claim in held
        ]
        assert job_of(ledger).slices == {SliceState.COMPLETED: 1, SliceState.PROCESSING: 3}

    def test_a_worker_is_evicted_once(self, ledger: Ledger) -> None:
        part = running(ledger, plans(2))
        claim_all(ledger)
        assert ledger.workers.evict("ann") == 2
        before = state_of_everything(ledger, part)
        assert ledger.workers.evict("ann") == 0
        assert ledger.workers.evict("unknown") == 0
        assert state_of_everything(ledger, part) == before

    def test_an_evicted_worker_takes_part_in_nothing(self, ledger: Ledger) -> None:
        running_two(ledger, plans(1), plans(1))
        ledger.workers.evict("ann")
        register(ledger, "bob")
        ledger.jobs.begin("next", "bob", {})
        for ref in (REF, OTHER):
            assert isinstance(ledger.leases.acquire(ref, "next", "bob"), Lease)
        with pytest.raises(Fenced):
            ledger.workers.heartbeat("ann", [])

    # Sweeping: silent workers.

    def test_a_sweep_finds_nothing_where_all_is_well(self, ledger: Ledger) -> None:
        assert ledger.sweep() == Swept()
        part = running(ledger, plans(2))
        claim_all(ledger)
        before = state_of_everything(ledger, part)
        assert ledger.sweep() == Swept()
        assert state_of_everything(ledger, part) == before

    def test_a_worker_is_stale_at_the_very_end_of_its_time(self, ledger: Ledger, clock: VirtualClock) -> None:
        running(ledger, plans(2))
        clock.advance(1)
        ledger.workers.heartbeat("ann", [])
        claims = claim_all(ledger)
        clock.advance(TIMING.stale - 1)
        assert ledger.sweep() == Swept()
        assert ledger.slices.holds(claims, "ann")
        clock.advance(1)
        assert ledger.sweep() == Swept(("ann",), 2)
        assert ledger.workers.all() == []
        assert not ledger.slices.holds(claims, "ann")
        assert job_of(ledger).slices == {SliceState.PENDING: 2}
        with pytest.raises(Fenced):
            ledger.workers.heartbeat("ann", [])

    def test_a_healthy_workers_slices_are_spared(self, ledger: Ledger, clock: VirtualClock) -> None:
        part = running(ledger, plans(3))
        joined(ledger, "bob")
        (lost,) = ledger.slices.claim("job", REF, "ann", work=1, limit=1)
        held = claim_all(ledger, "bob")
        clock.advance(TIMING.stale - 1)
        ledger.workers.heartbeat("bob", [claim.slice_id for claim in held])
        ledger.leases.renew(Lease(REF, "job", part.epoch, 0))
        clock.advance(1)
        assert ledger.sweep() == Swept(("ann",), 1)
        assert ledger.slices.holds(held, "bob")
        assert job_of(ledger).state is JobState.RUNNING
        (again,) = claim_all(ledger, "bob")
        assert (again.slice_id, again.attempts, again.fence) == (lost.slice_id, 1, 2)
        ledger.slices.complete(part, "bob", list(map(outcome, [*held, again])), job_id="job")
        assert end(ledger, part, worker="bob") is JobState.COMPLETED

    def test_several_silent_workers_are_evicted_at_once(self, ledger: Ledger, clock: VirtualClock) -> None:
        running(ledger, plans(6))
        joined(ledger, "bob", "cid")
        for worker in ("ann", "bob", "cid"):
            ledger.slices.claim("job", REF, worker, work=1, limit=2)
            ledger.slices.claim("job", REF, worker, work=1, limit=2)
        clock.advance(TIMING.stale)
        ledger.workers.heartbeat("bob", [])
        swept = ledger.sweep()
        assert (set(swept.workers), swept.slices, dict(swept.jobs)) == ({"ann", "cid"}, 4, {})

    def test_finished_slices_are_never_redone(self, ledger: Ledger, clock: VirtualClock) -> None:
        part = running(ledger, plans(3))
        first, second, _ = claim_all(ledger)
        ledger.slices.complete(part, "ann", [outcome(first)], job_id="job")
        ledger.slices.complete(part, "ann", [outcome(second, fail=[2])], job_id="job")
        before = (ledger.documents.entries(part.instance), ledger.failures.newest(), job_of(ledger).counts)
        clock.advance(TIMING.stale)
        assert ledger.sweep().slices == 1
        assert (ledger.documents.entries(part.instance), ledger.failures.newest(), job_of(ledger).counts) == before
        adopted = ledger.parts.adopt(lease_of(ledger, "bob"))
        assert [claim.rank for claim in claim_all(ledger, "bob")] == [2]
        assert job_of(ledger).slices == {SliceState.COMPLETED: 2, SliceState.PROCESSING: 1}
        assert adopted.instance == part.instance

    def test_two_that_sweep_do_nothing_twice(self, ledgers: Callable[[], Ledger], clock: VirtualClock) -> None:
        ledger = ledgers()
        running(ledger, plans(20, units=1))
        claim_all(ledger)
        clock.advance(TIMING.stale)
        gate = threading.Barrier(4)

        def sweep(_: int) -> Swept:
            mine = ledgers()
            gate.wait()
            return mine.sweep()

        with ThreadPoolExecutor(4) as pool:
            swept = list(pool.map(sweep, range(4)))
        assert sorted(each.workers for each in swept) == [(), (), (), ("ann",)]
        assert sorted(each.slices for each in swept) == [0, 0, 0, 20]
        ledger.parts.adopt(lease_of(ledger, "bob"))
        assert {claim.attempts for claim in claim_all(ledger, "bob")} == {1}

    # Sweeping: jobs.

    def test_a_stopping_job_becomes_stopped_when_nothing_is_in_work(self, ledger: Ledger, clock: VirtualClock) -> None:
        part = running(ledger, plans(2))
        (claim,) = ledger.slices.claim("job", REF, "ann", work=1, limit=1)
        ledger.jobs.request_stop("job", "enough")
        assert ledger.sweep() == Swept()
        ledger.slices.complete(part, "ann", [outcome(claim)], job_id="job")
        clock.advance(2)
        assert ledger.sweep() == Swept(jobs={"job": JobState.STOPPED})
        job = job_of(ledger)
        assert (job.state, job.finished_at, job.error) == (JobState.STOPPED, START + 2, "enough")
        assert lease_of(ledger, "bob", job_id="next").epoch == part.epoch + 1
        assert ledger.sweep() == Swept()

    def test_a_stopping_job_waits_for_its_slices_no_longer_than_the_grace(
        self, ledger: Ledger, clock: VirtualClock
    ) -> None:
        part = running(ledger, plans(3))
        claims = ledger.slices.claim("job", REF, "ann", work=1, limit=1)
        clock.advance(5)
        ledger.jobs.request_stop("job")
        clock.advance(TIMING.grace - 1)
        ledger.jobs.request_stop("job")
        assert ledger.sweep() == Swept()
        assert ledger.slices.holds(claims, "ann")
        clock.advance(1)
        assert ledger.sweep() == Swept(jobs={"job": JobState.STOPPED})
        assert job_of(ledger).slices == {SliceState.PENDING: 3}
        assert not ledger.slices.holds(claims, "ann")
        with pytest.raises(Fenced):
            ledger.slices.complete(part, "ann", list(map(outcome, claims)), job_id="job")
        ledger.parts.adopt(lease_of(ledger, "ann"))
        ledger.jobs.start("job")
        assert [(claim.attempts, claim.fence) for claim in claim_all(ledger)] == [(0, 2), (0, 1), (0, 1)]

    def test_a_stopping_job_of_a_silent_worker_becomes_stopped(self, ledger: Ledger, clock: VirtualClock) -> None:
        running(ledger, plans(1))
        claim_all(ledger)
        clock.advance(TIMING.stale)
        ledger.jobs.request_stop("job")
        assert ledger.sweep() == Swept(("ann",), 1, {"job": JobState.STOPPED})

    def test_the_grace_counts_anew_after_a_resume(self, ledger: Ledger, clock: VirtualClock) -> None:
        running(ledger, plans(1))
        ledger.jobs.request_stop("job")
        clock.advance(TIMING.grace)
        adopted = ledger.parts.adopt(lease_of(ledger, "ann"))
        ledger.jobs.start("job")
        claims = claim_all(ledger)
        ledger.jobs.request_stop("job")
        assert ledger.sweep() == Swept()
        ledger.slices.complete(adopted, "ann", list(map(outcome, claims)), job_id="job")

    def test_a_job_whose_planner_is_gone_is_failed(self, ledger: Ledger, clock: VirtualClock) -> None:
        lease = lease_of(ledger, "ann")
        assert ledger.sweep() == Swept(), "it is being planned"
        ledger.workers.evict("ann")
        clock.advance(3)
        assert ledger.sweep() == Swept(jobs={"job": JobState.FAILED})
        job = job_of(ledger)
        assert (job.state, job.finished_at, job.updated_at) == (JobState.FAILED, START + 3, START + 3)
        assert job.error
        assert lease_of(ledger, "bob", job_id="next").epoch == lease.epoch + 1

    def test_a_silent_planner_is_evicted_and_its_job_failed_in_one_sweep(
        self, ledger: Ledger, clock: VirtualClock
    ) -> None:
        lease = lease_of(ledger, "ann")
        clock.advance(TIMING.stale)
        assert ledger.sweep() == Swept(("ann",), 0, {"job": JobState.FAILED})
        register(ledger, "ann")
        with pytest.raises((Conflict, Fenced)):
            ledger.parts.plan("job", [NewPart(part_of(lease), plans(1))])

    @pytest.mark.parametrize("state", [JobState.READY, JobState.RUNNING, JobState.STOPPED])
    def test_a_job_that_can_be_resumed_is_left_to_a_worker_that_can(
        self, ledger: Ledger, clock: VirtualClock, state: JobState
    ) -> None:
        part = planned(ledger, plans(1))
        if state is not JobState.READY:
            ledger.jobs.start("job")
        if state is JobState.STOPPED:
            ledger.jobs.request_stop("job")
        clock.advance(10 * TIMING.stale)
        assert ledger.sweep() == Swept(("ann",))
        assert job_of(ledger).state is state
        assert ledger.jobs.unfinished(part.ref) == job_of(ledger)

    def test_ended_jobs_are_left_alone(self, ledger: Ledger, clock: VirtualClock) -> None:
        part = running(ledger, plans(2))
        complete_all(ledger, part)
        end(ledger, part)
        before = state_of_everything(ledger, part)
        clock.advance(10 * TIMING.stale)
        assert ledger.sweep() == Swept(("ann",))
        assert state_of_everything(ledger, part) == before
