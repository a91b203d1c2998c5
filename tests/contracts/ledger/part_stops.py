"""Parts that stop by themselves: others of the job go on, and the job stops when nothing else of it is open."""

from __future__ import annotations

import pytest

from instep.domain.events import WantCreated
from instep.domain.jobs import JobState, OpenPart, PartStatus, SliceState
from instep.domain.refs import PartitionRef
from instep.errors import Fenced
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
    plans,
    register,
    running,
    running_two,
    state_of_everything,
    status_of,
)
from tests.contracts.ledger.fixtures import Fixtures
from tests.contracts.ledger.row_slices import claimed, row_plans, worn_out


def stop(ledger: Ledger, ref: PartitionRef = REF, error: str = "no such column") -> bool:
    return ledger.parts.stop("job", ref, error)


def open_on(ledger: Ledger, ref: PartitionRef = REF) -> OpenPart:
    (found,) = ledger.open_parts.on([ref])
    return found


class PartStops(Fixtures):
    def test_the_others_go_on_and_are_completed(self, ledger: Ledger, clock: VirtualClock) -> None:
        _, other = running_two(ledger, plans(2), plans(2))
        clock.advance(3)
        assert stop(ledger)
        status = status_of(ledger)
        assert (status.state, status.error, status.finished_at) == (None, "no such column", START + 3)
        assert (job_of(ledger).state, job_of(ledger).error) == (JobState.RUNNING, None)
        assert job_of(ledger).updated_at == START + 3
        assert claim_all(ledger) == []
        assert (open_on(ledger).error, open_on(ledger).held, open_on(ledger, OTHER).error) == (
            "no such column",
            False,
            None,
        )
        complete_all(ledger, other)
        clock.advance(3)
        assert end(ledger, other) is JobState.STOPPED
        job = job_of(ledger)
        assert (job.error, job.finished_at) == ("no such column", START + 6)
        assert [(each.state, each.error) for each in job.parts] == [
            (None, "no such column"),
            (JobState.COMPLETED, None),
        ]
        assert ledger.checkpoints.get(OTHER) is not None
        assert ledger.checkpoints.get(REF) is None

    def test_a_job_of_which_nothing_else_is_open_stops_with_the_first_error(self, ledger: Ledger) -> None:
        running_two(ledger, plans(1), plans(1))
        assert stop(ledger, OTHER, "second")
        assert job_of(ledger).state is JobState.RUNNING
        assert stop(ledger, REF, "first")
        assert (job_of(ledger).state, job_of(ledger).error) == (JobState.STOPPED, "first")
        assert [each.error for each in job_of(ledger).parts] == ["first", "second"]

    def test_one_beside_a_part_that_failed_stops_the_job(self, ledger: Ledger) -> None:
        _, other = running_two(ledger, plans(1), plans(1))
        stop(ledger)
        assert fail(ledger, other, error="hopeless") is JobState.STOPPED
        assert job_of(ledger).error == "no such column"

    def test_what_is_in_work_ends_first(self, ledger: Ledger) -> None:
        part, _ = running_two(ledger, plans(2), plans(1))
        (mine,) = ledger.slices.claim("job", REF, "ann", work=1, limit=1)
        assert stop(ledger)
        assert isinstance(ledger.leases.renew(Lease(REF, "job", part.epoch, 0)), Lease)
        assert open_on(ledger).held
        ledger.slices.complete(part, "ann", [outcome(mine)], job_id="job")
        assert status_of(ledger).slices == {SliceState.COMPLETED: 1, SliceState.PENDING: 1}
        assert stop(ledger, error="again"), "who sees that it has stopped says so again"
        assert not open_on(ledger).held
        assert status_of(ledger).error == "no such column"
        with pytest.raises(Fenced):
            ledger.leases.renew(Lease(REF, "job", part.epoch, 0))

    def test_a_job_whose_last_part_stops_is_stopping_while_something_is_in_work(self, ledger: Ledger) -> None:
        running(ledger, plans(1))
        claim_all(ledger)
        assert stop(ledger)
        assert (job_of(ledger).state, job_of(ledger).error) == (JobState.STOPPING, "no such column")
        assert ledger.jobs.leave("job", "ann", stop="it was interrupted") is JobState.STOPPED
        assert job_of(ledger).error == "no such column"

    def test_such_a_job_stops_as_soon_as_a_worker_sees_that_nothing_is_in_work(self, ledger: Ledger) -> None:
        part = running(ledger, plans(1))
        (mine,) = claim_all(ledger)
        stop(ledger)
        assert stop(ledger)
        assert job_of(ledger).state is JobState.STOPPING
        ledger.slices.complete(part, "ann", [outcome(mine)], job_id="job")
        assert stop(ledger)
        assert (job_of(ledger).state, job_of(ledger).error) == (JobState.STOPPED, "no such column")
        assert stop(ledger), "again it changes nothing"

    def test_it_is_resumed_in_the_running_job_by_who_adopts_it(self, ledger: Ledger) -> None:
        _, other = running_two(ledger, plans(1), plans(1))
        stop(ledger)
        found = ledger.jobs.unfinished(REF)
        assert found is not None
        assert found.id == "job"
        register(ledger, "bob")
        ledger.jobs.begin("next", "bob", {})
        lease = ledger.leases.acquire(REF, "next", "bob")
        assert isinstance(lease, Lease)
        part = ledger.parts.adopt(ledger.leases.transfer(lease, "job"))
        ledger.jobs.join("job", "bob")
        status = status_of(ledger)
        assert (status.state, status.error, status.finished_at) == (None, None, None)
        complete_all(ledger, part, "bob")
        complete_all(ledger, other)
        assert end(ledger, part, worker="bob") is JobState.RUNNING
        assert end(ledger, other) is JobState.COMPLETED
        assert job_of(ledger).error is None

    def test_a_stopped_job_goes_on_with_the_part_that_is_adopted_alone(self, ledger: Ledger) -> None:
        running_two(ledger, plans(1), plans(1))
        stop(ledger)
        stop(ledger, OTHER, "not to be had")
        part = ledger.parts.adopt(lease_of(ledger, "bob"))
        ledger.jobs.start("job")
        assert [each.error for each in job_of(ledger).parts] == [None, "not to be had"]
        complete_all(ledger, part, "bob")
        assert end(ledger, part, worker="bob") is JobState.STOPPED
        assert job_of(ledger).error == "not to be had"

    def test_a_whole_job_is_started_again(self, ledger: Ledger) -> None:
        running_two(ledger, plans(1), plans(1))
        stop(ledger)
        ledger.jobs.request_stop("job", "stopped by ann")
        ledger.jobs.start("job", whole=True)
        assert [(each.error, each.finished_at) for each in job_of(ledger).parts] == [(None, None)] * 2
        assert [each.error for each in ledger.open_parts.on([REF, OTHER])] == [None, None]

    def test_with_others_in_the_job_it_is_left_to_them_if_so_asked(self, ledger: Ledger) -> None:
        part = running(ledger, plans(1))
        joined(ledger, "bob")
        before = state_of_everything(ledger, part)
        claim_all(ledger)
        assert not ledger.parts.stop("job", REF, "not on this host", by="ann", alone=["ann"])
        assert state_of_everything(ledger, part) == before, "what it had in work is free"
        ledger.jobs.leave("job", "ann")
        claim_all(ledger, "bob")
        assert ledger.parts.stop("job", REF, "nor on this", by="bob", alone=["bob"])
        assert (job_of(ledger).state, job_of(ledger).error) == (JobState.STOPPED, "nor on this")

    def test_a_part_that_has_ended_and_a_job_that_is_stopped_stay_as_they_are(self, ledger: Ledger) -> None:
        part, other = running_two(ledger, plans(1), plans(1))
        complete_all(ledger, part)
        end(ledger, part)
        assert not stop(ledger)
        ledger.jobs.request_stop("job", "stopped by ann")
        before = state_of_everything(ledger, other)
        assert not stop(ledger, OTHER)
        assert not stop(ledger, PartitionRef("Nothing"))
        assert state_of_everything(ledger, other) == before

    def test_a_persons_stop_holds_for_all_of_the_job(self, ledger: Ledger) -> None:
        running_two(ledger, plans(1), plans(1))
        stop(ledger)
        assert ledger.jobs.request_stop("job", "stopped by ann") is JobState.STOPPED
        job = job_of(ledger)
        assert (job.error, [each.error for each in job.parts]) == ("stopped by ann", ["no such column", None])

    def test_it_is_found_for_a_want_that_waits_for_it(self, ledger: Ledger) -> None:
        running_two(ledger, plans(1), plans(1))
        ledger.events.append([WantCreated(want="want", refs=(str(REF), str(OTHER)))])
        assert ledger.open_parts.wanted_stopped([REF, OTHER]) == []
        stop(ledger)
        assert ledger.open_parts.wanted_stopped([REF, OTHER]) == [(REF, "")]
        ledger.parts.adopt(lease_of(ledger, "bob"))
        assert ledger.open_parts.wanted_stopped([REF, OTHER]) == []

    def test_one_whose_slice_is_worn_out_stops_with_the_reason(self, ledger: Ledger) -> None:
        running_two(ledger, row_plans(2), row_plans(1))
        ledger.slices.give_back(claimed(ledger, limit=1), "ann", spent=False)
        why = ledger.slices.give_back(worn_out(ledger), "ann", spent=True)
        assert why == "global.Document.p0of2 ended badly 3 times; the last time: out of memory"
        assert [each.error for each in job_of(ledger).parts] == [why, None]
        assert job_of(ledger).state is JobState.RUNNING
        assert isinstance(ledger.leases.acquire(OTHER, "job", "ann"), Holder)

    def test_what_is_in_work_of_a_stopped_part_is_free_when_its_worker_is_gone(
        self, ledger: Ledger, clock: VirtualClock
    ) -> None:
        _, other = running_two(ledger, plans(1), plans(1))
        joined(ledger, "bob")
        assert ledger.slices.claim("job", REF, "bob", work=1, limit=1)
        stop(ledger)
        ledger.workers.evict("bob")
        complete_all(ledger, other)
        assert end(ledger, other) is JobState.STOPPED
        assert status_of(ledger).slices == {SliceState.PENDING: 1}

    def test_it_may_be_given_up(self, ledger: Ledger) -> None:
        _, other = running_two(ledger, plans(1), plans(1))
        stop(ledger)
        part = ledger.parts.adopt(lease_of(ledger, "bob"))
        assert fail(ledger, part, worker="bob", error="given up") is JobState.RUNNING
        complete_all(ledger, other)
        assert end(ledger, other) is JobState.COMPLETED_WITH_ERRORS

    def test_a_part_says_whether_it_has_stopped(self, ledger: Ledger) -> None:
        def stopped(of: PartStatus) -> bool:
            return of.stopped

        _, other = running_two(ledger, plans(1), plans(1))
        assert not stopped(status_of(ledger))
        stop(ledger)
        assert stopped(status_of(ledger))
        fail(ledger, other)
        assert not stopped(status_of(ledger, OTHER)), "it has ended"
