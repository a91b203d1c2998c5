"""A job whose workers are gone is continued by another one, and zombies can do nothing to it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from instep.domain.clock import TIMING
from instep.domain.jobs import JobPart, JobState, SliceState
from instep.errors import Conflict, Fenced
from instep.ledger.leases import Lease
from instep.ledger.ledger import Ledger
from tests.contracts.ledger.building import (
    OTHER,
    REF,
    VirtualClock,
    claim_all,
    complete_all,
    end,
    fail,
    job_of,
    joined,
    lease_of,
    outcome,
    plans,
    running,
    running_two,
    state_of_everything,
    status_of,
    take_over,
)
from tests.contracts.ledger.fixtures import Fixtures


class Takeover(Fixtures):
    @pytest.mark.parametrize("how", ["expired", "evicted"])
    def test_an_adopted_part_continues_under_the_new_epoch(self, ledger: Ledger, clock: VirtualClock, how: str) -> None:
        part = running(ledger, plans(3))
        (done, *_) = ledger.slices.claim("job", REF, "ann", work=20, limit=9)
        ledger.slices.complete(part, "ann", [outcome(done)], job_id="job")
        if how == "expired":
            clock.advance(TIMING.lease)
            adopted = ledger.parts.adopt(lease_of(ledger, "bob"))
        else:
            adopted = take_over(ledger)
        assert adopted == replace(part, epoch=part.epoch + 1)
        assert adopted.base == part.base
        assert status_of(ledger).part == adopted
        assert job_of(ledger).slices == {SliceState.COMPLETED: 1, SliceState.PENDING: 2}
        again = claim_all(ledger, "bob")
        assert sorted((claim.fence, claim.attempts) for claim in again) == [(1, 0), (2, 1)]

    @pytest.mark.parametrize("how", ["expired", "evicted"])
    def test_a_zombie_can_do_nothing_after_a_takeover(self, ledger: Ledger, clock: VirtualClock, how: str) -> None:
        part = running(ledger, plans(2))
        old = claim_all(ledger)
        if how == "expired":
            clock.advance(TIMING.lease)
            adopted = ledger.parts.adopt(lease_of(ledger, "bob"))
        else:
            adopted = take_over(ledger)
        for before_claim in (True, False):
            new = [] if before_claim else claim_all(ledger, "bob")
            before = state_of_everything(ledger, adopted)
            assert not ledger.slices.holds(old, "ann")
            self._everything_fenced(ledger, part, Lease(REF, "job", part.epoch, 0))
            for each in (part, adopted):
                with pytest.raises(Fenced):
                    ledger.slices.complete(each, "ann", list(map(outcome, old)), job_id="job")
            ledger.slices.give_back(old, "ann", error="late", spent=True)
            assert not ledger.slices.split(old[0], "ann")
            ledger.leases.release(Lease(REF, "job", part.epoch, 0))
            assert state_of_everything(ledger, adopted) == before
            assert ledger.slices.holds(new, "bob")
        ledger.workers.retire("ann")
        assert ledger.slices.holds(new, "bob")

    def _everything_fenced(self, ledger: Ledger, part: JobPart, lease: Lease) -> None:
        with pytest.raises(Fenced):
            ledger.leases.renew(lease)
        with pytest.raises(Fenced):
            ledger.leases.transfer(lease, "job")
        with pytest.raises(Fenced):
            ledger.parts.adopt(lease)
        for state in (JobState.COMPLETED, JobState.FAILED):
            with pytest.raises(Fenced):
                ledger.parts.finish("job", part, state, worker_id="ann", promote=state is JobState.COMPLETED)

    def test_an_evicted_worker_can_do_nothing_though_its_job_continues_under_the_same_epoch(
        self, ledger: Ledger
    ) -> None:
        part = running(ledger, plans(2))
        joined(ledger, "bob")
        old = claim_all(ledger)
        ledger.workers.evict("ann")
        before = state_of_everything(ledger, part)
        with pytest.raises(Fenced):
            ledger.workers.heartbeat("ann", [])
        with pytest.raises(Fenced):
            ledger.jobs.join("job", "ann")
        with pytest.raises(Fenced):
            ledger.slices.complete(part, "ann", list(map(outcome, old)), job_id="job")
        assert claim_all(ledger, "ann") == []
        ledger.slices.give_back(old, "ann", spent=True)
        assert state_of_everything(ledger, part) == before
        complete_all(ledger, part, "bob")
        assert end(ledger, part, worker="bob") is JobState.COMPLETED

    def test_the_same_worker_under_a_new_fence_is_fenced_too(self, ledger: Ledger) -> None:
        part = running(ledger, plans(1))
        old = claim_all(ledger)
        ledger.slices.give_back(old, "ann", spent=False)
        new = claim_all(ledger)
        with pytest.raises(Fenced):
            ledger.slices.complete(part, "ann", list(map(outcome, old)), job_id="job")
        ledger.slices.give_back(old, "ann", spent=True)
        assert ledger.slices.holds(new, "ann")
        assert not ledger.slices.holds(old, "ann")

    def test_adopting_leaves_the_other_parts_of_a_job_alone(self, ledger: Ledger, clock: VirtualClock) -> None:
        part, other = running_two(ledger, plans(1), plans(1))
        joined(ledger, "cid")
        mine = claim_all(ledger)
        theirs = claim_all(ledger, "cid", ref=OTHER)
        clock.advance(TIMING.lease - 1)
        ledger.leases.renew(Lease(OTHER, "job", other.epoch, 0))
        clock.advance(1)
        adopted = ledger.parts.adopt(lease_of(ledger, "bob"))
        assert (status_of(ledger).part, status_of(ledger, OTHER).part) == (adopted, other)
        assert adopted.epoch == part.epoch + 1
        assert not ledger.slices.holds(mine, "ann")
        assert ledger.slices.holds(theirs, "cid")
        ledger.slices.complete(other, "cid", list(map(outcome, theirs)), job_id="job")

    def test_a_partition_that_the_job_does_not_have_cannot_be_adopted(self, ledger: Ledger) -> None:
        running(ledger, plans(1))
        with pytest.raises(Conflict):
            ledger.parts.adopt(lease_of(ledger, "ann", OTHER))

    def test_an_ended_part_cannot_be_adopted(self, ledger: Ledger) -> None:
        part, _ = running_two(ledger, plans(1), plans(1))
        complete_all(ledger, part)
        end(ledger, part)
        with pytest.raises(Conflict):
            ledger.parts.adopt(lease_of(ledger, "ann"))

    @pytest.mark.parametrize("how", ["completed", "failed"])
    def test_an_ended_job_cannot_be_adopted(self, ledger: Ledger, how: str) -> None:
        part = running(ledger, plans(1))
        if how == "completed":
            complete_all(ledger, part)
            end(ledger, part)
        else:
            fail(ledger, part)
        before = job_of(ledger)
        with pytest.raises(Conflict):
            ledger.parts.adopt(lease_of(ledger, "bob"))
        assert job_of(ledger) == before

    def test_a_job_without_a_plan_cannot_be_adopted(self, ledger: Ledger) -> None:
        lease = lease_of(ledger, "ann")
        with pytest.raises(Conflict):
            ledger.parts.adopt(lease)
