"""Stopping a job, and resuming it."""

from __future__ import annotations

import pytest

from instep.domain.events import WantCanceled, WantCreated, WantFailed
from instep.domain.jobs import JobState, SliceState
from instep.domain.wants import Retries
from instep.errors import Conflict
from instep.ledger.leases import Lease
from instep.ledger.ledger import Ledger
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
    lease_of,
    outcome,
    planned,
    plans,
    register,
    running,
    running_two,
    state_of_everything,
    take_over,
)
from tests.contracts.ledger.fixtures import Fixtures


class Stopping(Fixtures):
    def test_a_job_with_nothing_in_work_is_stopped_at_once(self, ledger: Ledger, clock: VirtualClock) -> None:
        running(ledger, plans(2))
        clock.advance(3)
        assert ledger.jobs.request_stop("job", "stopped by the user") is JobState.STOPPED
        stopped = job_of(ledger)
        assert (stopped.state, stopped.error) == (JobState.STOPPED, "stopped by the user")
        assert (stopped.finished_at, stopped.updated_at) == (START + 3, START + 3)
        assert stopped.slices == {SliceState.PENDING: 2}
        clock.advance(3)
        assert ledger.jobs.request_stop("job", "again") is JobState.STOPPED
        assert ledger.jobs.request_stop("job", "stopped by another") is JobState.STOPPED
        assert job_of(ledger) == stopped

    def test_a_persons_stop_replaces_a_machines_stop(self, ledger: Ledger) -> None:
        running(ledger, plans(1))
        assert ledger.jobs.leave("job", "ann", stop="the target is away") is JobState.STOPPED
        assert not job_of(ledger).stopped_by_people
        assert ledger.jobs.request_stop("job", "stopped by ann") is JobState.STOPPED
        assert (job_of(ledger).error, job_of(ledger).stopped_by_people) == ("stopped by ann", True)
        ledger.jobs.explain_stop("job", "the embedder refuses")
        assert job_of(ledger).error == "stopped by ann"

    def test_a_newer_reason_of_a_stopped_job_replaces_the_older_one(self, ledger: Ledger, clock: VirtualClock) -> None:
        running(ledger, plans(1))
        ledger.jobs.explain_stop("job", "the embedder refuses")
        assert (job_of(ledger).state, job_of(ledger).error) == (JobState.RUNNING, None)
        assert ledger.jobs.leave("job", "ann", stop="its run was interrupted") is JobState.STOPPED
        ended = job_of(ledger).finished_at
        clock.advance(3)
        ledger.jobs.explain_stop("job", "the embedder refuses")
        stopped = job_of(ledger)
        assert (stopped.state, stopped.error) == (JobState.STOPPED, "the embedder refuses")
        assert (stopped.finished_at, stopped.updated_at) == (ended, START + 3)

    def test_leaving_a_stopping_job_keeps_its_reason(self, ledger: Ledger) -> None:
        running(ledger, plans(2))
        ledger.slices.claim("job", REF, "ann", work=1, limit=1)
        assert ledger.jobs.request_stop("job", "stopped by ann") is JobState.STOPPING
        assert ledger.jobs.leave("job", "ann", stop="its target is away") is JobState.STOPPED
        assert job_of(ledger).error == "stopped by ann"

    @pytest.mark.parametrize("state", [JobState.INITIALIZING, JobState.READY])
    def test_a_job_can_be_stopped_before_it_runs(self, ledger: Ledger, state: JobState) -> None:
        if state is JobState.READY:
            planned(ledger, plans(1))
        else:
            lease_of(ledger, "ann")
        assert job_of(ledger).state is state
        assert ledger.jobs.request_stop("job") is JobState.STOPPED

    def test_a_job_with_slices_in_work_is_stopping(self, ledger: Ledger) -> None:
        part = running(ledger, plans(2))
        claims = ledger.slices.claim("job", REF, "ann", work=1, limit=1)
        assert ledger.jobs.request_stop("job", "enough") is JobState.STOPPING
        job = job_of(ledger)
        assert (job.state, job.error, job.finished_at) == (JobState.STOPPING, "enough", None)
        assert claim_all(ledger) == []
        ledger.jobs.start("job")
        assert job_of(ledger).state is JobState.STOPPING, "a stop that was asked for stands"
        assert isinstance(ledger.leases.renew(Lease(REF, "job", part.epoch, 0)), Lease)
        ledger.slices.complete(part, "ann", list(map(outcome, claims)), job_id="job")
        assert job_of(ledger).slices == {SliceState.COMPLETED: 1, SliceState.PENDING: 1}
        assert ledger.jobs.leave("job", "ann", stop="enough") is JobState.STOPPED

    def test_a_stopped_job_frees_its_leases(self, ledger: Ledger) -> None:
        running_two(ledger, plans(1), plans(1))
        ledger.jobs.request_stop("job")
        register(ledger, "bob")
        ledger.jobs.begin("next", "bob", {})
        for ref in (REF, OTHER):
            assert isinstance(ledger.leases.acquire(ref, "next", "bob"), Lease)

    def test_a_stopped_job_is_resumed_where_it_was(self, ledger: Ledger, clock: VirtualClock) -> None:
        part = running(ledger, plans(3))
        (done,) = ledger.slices.claim("job", REF, "ann", work=1, limit=1)
        ledger.slices.complete(part, "ann", [outcome(done)], job_id="job")
        ledger.jobs.request_stop("job", "enough")
        ledger.jobs.leave("job", "ann")
        clock.advance(1)
        adopted = ledger.parts.adopt(lease_of(ledger, "bob"))
        assert job_of(ledger).state is JobState.STOPPED
        ledger.jobs.start("job")
        resumed = job_of(ledger)
        assert (resumed.state, resumed.started_at, resumed.finished_at, resumed.error, resumed.updated_at) == (
            JobState.RUNNING,
            START,
            None,
            None,
            START + 1,
        )
        complete_all(ledger, adopted, "bob")
        assert end(ledger, adopted, worker="bob") is JobState.COMPLETED
        assert len(ledger.documents.entries(part.instance)) == 6

    def test_a_resumed_job_can_be_stopped_again(self, ledger: Ledger) -> None:
        running(ledger, plans(1))
        ledger.jobs.request_stop("job", "first")
        ledger.jobs.start("job")
        assert ledger.jobs.request_stop("job", "second") is JobState.STOPPED
        assert job_of(ledger).error == "second"

    def test_a_job_whose_stop_was_cut_off_can_be_adopted_and_started(self, ledger: Ledger) -> None:
        running(ledger, plans(1))
        claim_all(ledger)
        ledger.jobs.request_stop("job")
        take_over(ledger)
        stopped = job_of(ledger)
        assert (stopped.state, stopped.finished_at) == (JobState.STOPPED, START)
        ledger.jobs.start("job")
        assert len(claim_all(ledger, "bob")) == 1

    def test_a_stopped_job_can_be_given_up(self, ledger: Ledger) -> None:
        running(ledger, plans(2))
        ledger.jobs.request_stop("job")
        adopted = ledger.parts.adopt(lease_of(ledger, "bob"))
        assert fail(ledger, adopted, worker="bob", error="no worker can resume it") is JobState.FAILED
        job = job_of(ledger)
        assert (job.state, job.error) == (JobState.FAILED, "no worker can resume it")
        assert job.slices == {SliceState.CANCELLED: 2}
        assert ledger.jobs.unfinished(REF) is None

    def test_awaited_parts_of_a_stopped_job_are_found(self, ledger: Ledger) -> None:
        running_two(ledger, plans(1), plans(1))
        ledger.events.append(
            [WantCreated(want="want", refs=(str(REF),)), WantCreated(want="v2", refs=(str(OTHER),), generation="v2")]
        )
        assert ledger.open_parts.wanted_stopped([REF, OTHER]) == [], "a worker is at it"
        ledger.jobs.request_stop("job", "the target is away")
        assert ledger.open_parts.wanted_stopped([REF, OTHER]) == [(REF, "")], (
            "no want waits for the other one as it was begun"
        )
        assert ledger.open_parts.wanted_stopped([OTHER]) == ledger.open_parts.wanted_stopped([]) == []
        ledger.events.append([WantCanceled(want="want")])
        assert ledger.open_parts.wanted_stopped([REF, OTHER]) == []
        ledger.events.append([WantCreated(want="again", refs=(str(OTHER), str(REF)))])
        assert ledger.open_parts.wanted_stopped([REF, OTHER]) == sorted([(REF, ""), (OTHER, "")])
        ledger.jobs.start("job")
        assert ledger.open_parts.wanted_stopped([REF, OTHER]) == []

    def test_a_part_of_a_stopped_job_is_not_found_while_its_want_pauses(
        self, ledger: Ledger, clock: VirtualClock
    ) -> None:
        running(ledger, plans(1))
        retries = Retries(max_attempts=2, backoff=(1_000,))
        ledger.events.append([WantCreated(want="want", refs=(str(REF),), retries=retries)])
        ledger.jobs.request_stop("job", "no such column")
        ledger.events.append([WantFailed(want="want", error="no such column", job="job")])
        assert ledger.open_parts.wanted_stopped([REF]) == []
        clock.sleep(1)
        assert ledger.open_parts.wanted_stopped([REF]) == [(REF, "")]
        ledger.events.append([WantFailed(want="want", error="no such column", job="job")])
        assert ledger.open_parts.wanted_stopped([REF]) == []
        assert [(each.id, each.attempts) for each in ledger.wants.given_up()] == [("want", 2)]

    @pytest.mark.parametrize("how", ["completed", "failed"])
    def test_ends_are_final(self, ledger: Ledger, how: str) -> None:
        part = running(ledger, plans(1))
        if how == "completed":
            complete_all(ledger, part)
            end(ledger, part)
        else:
            fail(ledger, part, error="hopeless")
        before = state_of_everything(ledger, part)
        state = job_of(ledger).state
        assert ledger.jobs.request_stop("job", "too late") is state
        assert ledger.jobs.leave("job", "ann", stop="too late") is state
        with pytest.raises(Conflict):
            ledger.jobs.start("job")
        assert state_of_everything(ledger, part) == before
