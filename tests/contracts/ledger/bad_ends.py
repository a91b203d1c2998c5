"""Attempts that end badly: tried again, cut in two, and the poison found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import ceil, log2

import pytest

from instep.domain.clock import TIMING
from instep.domain.counts import Counts
from instep.domain.jobs import (
    MAX_ATTEMPTS,
    Claim,
    JobPart,
    JobState,
    SlicePlan,
    SliceState,
    end_of_part,
    half_ids,
    tries_of,
)
from instep.domain.manifest import decode_changes
from instep.errors import Fenced
from instep.ledger.ledger import Ledger
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

#: All the ways in which a slice is taken from its worker.
TAKEN = ("evicted", "swept", "adopted")
#: All the ways in which a slice in work ends badly.
BAD_ENDS = pytest.mark.parametrize("how", [*TAKEN, "given back"])


class BadEnds(Fixtures):
    def _kill(self, ledger: Ledger, clock: VirtualClock, how: str) -> list[Claim]:
        """Claim what there is and let it end badly; returns what was claimed."""
        claims = claim_all(ledger)
        if how == "given back":
            ledger.slices.give_back(claims, "ann", error="out of memory", spent=True)
        elif how == "evicted":
            ledger.workers.evict("ann")
        elif how == "swept":
            clock.advance(TIMING.stale)
            ledger.sweep()
        else:
            clock.advance(TIMING.lease)
        if how != "given back":
            ledger.parts.adopt(lease_of(ledger, "ann"))
        return claims

    def _wear_out(self, ledger: Ledger, clock: VirtualClock, units: int, how: str = "given back") -> Claim:
        """Let the only slice end badly as often as it is tried; claims it once more."""
        for _ in range(tries_of(units)):
            self._kill(ledger, clock, how)
        (claim,) = claim_all(ledger)
        assert claim.worn_out
        return claim

    @BAD_ENDS
    @pytest.mark.parametrize("units", [1, 2])
    def test_a_slice_is_retried_until_it_is_worn_out(
        self, ledger: Ledger, clock: VirtualClock, how: str, units: int
    ) -> None:
        running(ledger, plans(1, units=units))
        tries = [self._kill(ledger, clock, how) for _ in range(tries_of(units))]
        assert [[claim.attempts for claim in claims] for claims in tries] == [[n] for n in range(tries_of(units))]
        assert not any(claim.worn_out for claims in tries for claim in claims)
        (claim,) = claim_all(ledger)
        assert claim.worn_out

    @BAD_ENDS
    def test_a_worn_out_unit_that_is_given_back_is_a_failure_for_the_last_error(
        self, ledger: Ledger, clock: VirtualClock, how: str
    ) -> None:
        running(ledger, plans(1, units=1))
        ledger.slices.give_back([self._wear_out(ledger, clock, 1, how)], "ann", spent=True)
        assert claim_all(ledger) == []
        status = status_of(ledger)
        assert status.slices == {SliceState.FAILED: 1}
        assert status.counts == Counts(read=1, failed=1)
        assert end_of_part(status.slices, status.counts) is JobState.FAILED
        (failure,) = ledger.failures.newest()
        assert (failure.document_id, failure.stage, failure.version, failure.attempts) == ("doc_0000", "wave", "v1", 1)
        last = "out of memory" if how == "given back" else "its worker died"
        assert failure.reason == f"its slice ended badly {tries_of(1)} times; the last time: {last}"

    @pytest.mark.parametrize("how", TAKEN)
    @pytest.mark.parametrize("units", [1, 2])
    def test_slices_taken_from_a_worker_are_never_failed_or_split(
        self, ledger: Ledger, clock: VirtualClock, how: str, units: int
    ) -> None:
        """It may be in the target. The next worker looks it up there; this one is found at last."""
        part = running(ledger, plans(1, units=units))
        before = self._wear_out(ledger, clock, units)
        ledger.slices.give_back([before], "ann", spent=False)
        for _ in range(3):
            (claim,) = self._kill(ledger, clock, how)
            assert claim.worn_out
            assert (claim.slice_id, claim.attempts) == (before.slice_id, before.attempts)
            assert job_of(ledger).slices == {SliceState.PENDING: 1}
        assert ledger.failures.newest() == []
        part = status_of(ledger).part
        complete_all(ledger, part)
        assert job_of(ledger).counts == Counts(read=units, written=units, rows_written=3 * units)
        assert end(ledger, part) is JobState.COMPLETED

    def test_giving_back_unspent_never_wears_a_slice_out(self, ledger: Ledger) -> None:
        running(ledger, plans(1, units=1))
        for _ in range(3 * MAX_ATTEMPTS):
            ledger.slices.give_back(claim_all(ledger), "ann", error="target is down", spent=False)
        (claim,) = claim_all(ledger)
        assert claim.attempts == 0

    def test_attempts_that_are_reset_are_counted_anew(self, ledger: Ledger) -> None:
        part = running(ledger, plans(2, units=1))
        ledger.slices.give_back(claim_all(ledger), "ann", error="the disk is full", spent=True)
        (first, second) = claim_all(ledger)
        assert (first.attempts, second.attempts) == (1, 1)
        ledger.slices.give_back([first], "ann", spent=False)
        ledger.slices.reset_attempts(part, job_id="job")
        assert [each.attempts for each in claim_all(ledger)] == [0]
        ledger.slices.give_back([second], "ann", spent=False)
        assert [each.attempts for each in claim_all(ledger)] == [1], "it was in work"
        with pytest.raises(Fenced):
            ledger.slices.reset_attempts(replace(part, epoch=part.epoch - 1), job_id="job")

    def test_an_outage_while_a_worn_out_slice_is_looked_up_changes_nothing(
        self, ledger: Ledger, clock: VirtualClock
    ) -> None:
        running(ledger, plans(1, units=1))
        ledger.slices.give_back(
            [self._wear_out(ledger, clock, 1)], "ann", error="target is down", spent=False, delay=1_000
        )
        assert job_of(ledger).slices == {SliceState.PENDING: 1}
        clock.advance(1_000)
        ledger.slices.give_back(claim_all(ledger), "ann", spent=True)
        assert job_of(ledger).slices == {SliceState.FAILED: 1}
        assert ledger.failures.newest()[0].reason.endswith("the last time: out of memory")

    @BAD_ENDS
    def test_a_worn_out_slice_is_cut_in_halves_that_hold_the_same_documents(
        self, ledger: Ledger, clock: VirtualClock, how: str
    ) -> None:
        running(ledger, [plan(0, range(5), work=50)])
        whole = self._wear_out(ledger, clock, 5, how)
        ledger.slices.give_back([whole], "ann", spent=True)
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
        assert (first.slice_id, second.slice_id) == half_ids(whole.slice_id)
        assert (first.rank, second.rank) == (whole.rank, whole.rank)
        assert not ledger.slices.holds([whole], "ann")

    @pytest.mark.parametrize("poison", [0, 7, 15])
    def test_a_document_that_kills_its_worker_is_found_and_its_neighbours_are_indexed(
        self, ledger: Ledger, poison: int
    ) -> None:
        part, deaths = self._find(ledger, plans(4, units=4), poison)
        assert deaths == MAX_ATTEMPTS + 1 + 2, "two more for a slice of four"
        assert set(ledger.documents.entries(part.instance)) == {change(n).uri for n in range(16)} - {change(poison).uri}
        assert [failure.document_id for failure in ledger.failures.newest()] == [change(poison).document_id]
        assert job_of(ledger).counts == Counts(read=16, written=15, failed=1, rows_written=45)
        assert end(ledger, part) is JobState.COMPLETED_WITH_ERRORS

    @pytest.mark.parametrize("units", [1, 2, 3, 5, 16, 33])
    def test_one_document_kills_a_bounded_number_of_workers(self, ledger: Ledger, units: int) -> None:
        _, deaths = self._find(ledger, plans(1, units=units), units - 1)
        assert deaths == MAX_ATTEMPTS + 1 + ceil(log2(units))

    def _find(self, ledger: Ledger, slices: Sequence[SlicePlan], poison: int) -> tuple[JobPart, int]:
        """Work until nothing is left to do; returns how many workers died of the document."""
        part, deaths = running(ledger, slices), 0
        while claims := ledger.slices.claim("job", REF, "ann", work=10**9, limit=2):
            if claims[0].worn_out:
                ledger.slices.give_back(claims, "ann", spent=True)
            elif any(each == change(poison) for claim in claims for each in decode_changes(claim.payload)):
                deaths += 1
                part = take_over(ledger, "ann")
            else:
                ledger.slices.complete(part, "ann", list(map(outcome, claims)), job_id="job")
        return part, deaths

    def test_one_accident_fails_no_document_despite_its_neighbours(self, ledger: Ledger, clock: VirtualClock) -> None:
        part = running(ledger, [plan(0, [0, 1]), plan(1, [2]), plan(2, [3])])
        for _ in range(MAX_ATTEMPTS - 1):
            self._kill(ledger, clock, "evicted")  # of the first slice, say
        part, accidents = status_of(ledger).part, set[str]()
        while claims := claim_all(ledger):
            (claim,) = claims
            if claim.worn_out:
                ledger.slices.give_back(claims, "ann", spent=True)
            elif claim.slice_id not in accidents:
                accidents.add(claim.slice_id)
                part = take_over(ledger, "ann")
            else:
                ledger.slices.complete(part, "ann", [outcome(claim)], job_id="job")
        assert len(accidents) == 5, "three slices, and the halves of the first"
        assert ledger.failures.newest() == []
        assert job_of(ledger).counts == Counts(read=4, written=4, rows_written=12)
        assert end(ledger, part) is JobState.COMPLETED

    def test_a_slice_that_ended_badly_twice_waits_for_the_others_and_runs_alone(self, ledger: Ledger) -> None:
        running(ledger, [plan(0, [0], work=90), plan(1, [1], work=80), plan(2, [2], work=10)])
        for _ in range(MAX_ATTEMPTS - 1):
            suspects = ledger.slices.claim("job", REF, "ann", work=100, limit=9)
            ledger.slices.give_back(suspects, "ann", spent=True)
        orders = [[claim.index for claim in claim_all(ledger)] for _ in range(4)]
        assert orders == [[2], [0], [1], []]

    def test_untried_halves_are_claimed_before_those_that_failed_alone(
        self, ledger: Ledger, clock: VirtualClock
    ) -> None:
        """So the good half is done before the bad one is tried again: who sees both knows that it is not hopeless."""
        running(ledger, [plan(0, range(4))])
        whole = self._wear_out(ledger, clock, 4)
        ledger.slices.give_back([whole], "ann", spent=True)
        bad, good = half_ids(whole.slice_id)
        (claim,) = claim_all(ledger)
        assert claim.slice_id == bad
        ledger.slices.give_back([claim], "ann", spent=True)
        assert [each.head for each in ledger.open_parts.on([REF])] == [claim.work]
        assert [[each.slice_id for each in claim_all(ledger)] for _ in range(3)] == [[good], [bad], []]

    def test_a_worn_out_slice_is_claimed_alone(self, ledger: Ledger) -> None:
        running(ledger, plans(3, units=1))
        for _ in range(tries_of(1)):
            together = [claim for _ in range(3) for claim in claim_all(ledger)]
            ledger.slices.give_back(together, "ann", spent=True)
        claims = [claim_all(ledger) for _ in range(4)]
        assert [len(each) for each in claims] == [1, 1, 1, 0]
        assert all(claim.worn_out for each in claims for claim in each)

    def test_a_poisoned_slice_among_good_ones_leaves_a_job_with_errors(
        self, ledger: Ledger, clock: VirtualClock
    ) -> None:
        part = running(ledger, plans(2, units=1))
        (good,) = ledger.slices.claim("job", REF, "ann", work=1, limit=1)
        ledger.slices.complete(part, "ann", [outcome(good)], job_id="job")
        ledger.slices.give_back([self._wear_out(ledger, clock, 1)], "ann", spent=True)
        assert end(ledger, part) is JobState.COMPLETED_WITH_ERRORS

    def test_splitting_does_not_spoil_a_job_that_ends_well(self, ledger: Ledger, clock: VirtualClock) -> None:
        part = running(ledger, plans(1, units=2))
        ledger.slices.give_back([self._wear_out(ledger, clock, 2)], "ann", spent=True)
        complete_all(ledger, part)
        assert job_of(ledger).counts == Counts(read=2, written=2, rows_written=6)
        assert end(ledger, part) is JobState.COMPLETED

    def test_a_hint_does_not_hide_suspects(self, ledger: Ledger, clock: VirtualClock) -> None:
        running(ledger, plans(1, units=1))
        register(ledger, "bob")
        for _ in range(MAX_ATTEMPTS - 1):
            self._kill(ledger, clock, "given back")
        assert [claim.rank for claim in ledger.slices.claim("job", REF, "bob", work=1, limit=1, after=9)] == [0]
