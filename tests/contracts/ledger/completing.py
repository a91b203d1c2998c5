"""Completing slices: all or nothing, under the right fence, once."""

from __future__ import annotations

import pytest

from instep.domain.clock import TIMING
from instep.domain.counts import Counts
from instep.domain.jobs import JobState, SliceState
from instep.domain.speed import NOTHING_LATELY, WINDOW, Lately
from instep.domain.waves import SliceOutcome
from instep.errors import Fenced
from instep.ledger.failures import FailureFilter
from instep.ledger.leases import Lease
from instep.ledger.ledger import Ledger
from tests.contracts.ledger.building import (
    OTHER,
    REF,
    START,
    VirtualClock,
    change,
    claim_all,
    complete_all,
    end,
    entry,
    job_of,
    joined,
    lease_of,
    outcome,
    plan,
    plans,
    running,
    running_two,
    state_of_everything,
    status_of,
)
from tests.contracts.ledger.fixtures import Fixtures


class Completing(Fixtures):
    def test_failures_are_dismissed_by_the_names_of_their_documents(self, ledger: Ledger) -> None:
        part, others = running_two(ledger, [plan(0, range(12))], plans(1))
        for each, documents in ((part, range(12)), (others, [1])):
            (claim,) = ledger.slices.claim("job", each.ref, "ann", work=1, limit=1)
            ledger.slices.complete(each, "ann", [outcome(claim, fail=documents)], job_id="job")
        of_one = FailureFilter([REF])
        assert ledger.failures.dismiss([change(99).uri, "other*"]) == []
        assert [each.uri for each in ledger.failures.dismiss([change(2).uri], only=of_one)] == [change(2).uri]
        begin_so = change(1).uri.removesuffix(".md")
        found = ledger.failures.dismiss([f"{begin_so}*", change(3).uri], only=of_one)
        assert {each.uri for each in found} == {change(each).uri for each in (1, 3, 10, 11)}
        assert set(ledger.failures.versions(REF)) == {change(each).uri for each in (0, 4, 5, 6, 7, 8, 9)}
        assert set(ledger.failures.versions(OTHER)) == {change(1).uri}
        ledger.failures.dismiss([*(f"x{each}*" for each in range(1_200)), "*"])
        assert ledger.failures.newest() == []

    def test_completing_records_counts_documents_and_failures_at_once(
        self, ledger: Ledger, clock: VirtualClock
    ) -> None:
        part = running(ledger, plans(2, units=3))
        clock.advance(9)
        claims = claim_all(ledger)
        ledger.slices.complete(part, "ann", [outcome(claims[0], fail=[1]), outcome(claims[1])], job_id="job")
        job = job_of(ledger)
        assert job.slices == {SliceState.COMPLETED: 2}
        assert job.counts == Counts(read=6, written=5, failed=1, rows_written=15)
        assert ledger.documents.entries(part.instance) == {change(n).uri: entry(change(n)) for n in (0, 2, 3, 4, 5)}
        assert ledger.documents.totals(part.instance) == (5, 15, 100 + 102 + 103 + 104 + 105)
        (failure,) = ledger.failures.newest()
        assert failure == (REF, "doc_0001", change(1).uri, "v1", "parse", "no text in it", 1, "job", START + 9, "")
        assert ledger.failures.versions(REF) == {change(1).uri: "v1"}

    def test_counts_are_those_of_each_part(self, ledger: Ledger) -> None:
        part, other = running_two(ledger, plans(2), plans(1, units=3))
        for each in (part, other):
            claims = claim_all(ledger, ref=each.ref)
            ledger.slices.complete(each, "ann", list(map(outcome, claims)), job_id="job")
        assert status_of(ledger).counts == Counts(read=4, written=4, rows_written=12)
        assert status_of(ledger, OTHER).counts == Counts(read=3, written=3, rows_written=9)
        assert job_of(ledger).counts == Counts(read=7, written=7, rows_written=21)

    def test_recent_speed_counts_from_the_first_claim(self, ledger: Ledger, clock: VirtualClock) -> None:
        part, other = running_two(ledger, plans(3), plans(1, units=3))
        assert job_of(ledger).lately == NOTHING_LATELY
        first, second = ledger.slices.claim("job", REF, "ann", work=20, limit=2)
        clock.advance(9)
        ledger.slices.complete(part, "ann", [outcome(first, fail=[1])], job_id="job")
        assert status_of(ledger).lately == Lately(2, START)
        clock.advance(WINDOW)
        assert status_of(ledger).lately == Lately(2, START), "until the very end of the window"
        complete_all(ledger, other)
        clock.advance(1)
        assert status_of(ledger).lately == NOTHING_LATELY
        ledger.slices.complete(part, "ann", [outcome(second)], job_id="job")
        assert status_of(ledger).lately == Lately(2, START)
        assert status_of(ledger, OTHER).lately == Lately(3, START + 9 + WINDOW)
        assert job_of(ledger).lately == Lately(5, START)

    def test_nothing_is_done_lately_in_a_job_that_does_not_run(self, ledger: Ledger) -> None:
        part = running(ledger, plans(2))
        (claim,) = ledger.slices.claim("job", REF, "ann", work=10, limit=1)
        ledger.slices.complete(part, "ann", [outcome(claim)], job_id="job")
        assert ledger.jobs.request_stop("job") is JobState.STOPPED
        assert job_of(ledger).lately == NOTHING_LATELY
        assert [each.lately for each in ledger.jobs.newest()] == [NOTHING_LATELY]

    def test_counts_of_a_retry_replace_and_never_add_up(self, ledger: Ledger) -> None:
        part = running(ledger, plans(1))
        for _ in range(2):
            ledger.slices.give_back(claim_all(ledger), "ann", spent=True)
        ledger.slices.complete(part, "ann", list(map(outcome, claim_all(ledger))), job_id="job")
        assert job_of(ledger).counts == Counts(read=2, written=2, rows_written=6)

    def test_a_call_whose_reply_was_lost_may_be_repeated(self, ledger: Ledger) -> None:
        part = running(ledger, plans(2))
        first, second = claim_all(ledger)
        ledger.slices.complete(part, "ann", [outcome(first, fail=[1])], job_id="job")
        before = state_of_everything(ledger, part)
        ledger.slices.complete(part, "ann", [outcome(first, fail=[1])], job_id="job")
        assert state_of_everything(ledger, part) == before
        ledger.slices.complete(part, "ann", [outcome(first, fail=[1]), outcome(second)], job_id="job")
        assert job_of(ledger).counts.read == 4
        assert [failure.attempts for failure in ledger.failures.newest()] == [1]

    def test_a_call_whose_reply_was_lost_may_be_repeated_after_others_finished_the_part(self, ledger: Ledger) -> None:
        part = running(ledger, plans(1))
        joined(ledger, "bob")
        claims = claim_all(ledger)
        ledger.slices.complete(part, "ann", list(map(outcome, claims)), job_id="job")
        end(ledger, part, worker="bob")
        before = state_of_everything(ledger, part)
        ledger.slices.complete(part, "ann", list(map(outcome, claims)), job_id="job")
        assert state_of_everything(ledger, part) == before

    def test_one_slice_taken_over_undoes_the_whole_completion(self, ledger: Ledger) -> None:
        part = running(ledger, plans(3))
        claims = claim_all(ledger)
        ledger.slices.give_back(claims[1:2], "ann", spent=False)
        before = state_of_everything(ledger, part)
        with pytest.raises(Fenced):
            ledger.slices.complete(part, "ann", list(map(outcome, claims)), job_id="job")
        assert state_of_everything(ledger, part) == before

    @pytest.mark.parametrize("wrong", ["fence", "worker", "slice", "job"])
    def test_a_completion_shows_slice_fence_worker_and_job(self, ledger: Ledger, wrong: str) -> None:
        part = running(ledger, plans(1))
        joined(ledger, "bob")
        (claim,) = claim_all(ledger)
        before = state_of_everything(ledger, part)
        fence = claim.fence + (wrong == "fence")
        slice_id = "nothing" if wrong == "slice" else claim.slice_id
        with pytest.raises(Fenced):
            ledger.slices.complete(
                part,
                "bob" if wrong == "worker" else "ann",
                [SliceOutcome(slice_id, fence, Counts(read=2, written=2))],
                job_id="other" if wrong == "job" else "job",
            )
        assert state_of_everything(ledger, part) == before
        assert ledger.slices.holds([claim], "ann")

    def test_a_slice_is_completed_under_its_own_part(self, ledger: Ledger) -> None:
        part, other = running_two(ledger, plans(1), plans(1))
        claims = claim_all(ledger)
        before = state_of_everything(ledger, part)
        with pytest.raises(Fenced):
            ledger.slices.complete(other, "ann", list(map(outcome, claims)), job_id="job")
        assert state_of_everything(ledger, part) == before
        assert ledger.documents.entries(other.instance) == {}

    def test_counts_that_do_not_add_up_are_refused(self, ledger: Ledger) -> None:
        part = running(ledger, plans(1))
        (claim,) = claim_all(ledger)
        before = state_of_everything(ledger, part)
        with pytest.raises(ValueError, match="add up"):
            ledger.slices.complete(
                part, "ann", [SliceOutcome(claim.slice_id, claim.fence, Counts(read=2, written=1))], job_id="job"
            )
        assert state_of_everything(ledger, part) == before

    @pytest.mark.parametrize("loss", ["taken over", "taken over for the same job", "released", "handed over"])
    def test_completing_needs_the_lease(self, ledger: Ledger, clock: VirtualClock, loss: str) -> None:
        part = running(ledger, plans(1))
        claims = claim_all(ledger)
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
            ledger.slices.complete(part, "ann", list(map(outcome, claims)), job_id="job")
        assert state_of_everything(ledger, part) == before

    def test_completing_nothing_changes_nothing(self, ledger: Ledger) -> None:
        part = running(ledger, plans(2))
        (claim,) = ledger.slices.claim("job", REF, "ann", work=1, limit=1)
        before = state_of_everything(ledger, part)
        ledger.slices.complete(part, "ann", [], job_id="job")
        assert state_of_everything(ledger, part) == before
        assert ledger.slices.holds([claim], "ann")

    def test_completing_nothing_needs_the_lease_too(self, ledger: Ledger, clock: VirtualClock) -> None:
        part = running(ledger, plans(1))
        clock.advance(TIMING.lease)
        adopted = ledger.parts.adopt(lease_of(ledger, "bob"))
        before = state_of_everything(ledger, adopted)
        with pytest.raises(Fenced):
            ledger.slices.complete(part, "ann", [], job_id="job")
        assert state_of_everything(ledger, adopted) == before
        ledger.slices.complete(adopted, "bob", [], job_id="job")

    def test_an_expired_lease_that_is_still_free_completes(self, ledger: Ledger, clock: VirtualClock) -> None:
        part = running(ledger, plans(1))
        claims = claim_all(ledger)
        clock.advance(2 * TIMING.lease)
        ledger.slices.complete(part, "ann", list(map(outcome, claims)), job_id="job")
        assert job_of(ledger).slices == {SliceState.COMPLETED: 1}

    def test_a_job_can_be_done_by_several_workers(self, ledger: Ledger) -> None:
        part = running(ledger, plans(2))
        joined(ledger, "bob")
        (first,) = ledger.slices.claim("job", REF, "ann", work=1, limit=1)
        (second,) = ledger.slices.claim("job", REF, "bob", work=1, limit=1)
        ledger.slices.complete(part, "bob", [outcome(second)], job_id="job")
        ledger.slices.complete(part, "ann", [outcome(first)], job_id="job")
        assert end(ledger, part, worker="bob") is JobState.COMPLETED

    def test_a_worker_that_joined_can_complete_the_job_alone(self, ledger: Ledger) -> None:
        part = running(ledger, plans(3))
        joined(ledger, "bob")
        ledger.workers.retire("ann")
        ledger.slices.complete(part, "bob", list(map(outcome, claim_all(ledger, "bob"))), job_id="job")
        assert end(ledger, part, worker="bob") is JobState.COMPLETED
