"""Parts are finished one by one, each by one elected worker; the last of them ends the job."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from instep.domain.clock import TIMING
from instep.domain.counts import Counts
from instep.domain.jobs import JobState, SliceState
from instep.domain.refs import PartitionRef
from instep.errors import Conflict, Fenced
from instep.ledger.leases import Holder, Lease
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
    joined,
    lease_of,
    outcome,
    planned,
    plans,
    register,
    running,
    running_two,
    state_of_everything,
    status_of,
)
from tests.contracts.ledger.fixtures import Fixtures


class Finishing(Fixtures):
    # The election of the finisher.

    def test_a_part_with_open_slices_is_not_finished(self, ledger: Ledger) -> None:
        part = running(ledger, plans(2))
        assert not ledger.parts.begin_finish("job", REF, "ann"), "two are PENDING"
        first, second = claim_all(ledger)
        ledger.slices.complete(part, "ann", [outcome(first)], job_id="job")
        assert not ledger.parts.begin_finish("job", REF, "ann"), "one is in work"
        ledger.slices.complete(part, "ann", [outcome(second)], job_id="job")
        assert ledger.parts.begin_finish("job", REF, "ann")

    def test_one_worker_is_elected_and_stays_it(self, ledger: Ledger) -> None:
        running(ledger, [])
        joined(ledger, "bob")
        assert ledger.parts.begin_finish("job", REF, "bob")
        assert ledger.parts.begin_finish("job", REF, "bob"), "a lost reply may be asked for again"
        assert not ledger.parts.begin_finish("job", REF, "ann")

    @pytest.mark.parametrize("how", ["left", "retired", "evicted"])
    def test_another_worker_is_elected_when_the_first_takes_no_part(self, ledger: Ledger, how: str) -> None:
        part = running(ledger, [])
        joined(ledger, "bob")
        assert ledger.parts.begin_finish("job", REF, "bob")
        if how == "left":
            ledger.jobs.leave("job", "bob")
        elif how == "retired":
            ledger.workers.retire("bob")
        else:
            ledger.workers.evict("bob")
        assert ledger.parts.begin_finish("job", REF, "ann")
        for state in (JobState.COMPLETED, JobState.FAILED):
            with pytest.raises(Fenced):
                ledger.parts.finish("job", part, state, worker_id="bob")
        assert ledger.parts.finish("job", part, JobState.COMPLETED, worker_id="ann") is JobState.COMPLETED

    def test_of_several_that_would_finish_one_is_elected(self, ledgers: Callable[[], Ledger]) -> None:
        ledger, workers = ledgers(), ["ann", "bob", "cid", "dan"]
        running(ledger, [])
        joined(ledger, *workers[1:])
        gate = threading.Barrier(4)

        def elect(worker: str) -> bool:
            mine = ledgers()
            gate.wait()
            return mine.parts.begin_finish("job", REF, worker)

        with ThreadPoolExecutor(4) as pool:
            assert sorted(pool.map(elect, workers)) == [False, False, False, True]

    def test_each_part_has_its_own_finisher(self, ledger: Ledger) -> None:
        running_two(ledger, [], [])
        joined(ledger, "bob")
        assert ledger.parts.begin_finish("job", REF, "ann")
        assert ledger.parts.begin_finish("job", OTHER, "bob")
        assert not ledger.parts.begin_finish("job", PartitionRef("Unknown"), "ann")

    def test_an_ended_part_is_not_finished_again(self, ledger: Ledger) -> None:
        part, _ = running_two(ledger, [], plans(1))
        end(ledger, part)
        assert not ledger.parts.begin_finish("job", REF, "ann")

    # The end of a part.

    def test_a_part_ends_by_itself_and_frees_its_lease(self, ledger: Ledger, clock: VirtualClock) -> None:
        part, other = running_two(ledger, plans(1), plans(1))
        complete_all(ledger, part)
        clock.advance(7)
        assert end(ledger, part) is JobState.RUNNING
        status = status_of(ledger)
        assert (status.state, status.finished_at, status.error) == (JobState.COMPLETED, START + 7, None)
        assert job_of(ledger).updated_at == START + 7
        checkpoint = ledger.checkpoints.get(REF)
        assert checkpoint is not None
        assert checkpoint.instance == part.instance, "served before the other one has finished"
        assert ledger.checkpoints.get(OTHER) is None
        register(ledger, "bob")
        ledger.jobs.begin("next", "bob", {})
        assert ledger.leases.acquire(REF, "next", "bob") == Lease(REF, "next", 2, START + 7 + TIMING.lease)
        assert isinstance(ledger.leases.acquire(OTHER, "next", "bob"), Holder)
        complete_all(ledger, other)

    def test_the_last_part_to_end_ends_the_job(self, ledger: Ledger, clock: VirtualClock) -> None:
        part, other = running_two(ledger, plans(1), plans(1))
        for each in (other, part):
            assert job_of(ledger).state is JobState.RUNNING
            complete_all(ledger, each)
            clock.advance(1)
            state = end(ledger, each)
        assert state is JobState.COMPLETED
        job = job_of(ledger)
        assert (job.state, job.finished_at, job.updated_at, job.error) == (state, START + 2, START + 2, None)
        assert [each.finished_at for each in job.parts] == [START + 2, START + 1]
        assert [worker.job_ids for worker in ledger.workers.all()] == [()], "the job has no workers any more"

    @pytest.mark.parametrize(
        ("here", "there", "expected"),
        [
            (JobState.COMPLETED, JobState.COMPLETED, JobState.COMPLETED),
            (JobState.COMPLETED, JobState.COMPLETED_WITH_ERRORS, JobState.COMPLETED_WITH_ERRORS),
            (JobState.COMPLETED, JobState.FAILED, JobState.COMPLETED_WITH_ERRORS),
            (JobState.FAILED, JobState.COMPLETED, JobState.COMPLETED_WITH_ERRORS),
            (JobState.FAILED, JobState.FAILED, JobState.FAILED),
        ],
    )
    def test_the_end_of_a_job_follows_from_those_of_its_parts(
        self, ledger: Ledger, here: JobState, there: JobState, expected: JobState
    ) -> None:
        part, other = running_two(ledger, [], [])
        assert ledger.parts.finish("job", part, here, worker_id="ann") is JobState.RUNNING
        assert ledger.parts.finish("job", other, there, worker_id="ann") is expected
        assert job_of(ledger).state is expected

    def test_a_failed_part_leaves_no_open_slice_and_the_other_part_alone(self, ledger: Ledger) -> None:
        part, other = running_two(ledger, plans(3), plans(2))
        done, held = ledger.slices.claim("job", REF, "ann", work=20, limit=2)
        ledger.slices.complete(part, "ann", [outcome(done)], job_id="job")
        (theirs,) = ledger.slices.claim("job", OTHER, "ann", work=1, limit=1)
        assert fail(ledger, part, error="its source is gone") is JobState.RUNNING
        status = status_of(ledger)
        assert (status.state, status.error) == (JobState.FAILED, "its source is gone")
        assert status.slices == {SliceState.COMPLETED: 1, SliceState.CANCELLED: 2}
        assert status.counts == Counts(read=2, written=2, rows_written=6)
        assert not ledger.slices.holds([held], "ann")
        with pytest.raises(Fenced):
            ledger.slices.complete(part, "ann", [outcome(held)], job_id="job")
        ledger.slices.give_back([held], "ann", spent=True)
        assert status_of(ledger) == status
        assert ledger.slices.holds([theirs], "ann")
        ledger.slices.complete(other, "ann", [outcome(theirs)], job_id="job")
        complete_all(ledger, other)
        assert end(ledger, other) is JobState.COMPLETED_WITH_ERRORS
        job = job_of(ledger)
        assert job.error == "its source is gone"
        assert ledger.checkpoints.get(OTHER) is not None

    def test_a_failed_job_gives_the_reason(self, ledger: Ledger) -> None:
        assert fail(ledger, running(ledger, plans(1)), error="hopeless") is JobState.FAILED
        assert job_of(ledger).error == "hopeless"

    def test_a_job_that_was_not_started_can_fail(self, ledger: Ledger) -> None:
        assert fail(ledger, planned(ledger, plans(1))) is JobState.FAILED

    @pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.COMPLETED_WITH_ERRORS, JobState.FAILED])
    def test_ending_a_part_again_in_the_same_way_changes_nothing(
        self, ledger: Ledger, clock: VirtualClock, state: JobState
    ) -> None:
        part, _ = running_two(ledger, [], plans(1))
        promote = state is not JobState.FAILED
        ledger.parts.finish("job", part, state, worker_id="ann", promote=promote, error="why")
        before = state_of_everything(ledger, part)
        clock.advance(1)
        answer = ledger.parts.finish("job", part, state, worker_id="ann", promote=promote, error="why")
        assert answer is JobState.RUNNING
        assert state_of_everything(ledger, part) == before

    def test_a_lost_reply_about_the_last_part_gives_the_end_of_the_job(self, ledger: Ledger) -> None:
        part = running(ledger, [])
        for _ in range(2):
            answer = ledger.parts.finish("job", part, JobState.COMPLETED, worker_id="ann", promote=True)
            assert answer is JobState.COMPLETED

    def test_ends_of_parts_are_final(self, ledger: Ledger) -> None:
        part, _ = running_two(ledger, [], plans(1))
        end(ledger, part)
        before = state_of_everything(ledger, part)
        with pytest.raises((Conflict, Fenced)):
            fail(ledger, part)
        assert state_of_everything(ledger, part) == before

    # What ending a part needs.

    @pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.COMPLETED_WITH_ERRORS])
    @pytest.mark.parametrize("claimed", [True, False])
    def test_a_part_with_open_slices_is_not_completed(self, ledger: Ledger, state: JobState, claimed: bool) -> None:
        part = running(ledger, plans(1))
        if claimed:
            claim_all(ledger)
        before = state_of_everything(ledger, part)
        for promote in (True, False):
            with pytest.raises(Conflict):
                ledger.parts.finish("job", part, state, worker_id="ann", promote=promote)
        with pytest.raises(Conflict):
            ledger.parts.finish("job", part, JobState.FAILED, worker_id="ann", promote=True)
        assert state_of_everything(ledger, part) == before

    @pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.FAILED])
    @pytest.mark.parametrize("loss", ["taken over", "taken over for the same job", "released", "handed over"])
    def test_ending_a_part_needs_its_lease(
        self, ledger: Ledger, clock: VirtualClock, state: JobState, loss: str
    ) -> None:
        part = running(ledger, [])
        lease = Lease(REF, "job", part.epoch, 0)
        ledger.jobs.begin("next", "ann", {})
        if loss == "released":
            ledger.leases.release(lease)
        elif loss == "handed over":
            ledger.leases.transfer(lease, "next")
        else:
            clock.advance(TIMING.lease)
            lease_of(ledger, "bob", job_id="job" if "same" in loss else "next")
        before = state_of_everything(ledger, part)
        with pytest.raises(Fenced):
            ledger.parts.finish("job", part, state, worker_id="ann", promote=state is JobState.COMPLETED)
        assert state_of_everything(ledger, part) == before

    @pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.FAILED])
    def test_only_the_finisher_ends_a_part(self, ledger: Ledger, state: JobState) -> None:
        part = running(ledger, [])
        joined(ledger, "bob")
        assert ledger.parts.begin_finish("job", REF, "bob")
        before = state_of_everything(ledger, part)
        with pytest.raises(Fenced):
            ledger.parts.finish("job", part, state, worker_id="ann")
        assert state_of_everything(ledger, part) == before

    def test_a_part_of_a_stopped_job_is_not_completed(self, ledger: Ledger) -> None:
        running(ledger, [])
        ledger.jobs.request_stop("job")
        adopted = ledger.parts.adopt(lease_of(ledger, "bob"))
        before = state_of_everything(ledger, adopted)
        with pytest.raises(Conflict):
            ledger.parts.finish("job", adopted, JobState.COMPLETED, worker_id="bob", promote=True)
        assert state_of_everything(ledger, adopted) == before

    @pytest.mark.parametrize("state", [JobState.STOPPED, JobState.RUNNING, JobState.INITIALIZING])
    def test_a_part_ends_completed_or_failed(self, ledger: Ledger, state: JobState) -> None:
        part = running(ledger, [])
        with pytest.raises(ValueError, match="not an end"):
            ledger.parts.finish("job", part, state, worker_id="ann")
        assert status_of(ledger).state is None
