"""Slices of rows: claimed together, never cut or FAILED; what kills its workers stops its job, and loses nothing."""

from __future__ import annotations

import pytest

from instep.domain.clock import TIMING
from instep.domain.counts import Counts
from instep.domain.cuts import KeyRange
from instep.domain.jobs import MAX_ATTEMPTS, Claim, JobPart, JobState, SlicePlan, SliceState, tries_of
from instep.domain.keys import key_of
from instep.domain.rows import RowSlice, Window, decode_row_slice, encode_row_slice
from instep.domain.waves import Failure, SliceOutcome
from instep.ledger.ledger import Ledger
from tests.contracts.ledger.building import (
    REF,
    VirtualClock,
    claim_all,
    end,
    job_of,
    joined,
    lease_of,
    outcome,
    plan,
    running,
    status_of,
    take_over,
)
from tests.contracts.ledger.fixtures import Fixtures

WINDOW = Window(None, 1_700_000_000_000_000)


def row_plan(
    index: int,
    count: int,
    *,
    units: int = 100,
    work: int = 10,
    priority: int = 40,
    bounds: KeyRange | None = None,
) -> SlicePlan:
    rows = RowSlice(index, count, WINDOW, ("id",), bounds or KeyRange())
    return SlicePlan(index, 0, "", "", units, work, priority, encode_row_slice(rows))


def row_plans(count: int, *, units: int = 100) -> list[SlicePlan]:
    return [row_plan(index, count, units=units) for index in range(count)]


def written(claim: Claim) -> SliceOutcome:
    return SliceOutcome(claim.slice_id, claim.fence, Counts(read=3, written=3, rows_written=3))


def claimed(ledger: Ledger, worker: str = "ann", *, limit: int = 1_000) -> list[Claim]:
    return ledger.slices.claim("job", REF, worker, work=10**9, limit=limit, together=True)


def worn_out(ledger: Ledger, error: str = "out of memory") -> list[Claim]:
    """All that is left has ended badly as often as it is tried, and is claimed once more."""
    while not (claims := claimed(ledger))[0].worn_out:
        ledger.slices.give_back(claims, "ann", error=error, spent=True)
    return claims


def resumed(ledger: Ledger) -> JobPart:
    part = ledger.parts.adopt(lease_of(ledger, "ann"))
    ledger.jobs.start("job")
    return part


