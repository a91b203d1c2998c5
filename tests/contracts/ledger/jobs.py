"""Jobs: begun, planned, taken part in, started."""

from __future__ import annotations

import pytest

from instep.domain.clock import TIMING
from instep.domain.counts import Counts
from instep.domain.jobs import Job, JobState, PartStatus, SliceState
from instep.domain.refs import PartitionRef
from instep.errors import Conflict, Fenced
from instep.ledger.leases import Holder, Lease
from instep.ledger.ledger import Ledger
from instep.ledger.parts import NewPart
from tests.contracts.ledger.building import (
    OTHER,
    REF,
    START,
    VirtualClock,
    claim_all,
    complete_all,
    end,
    fail,
    job_of,
    joined,
    lease_of,
    new_part,
    part_of,
    plan,
    planned,
    plans,
    register,
    running,
    state_of_everything,
)
from tests.contracts.ledger.fixtures import Fixtures


class Jobs(Fixtures):
    def test_a_job_begins_without_parts(self, ledger: Ledger) -> None:
        register(ledger, "ann")
        ledger.jobs.begin("job", "ann", {"command": "run", "full_refresh": ["Document"], "limit": 7, "dry": False})
        assert ledger.jobs.get("job") == Job(
            id="job",
            state=JobState.INITIALIZING,
            worker_id="ann",
            configuration={"command": "run", "full_refresh": ["Document"], "limit": 7, "dry": False},
            created_at=START,
            started_at=None,
            updated_at=START,
            finished_at=None,
            error=None,
        )
        assert ledger.jobs.get("nothing") is None

    def test_beginning_again_changes_nothing(self, ledger: Ledger, clock: VirtualClock) -> None:
        part = running(ledger, plans(1))
        register(ledger, "bob")
        before = state_of_everything(ledger, part)
        clock.advance(1)
        ledger.jobs.begin("job", "bob", {"command": "worker"})
        assert state_of_everything(ledger, part) == before

    def test_a_job_needs_a_registered_worker(self, ledger: Ledger) -> None:
        with pytest.raises(Fenced):
            ledger.jobs.begin("job", "zombie", {})
        assert ledger.jobs.get("job") is None

    def test_a_job_is_planned_with_its_parts_and_slices(self, ledger: Ledger, clock: VirtualClock) -> None:
        part = new_part(ledger, lease_of(ledger, "ann"))
        other = new_part(ledger, lease_of(ledger, "ann", OTHER), fresh=False)
        clock.advance(4)
        ledger.parts.plan("job", [NewPart(part, plans(3)), NewPart(other, plans(2, units=5))])
        job = job_of(ledger)
        assert (job.state, job.created_at, job.updated_at, job.started_at) == (JobState.READY, START, START + 4, None)
        assert job.parts == (
            PartStatus(part, None, None, None, {SliceState.PENDING: 3}, 6, Counts()),
            PartStatus(other, None, None, None, {SliceState.PENDING: 2}, 10, Counts()),
        )
        assert (job.slices, job.units, job.counts) == ({SliceState.PENDING: 5}, 16, Counts())

    def test_a_job_is_planned_once(self, ledger: Ledger) -> None:
        part = planned(ledger, plans(1))
        before = state_of_everything(ledger, part)
        with pytest.raises(Conflict):
            ledger.parts.plan("job", [NewPart(part, plans(2))])
        assert state_of_everything(ledger, part) == before

    @pytest.mark.parametrize("loss", ["expired and taken", "handed over", "released", "never had", "another job's"])
    def test_planning_needs_the_lease_of_every_part(self, ledger: Ledger, clock: VirtualClock, loss: str) -> None:
        lease, other = lease_of(ledger, "ann"), lease_of(ledger, "ann", OTHER)
        register(ledger, "bob")
        ledger.jobs.begin("next", "bob", {})
        if loss == "expired and taken":
            clock.advance(TIMING.lease)
            ledger.leases.acquire(OTHER, "next", "bob")
        elif loss == "handed over":
            ledger.leases.transfer(other, "next")
        elif loss == "released":
            ledger.leases.release(other)
        elif loss == "never had":
            other = Lease(PartitionRef("Unknown"), "job", 1, START)
        else:
            other = lease_of(ledger, "bob", PartitionRef("Theirs"), job_id="next")
        parts = [NewPart(new_part(ledger, lease), plans(1)), NewPart(part_of(other), plans(1))]
        before = ledger.jobs.get("job"), ledger.events.rows()
        with pytest.raises(Fenced):
            ledger.parts.plan("job", parts)
        assert (ledger.jobs.get("job"), ledger.events.rows()) == before

    def test_a_job_without_slices_can_be_completed(self, ledger: Ledger) -> None:
        part = running(ledger, [])
        assert claim_all(ledger) == []
        assert end(ledger, part) is JobState.COMPLETED

    def test_a_job_with_nothing_to_do_is_forgotten(self, ledger: Ledger) -> None:
        lease_of(ledger, "ann")
        ledger.jobs.discard("job")
        assert ledger.jobs.get("job") is None
        assert ledger.jobs.newest() == []
        assert [each.job_ids for each in ledger.workers.all()] == [()]
        assert lease_of(ledger, "bob", job_id="next").epoch == 2
        ledger.jobs.discard("job")

    def test_a_job_that_was_planned_is_not_forgotten(self, ledger: Ledger) -> None:
        part = planned(ledger, plans(1))
        before = state_of_everything(ledger, part)
        with pytest.raises(Conflict):
            ledger.jobs.discard("job")
        assert state_of_everything(ledger, part) == before

    def test_jobs_are_listed_newest_first(self, ledger: Ledger, clock: VirtualClock) -> None:
        register(ledger, "ann")
        for number in range(4):
            clock.advance(1)
            ledger.jobs.begin(f"job-{9 - number}", "ann", {})
        assert [job.id for job in ledger.jobs.newest()] == ["job-6", "job-7", "job-8", "job-9"]
        assert [job.id for job in ledger.jobs.newest(2)] == ["job-6", "job-7"]
        assert ledger.jobs.newest(1) == [ledger.jobs.get("job-6")]

    def test_starting_again_changes_nothing(self, ledger: Ledger, clock: VirtualClock) -> None:
        running(ledger, plans(1))
        before = job_of(ledger)
        assert (before.state, before.started_at) == (JobState.RUNNING, START)
        clock.advance(1)
        ledger.jobs.start("job")
        assert job_of(ledger) == before

    def test_a_job_is_planned_before_it_is_started(self, ledger: Ledger) -> None:
        lease_of(ledger, "ann")
        with pytest.raises(Conflict):
            ledger.jobs.start("job")

    def test_unknown_jobs_are_refused(self, ledger: Ledger) -> None:
        lease = lease_of(ledger, "ann")
        part = part_of(lease)
        with pytest.raises(Conflict):
            ledger.jobs.start("nothing")
        with pytest.raises(Conflict):
            ledger.jobs.request_stop("nothing")
        with pytest.raises(Conflict):
            ledger.jobs.join("nothing", "ann")
        with pytest.raises((Conflict, Fenced)):
            ledger.parts.plan("nothing", [NewPart(part, plans(1))])
        with pytest.raises((Conflict, Fenced)):
            ledger.parts.finish("nothing", part, JobState.FAILED, worker_id="ann")
        assert ledger.jobs.leave("nothing", "ann") is None
        assert ledger.slices.claim("nothing", REF, "ann", work=1, limit=1) == []
        assert not ledger.parts.begin_finish("nothing", REF, "ann")

    # Taking part.

    def test_workers_join_a_job_and_leave_it(self, ledger: Ledger) -> None:
        running(ledger, plans(1))
        joined(ledger, "bob", "cid")
        ledger.jobs.join("job", "bob")
        assert [each.workers for each in ledger.open_parts.on([REF])] == [3]
        assert ledger.jobs.leave("job", "bob") is JobState.RUNNING
        assert ledger.jobs.leave("job", "bob") is JobState.RUNNING
        assert [each.workers for each in ledger.open_parts.on([REF])] == [2]
        assert {each.id: each.job_ids for each in ledger.workers.all()} == {"ann": ("job",), "bob": (), "cid": ("job",)}

    def test_joining_needs_a_registered_worker(self, ledger: Ledger) -> None:
        running(ledger, plans(1))
        with pytest.raises(Fenced):
            ledger.jobs.join("job", "zombie")
        assert [each.workers for each in ledger.open_parts.on([REF])] == [1]

    @pytest.mark.parametrize("how", ["completed", "failed"])
    def test_an_ended_job_is_not_joined(self, ledger: Ledger, how: str) -> None:
        part = running(ledger, plans(1))
        if how == "completed":
            complete_all(ledger, part)
            end(ledger, part)
        else:
            fail(ledger, part)
        register(ledger, "bob")
        with pytest.raises(Conflict):
            ledger.jobs.join("job", "bob")

    def test_a_stopped_job_is_joined_to_resume_it(self, ledger: Ledger) -> None:
        running(ledger, plans(1))
        ledger.jobs.request_stop("job")
        joined(ledger, "bob")

    def test_leaving_a_job_gives_its_slices_back_unspent(self, ledger: Ledger) -> None:
        running(ledger, plans(2))
        joined(ledger, "bob")
        (mine,) = ledger.slices.claim("job", REF, "ann", work=1, limit=1)
        (theirs,) = ledger.slices.claim("job", REF, "bob", work=1, limit=1)
        another = new_part(ledger, lease_of(ledger, "ann", OTHER, job_id="another"))
        ledger.parts.plan("another", [NewPart(another, [plan(0, [0])])])
        ledger.jobs.start("another")
        elsewhere = claim_all(ledger, "ann", "another", OTHER)
        ledger.jobs.leave("job", "ann")
        assert not ledger.slices.holds([mine], "ann")
        assert ledger.slices.holds([theirs], "bob")
        assert ledger.slices.holds(elsewhere, "ann")
        (again,) = claim_all(ledger, "bob")
        assert (again.slice_id, again.attempts, again.fence) == (mine.slice_id, 0, 2)

    def test_the_last_to_leave_can_stop_the_job(self, ledger: Ledger, clock: VirtualClock) -> None:
        part = running(ledger, plans(2))
        joined(ledger, "bob")
        claim_all(ledger)
        clock.advance(5)
        assert ledger.jobs.leave("job", "bob", stop="interrupted") is JobState.RUNNING, "ann still works on it"
        assert ledger.jobs.leave("job", "ann", stop="interrupted") is JobState.STOPPED
        job = job_of(ledger)
        assert (job.state, job.error, job.finished_at) == (JobState.STOPPED, "interrupted", START + 5)
        assert job.updated_at == START + 5
        assert job.slices == {SliceState.PENDING: 2}
        assert ledger.jobs.unfinished(REF) == job
        assert ledger.jobs.leave("job", "ann", stop="again") is JobState.STOPPED
        assert job_of(ledger) == job
        assert lease_of(ledger, "bob").epoch == part.epoch + 1

    def test_without_a_reason_a_job_is_left_to_others_as_it_is(self, ledger: Ledger) -> None:
        running(ledger, plans(1))
        assert ledger.jobs.leave("job", "ann") is JobState.RUNNING
        assert [each.workers for each in ledger.open_parts.on([REF])] == [0]

    def test_leaving_does_not_stop_a_job_that_has_ended(self, ledger: Ledger) -> None:
        fail(ledger, running(ledger, plans(1)))
        before = job_of(ledger)
        assert ledger.jobs.leave("job", "ann", stop="interrupted") is JobState.FAILED
        assert job_of(ledger) == before

    def test_a_lease_of_a_refused_plan_can_be_released(self, ledger: Ledger) -> None:
        lease = lease_of(ledger, "ann")
        ledger.leases.release(lease)
        with pytest.raises(Fenced):
            ledger.parts.plan("job", [NewPart(part_of(lease), plans(1))])
        assert not isinstance(ledger.leases.acquire(REF, "job", "ann"), Holder)
