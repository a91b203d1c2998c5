"""Attempts that end badly: tried again, cut in two, and the poison found."""

from __future__ import annotations

import pytest

from instep.domain.counts import Counts
from instep.domain.jobs import MAX_ATTEMPTS, Claim, JobState, SliceState, end_of_part
from instep.domain.manifest import decode_changes
from instep.domain.timing import TIMING
from instep.ledger.port import Ledger
from tests.contracts.ledger.building import (
    REF,
    VirtualClock,
    change,
    claim_all,
    complete_all,
    end,
    job_of,
    lease_of,
    outcome,
    plan,
    plans,
    register,
    running,
    status_of,
    take_over,
)
from tests.contracts.ledger.fixtures import Fixtures

#: All the ways in which a slice in work ends badly.
BAD_ENDS = pytest.mark.parametrize("how", ["buried", "swept", "adopted", "given back"])


class BadEnds(Fixtures):
    def _kill(self, ledger: Ledger, clock: VirtualClock, how: str) -> list[Claim]:
        """Claim what there is and let it end badly; returns what was claimed."""
        claims = claim_all(ledger)
        if how == "given back":
            ledger.give_back(claims, "ann", error="out of memory", spent=True)
        elif how == "buried":
            ledger.bury_worker("ann")
        elif how == "swept":
            clock.advance(TIMING.stale)
            ledger.sweep()
        else:
            clock.advance(TIMING.lease)
        if how != "given back":
            ledger.adopt_part(lease_of(ledger, "ann"))
        return claims

    @BAD_ENDS
    def test_a_slice_is_tried_again_until_its_attempts_are_spent(
        self, ledger: Ledger, clock: VirtualClock, how: str
    ) -> None:
        running(ledger, plans(1, units=1))
        tries = [self._kill(ledger, clock, how) for _ in range(MAX_ATTEMPTS)]
        assert [[claim.attempts for claim in claims] for claims in tries] == [[n] for n in range(MAX_ATTEMPTS)]
        assert claim_all(ledger) == []
        status = status_of(ledger)
        assert status.slices == {SliceState.FAILED: 1}
        assert status.counts == Counts(read=1, failed=1)
        assert end_of_part(status.slices, status.counts) is JobState.FAILED
        (failure,) = ledger.failures()
        assert (failure.document_id, failure.stage, failure.version, failure.attempts) == ("doc_0000", "wave", "v1", 1)
        assert f"{MAX_ATTEMPTS} times" in failure.reason

    def test_giving_back_unspent_never_wears_a_slice_out(self, ledger: Ledger) -> None:
        running(ledger, plans(1, units=1))
        for _ in range(3 * MAX_ATTEMPTS):
            ledger.give_back(claim_all(ledger), "ann", error="target is down", spent=False)
        assert job_of(ledger).slices == {SliceState.PENDING: 1}

    @BAD_ENDS
    def test_a_worn_out_slice_is_cut_in_halves_that_hold_the_same_documents(
        self, ledger: Ledger, clock: VirtualClock, how: str
    ) -> None:
        running(ledger, [plan(0, range(5), work=50)])
        for _ in range(MAX_ATTEMPTS):
            (whole,) = self._kill(ledger, clock, how)
        assert job_of(ledger).slices == {SliceState.PENDING: 2}
        assert job_of(ledger).counts == Counts()
        assert job_of(ledger).units == 5
        halves = [claim_all(ledger), claim_all(ledger)]
        assert [len(claims) for claims in halves] == [1, 1], "each runs alone"
        (first,), (second,) = halves
        assert decode_changes(first.payload) + decode_changes(second.payload) == decode_changes(whole.payload)
        assert (first.units, second.units) == (2, 3)
        assert first.work + second.work == 50
        assert (first.attempts, second.attempts) == (MAX_ATTEMPTS - 1, MAX_ATTEMPTS - 1)
        assert (first.fence, second.fence) == (whole.fence + 1, whole.fence + 1)
        assert first.ancestors == second.ancestors == (whole.slice_id,)
        assert (first.rank, second.rank) == (whole.rank, whole.rank)
        assert not ledger.holds([whole], "ann")

    @pytest.mark.parametrize("poison", [0, 7, 15])
    def test_a_document_that_kills_its_worker_is_found_and_its_neighbours_are_indexed(
        self, ledger: Ledger, poison: int
    ) -> None:
        part = running(ledger, plans(4, units=4))
        deaths = 0
        while claims := ledger.claim("job", REF, "ann", work=10**9, limit=2):
            if any(each == change(poison) for claim in claims for each in decode_changes(claim.payload)):
                deaths += 1
                part = take_over(ledger, "ann")
            else:
                ledger.complete(part, "ann", list(map(outcome, claims)), job_id="job")
        assert deaths == MAX_ATTEMPTS + 2, "two more for a slice of four"
        assert set(ledger.manifest(part.instance)) == {change(n).uri for n in range(16)} - {change(poison).uri}
        assert [failure.document_id for failure in ledger.failures()] == [change(poison).document_id]
        assert job_of(ledger).counts == Counts(read=16, written=15, failed=1, rows_written=45)
        assert end(ledger, part) is JobState.COMPLETED_WITH_ERRORS

    def test_a_slice_on_its_last_attempt_waits_for_the_others_and_runs_alone(self, ledger: Ledger) -> None:
        running(ledger, [plan(0, [0], work=90), plan(1, [1], work=80), plan(2, [2], work=10)])
        for _ in range(MAX_ATTEMPTS - 1):
            suspects = ledger.claim("job", REF, "ann", work=100, limit=9)
            ledger.give_back(suspects, "ann", spent=True)
        orders = [[claim.index for claim in claim_all(ledger)] for _ in range(4)]
        assert orders == [[2], [0], [1], []]

    def test_a_poisoned_slice_among_good_ones_leaves_a_job_with_errors(
        self, ledger: Ledger, clock: VirtualClock
    ) -> None:
        part = running(ledger, plans(2, units=1))
        good, bad = claim_all(ledger)
        ledger.complete(part, "ann", [outcome(good)], job_id="job")
        ledger.give_back([bad], "ann", spent=True)
        for _ in range(MAX_ATTEMPTS - 1):
            self._kill(ledger, clock, "given back")
        assert end(ledger, part) is JobState.COMPLETED_WITH_ERRORS

    def test_splitting_does_not_spoil_a_job_that_ends_well(self, ledger: Ledger, clock: VirtualClock) -> None:
        part = running(ledger, plans(1, units=2))
        for _ in range(MAX_ATTEMPTS):
            self._kill(ledger, clock, "given back")
        complete_all(ledger, part)
        assert job_of(ledger).counts == Counts(read=2, written=2, rows_written=6)
        assert end(ledger, part) is JobState.COMPLETED

    def test_a_hint_does_not_hide_suspects(self, ledger: Ledger, clock: VirtualClock) -> None:
        running(ledger, plans(1, units=1))
        register(ledger, "bob")
        for _ in range(MAX_ATTEMPTS - 1):
            self._kill(ledger, clock, "given back")
        assert [claim.rank for claim in ledger.claim("job", REF, "bob", work=1, limit=1, after=9)] == [0]