class RowSlices(Fixtures):
    def test_a_plan_comes_back_whole_however_long_its_bounds_are(self, ledger: Ledger) -> None:
        bounds = KeyRange(key_of("a" * 70_000), key_of("é" * 70_000))
        running(ledger, [row_plan(0, 1, bounds=bounds)])
        (claim,) = claimed(ledger)
        assert decode_row_slice(claim.payload) == RowSlice(0, 1, WINDOW, ("id",), bounds)

    @pytest.mark.parametrize("units", [0, 1, 100])
    def test_a_claimed_one_is_not_split(self, ledger: Ledger, units: int) -> None:
        running(ledger, row_plans(1, units=units))
        (claim,) = claimed(ledger)
        assert not ledger.slices.split(claim, "ann")
        assert ledger.slices.holds([claim], "ann")

    def test_those_that_ended_badly_are_claimed_with_the_others(self, ledger: Ledger) -> None:
        running(ledger, row_plans(4))
        for _ in range(MAX_ATTEMPTS - 1):
            ledger.slices.give_back(claimed(ledger, limit=2), "ann", spent=True)
        claims = claimed(ledger)
        assert [(each.index, each.attempts) for each in claims] == [(0, 2), (1, 2), (2, 0), (3, 0)]
        ledger.slices.give_back(claims, "ann", spent=False)
        assert [each.index for each in claim_all(ledger)] == [2, 3], "who does not ask for it gets no suspect"

    def test_a_limit_work_and_a_hint_count_for_those_too(self, ledger: Ledger) -> None:
        running(ledger, row_plans(5))
        for _ in range(MAX_ATTEMPTS - 1):
            ledger.slices.give_back(claimed(ledger, limit=4), "ann", spent=True)
        got = ledger.slices.claim("job", REF, "ann", work=11, limit=9, after=1, together=True)
        assert [each.index for each in got] == [1, 2]
        got = ledger.slices.claim("job", REF, "ann", work=100, limit=1, after=9, together=True)
        assert [each.index for each in got] == [0], "nothing is from there on"
        assert ledger.slices.claim("job", REF, "ann", work=100, limit=0, together=True) == []

    def test_those_that_are_worn_out_are_claimed_together_and_last(self, ledger: Ledger) -> None:
        running(ledger, row_plans(3))
        for _ in range(MAX_ATTEMPTS):
            ledger.slices.give_back(claimed(ledger, limit=2), "ann", spent=True)
        orders = [[(each.index, each.worn_out) for each in claimed(ledger)] for _ in range(3)]
        assert orders == [[(2, False)], [(0, True), (1, True)], []]

    @pytest.mark.parametrize("units", [0, 1, 100])
    def test_one_that_is_worn_out_stops_its_job_with_the_reason(
        self, ledger: Ledger, clock: VirtualClock, units: int
    ) -> None:
        part = running(ledger, row_plans(3, units=units))
        (first, *others) = claimed(ledger)
        ledger.slices.complete(part, "ann", [written(first)], job_id="job")
        ledger.slices.give_back(others, "ann", spent=False)
        claims = worn_out(ledger)
        clock.advance(1)
        ledger.slices.give_back(claims, "ann", spent=True)
        job = job_of(ledger)
        assert job.state is JobState.STOPPED
        assert job.error == (f"global.Document.p1of3 ended badly {tries_of(units)} times; the last time: out of memory")
        assert job.slices == {SliceState.COMPLETED: 1, SliceState.PENDING: 2}
        assert job.units == 3 * units
        assert ledger.failures.newest() == []
        assert [(each.attempts, each.error) for each in ledger.slices.of_part("job", REF)][1:] == [
            (0, "out of memory")
        ] * 2
        assert claimed(ledger) == [], "no worker works on it now"

    def test_the_run_that_resumes_it_tries_from_the_beginning_and_repeats_nothing(
        self, ledger: Ledger, clock: VirtualClock
    ) -> None:
        part = running(ledger, row_plans(3))
        (first, *others) = claimed(ledger)
        ledger.slices.complete(part, "ann", [written(first)], job_id="job")
        ledger.slices.give_back(others, "ann", spent=False)
        ledger.slices.give_back(worn_out(ledger), "ann", spent=True)
        part = resumed(ledger)
        assert job_of(ledger).error is None
        claims = claimed(ledger)
        assert [(each.index, each.attempts) for each in claims] == [(1, 0), (2, 0)]
        assert all(each.fence > 1 for each in claims), "they may be in the target"
        ledger.slices.give_back(claims, "ann", error="again", spent=True)
        claims = claimed(ledger)
        assert [each.attempts for each in claims] == [1, 1]
        ledger.slices.complete(part, "ann", list(map(written, claims)), job_id="job")
        assert end(ledger, part) is JobState.COMPLETED
        assert status_of(ledger).counts == Counts(read=9, written=9, rows_written=9)

    @pytest.mark.parametrize("how", ["evicted", "swept", "adopted"])
    def test_workers_that_die_of_it_are_counted_and_the_job_ends_in_a_stop(
        self, ledger: Ledger, clock: VirtualClock, how: str
    ) -> None:
        running(ledger, row_plans(1))
        deaths = 0
        while not (claims := claimed(ledger))[0].worn_out:
            deaths += 1
            if how == "evicted":
                ledger.workers.evict("ann")
            elif how == "swept":
                clock.advance(TIMING.stale)
                ledger.sweep()
            else:
                clock.advance(TIMING.lease)
            ledger.parts.adopt(lease_of(ledger, "ann"))
        assert deaths == MAX_ATTEMPTS
        ledger.slices.give_back(claims, "ann", spent=True)
        job = job_of(ledger)
        assert (job.state, job.error) == (
            JobState.STOPPED,
            f"global.Document.p0of1 ended badly {MAX_ATTEMPTS} times; the last time: its worker died",
        )

    def test_one_that_is_worn_out_and_in_the_target_after_all_stops_nothing(self, ledger: Ledger) -> None:
        part = running(ledger, row_plans(1))
        ledger.slices.complete(part, "ann", list(map(written, worn_out(ledger))), job_id="job")
        assert end(ledger, part) is JobState.COMPLETED

    def test_an_outage_while_it_is_looked_up_stops_nothing(self, ledger: Ledger) -> None:
        running(ledger, row_plans(1))
        ledger.slices.give_back(worn_out(ledger), "ann", error="target is down", spent=False)
        assert job_of(ledger).state is JobState.RUNNING
        assert [each.worn_out for each in claimed(ledger)] == [True]

    def test_others_in_work_end_first_and_nothing_of_the_part_has_attempts_then(self, ledger: Ledger) -> None:
        part = running(ledger, row_plans(3))
        joined(ledger, "bob")
        (theirs,) = ledger.slices.claim("job", REF, "bob", work=1, limit=1, together=True)
        (mine, other) = claimed(ledger)
        ledger.slices.give_back([other], "ann", error="once", spent=True)
        ledger.slices.give_back([mine], "ann", spent=True)
        while not (claims := ledger.slices.claim("job", REF, "ann", work=1, limit=1, together=True))[0].worn_out:
            ledger.slices.give_back(claims, "ann", error="poison", spent=True)
        ledger.slices.give_back(claims, "ann", spent=True)
        assert job_of(ledger).state is JobState.STOPPING
        ledger.slices.complete(part, "bob", [written(theirs)], job_id="job")
        assert [each.attempts for each in ledger.slices.of_part("job", REF)] == [0, 0, 0]
        ledger.sweep()
        job = job_of(ledger)
        assert (job.state, job.error) == (
            JobState.STOPPED,
            f"global.Document.p1of3 ended badly {MAX_ATTEMPTS} times; the last time: poison",
        )

    def test_a_claim_that_was_taken_over_stops_nothing(self, ledger: Ledger) -> None:
        running(ledger, row_plans(1))
        old = worn_out(ledger)
        take_over(ledger)
        ledger.jobs.start("job")
        ledger.slices.give_back(old, "ann", spent=True)
        assert job_of(ledger).state is JobState.RUNNING

    def test_documents_that_are_claimed_together_are_cut_as_ever(self, ledger: Ledger) -> None:
        part = running(ledger, [plan(0, range(4)), plan(1, [4, 5])])
        claims = worn_out(ledger)
        assert len(claims) == 2
        ledger.slices.give_back(claims, "ann", spent=True)
        assert job_of(ledger).slices == {SliceState.PENDING: 4}
        ledger.slices.complete(part, "ann", list(map(outcome, claimed(ledger))), job_id="job")
        assert end(ledger, part) is JobState.COMPLETED

    @pytest.mark.parametrize("whole", [True, False])
    def test_a_build_of_all_rows_forgets_failures_that_it_has_not_met(self, ledger: Ledger, whole: bool) -> None:
        """Of its partition, once it is promoted: a build that fails has proved nothing."""

        def built(job_id: str, *failing: str, state: JobState = JobState.COMPLETED_WITH_ERRORS) -> None:
            part = running(ledger, row_plans(1), job_id=job_id)
            (claim,) = ledger.slices.claim(job_id, REF, "ann", work=10**9, limit=9, together=True)
            failures = [Failure(each, each, "", "row", "no key") for each in failing]
            counts = Counts(read=len(failing), failed=len(failing))
            done = SliceOutcome(claim.slice_id, claim.fence, counts, failures=failures)
            ledger.slices.complete(part, "ann", [done], job_id=job_id)
            assert ledger.parts.begin_finish(job_id, REF, "ann")
            promote = state is not JobState.FAILED
            ledger.parts.finish(job_id, part, state, worker_id="ann", promote=promote, whole=whole)

        def listed() -> dict[str, int]:
            return {each.document_id: each.attempts for each in ledger.failures.newest(REF)}

        built("first", "again", "gone")
        built("refused", "again", state=JobState.FAILED)
        assert listed() == {"again": 2, "gone": 1}
        built("second", "again", "new")
        assert listed() == ({"again": 3, "new": 1} if whole else {"again": 3, "gone": 1, "new": 1})
