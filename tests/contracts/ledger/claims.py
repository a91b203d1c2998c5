"""Claims: in which order, how many, by whom, and that no slice is claimed twice."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from instep.domain.clock import TIMING
from instep.domain.jobs import SliceState, half_ids
from instep.domain.manifest import decode_changes
from instep.domain.refs import PartitionRef
from instep.errors import Fenced
from instep.ledger.leases import Lease
from instep.ledger.ledger import Ledger
from instep.ledger.parts import NewPart
from tests.contracts.ledger.building import (
    OTHER,
    REF,
    VirtualClock,
    change,
    claim_all,
    complete_all,
    end,
    fail,
    in_columns,
    job_of,
    joined,
    lease_of,
    new_part,
    outcome,
    plan,
    planned,
    plans,
    register,
    running,
    running_two,
    status_of,
)
from tests.contracts.ledger.fixtures import Fixtures


class Claims(Fixtures):
    # Order and size.

    def test_claims_come_by_priority_then_largest_work_first(self, ledger: Ledger) -> None:
        running(
            ledger,
            [
                plan(0, [0], work=5),
                plan(1, [1], work=50),
                plan(2, [2], work=1, priority=100),
                plan(3, [3], work=50),
                plan(4, [4], work=500, priority=20),
            ],
        )
        claims = claim_all(ledger)
        assert [claim.index for claim in claims] == [2, 1, 3, 0, 4]
        assert [claim.rank for claim in claims] == [0, 1, 2, 3, 4]

    def test_ranks_run_over_all_parts_of_a_job(self, ledger: Ledger) -> None:
        running_two(ledger, [plan(0, [0], work=5), plan(1, [1], work=7)], [plan(0, [0], work=6), plan(1, [1], work=7)])
        assert [(claim.index, claim.rank) for claim in claim_all(ledger)] == [(1, 0), (0, 3)]
        assert [(claim.index, claim.rank) for claim in claim_all(ledger, ref=OTHER)] == [(1, 1), (0, 2)]

    def test_more_than_nine_slices_are_claimed_in_order_too(self, ledger: Ledger) -> None:
        running(ledger, plans(12, units=1))
        assert [claim.index for claim in claim_all(ledger)] == list(range(12))

    def test_a_claim_carries_the_planned_bounds(self, ledger: Ledger) -> None:
        stored = plan(7, [1, 2, 3], work=33)
        running(ledger, [stored])
        (claim,) = claim_all(ledger)
        assert (claim.job_id, claim.ref, claim.index, claim.bucket, claim.rank) == ("job", REF, 7, 3, 0)
        assert (claim.units, claim.work, claim.attempts, claim.fence) == (3, 33, 0, 1)
        assert claim.payload == stored.payload
        assert ledger.plans.changes(claim.payload) == [change(1), change(2), change(3)]
        assert job_of(ledger).slices == {SliceState.PROCESSING: 1}

    @pytest.mark.parametrize("cut", [False, True], ids=["whole", "cut"])
    def test_a_claim_carries_what_was_planned_in_columns(self, ledger: Ledger, *, cut: bool) -> None:
        """As of a large plan: on a ledger without files it is in the rows of the slices."""
        stored = in_columns(plan(0, range(6)))
        running(ledger, [stored])
        (claim,) = claim_all(ledger)
        assert (claim.units, list(ledger.plans.changes(claim.payload))) == (6, list(stored.changes))
        if cut:
            assert ledger.slices.split(claim, "ann")
            found = [each for half in claim_all(ledger) for each in ledger.plans.changes(half.payload)]
            assert found == list(stored.changes)

    @pytest.mark.parametrize(
        ("work", "limit", "expected"),
        [(1, 10, 1), (10, 10, 1), (11, 10, 2), (20, 10, 2), (21, 10, 3), (0, 10, 1), (10**9, 4, 4), (10**9, 99, 5)],
    )
    def test_a_claim_stops_once_its_work_is_reached(self, ledger: Ledger, work: int, limit: int, expected: int) -> None:
        running(ledger, plans(5, work=10))
        assert len(ledger.slices.claim("job", REF, "ann", work=work, limit=limit)) == expected

    def test_one_slice_is_claimed_however_much_work_it_is(self, ledger: Ledger) -> None:
        running(ledger, [plan(0, [0, 2], work=10**12), plan(1, [1])])
        assert [claim.index for claim in ledger.slices.claim("job", REF, "ann", work=1, limit=5)] == [0]

    @pytest.mark.parametrize(
        ("after", "expected"),
        [(0, [[0, 1], [2, 3], [4], []]), (3, [[3, 4], [0, 1], [2], []]), (5, [[0, 1], [2, 3], [4], []])],
    )
    def test_a_hint_passes_over_lower_ranks_until_nothing_is_left_above(
        self, ledger: Ledger, after: int, expected: list[list[int]]
    ) -> None:
        running(ledger, plans(5))
        claimed = [ledger.slices.claim("job", REF, "ann", work=10**9, limit=2, after=after) for _ in range(4)]
        assert [[claim.rank for claim in claims] for claims in claimed] == expected

    # When.

    def test_with_stagger_the_second_half_becomes_claimable_one_by_one(
        self, ledger: Ledger, clock: VirtualClock
    ) -> None:
        running(ledger, plans(10), stagger=True)
        assert [claim.rank for claim in claim_all(ledger)] == [0, 1, 2, 3, 4]
        ranks = []
        for _ in range(5):
            assert claim_all(ledger) == []
            clock.advance(TIMING.stagger // 5)
            ranks += [claim.rank for claim in claim_all(ledger)]
        assert ranks == [5, 6, 7, 8, 9]

    def test_without_stagger_all_is_claimable_at_once(self, ledger: Ledger) -> None:
        running(ledger, plans(10))
        assert len(claim_all(ledger)) == 10

    @pytest.mark.parametrize("spent", [True, False])
    def test_a_slice_given_back_with_a_delay_is_claimable_after_it(
        self, ledger: Ledger, clock: VirtualClock, spent: bool
    ) -> None:
        running(ledger, plans(3))
        first, *_ = claims = claim_all(ledger)
        ledger.slices.give_back([first], "ann", error="the target is down", spent=spent, delay=1_000)
        ledger.slices.give_back(claims[1:], "ann", error="the target is down", spent=spent)
        assert [claim.rank for claim in claim_all(ledger)] == [1, 2], "a delay holds up no other slice"
        clock.advance(999)
        assert claim_all(ledger) == []
        assert status_of(ledger).slices == {SliceState.PENDING: 1, SliceState.PROCESSING: 2}
        clock.advance(1)
        assert [(claim.rank, claim.attempts) for claim in claim_all(ledger)] == [(0, int(spent))]

    # Who, and of what.

    def test_a_claimed_slice_is_not_claimed_again(self, ledger: Ledger) -> None:
        running(ledger, plans(3))
        joined(ledger, "bob", "cid")
        first = ledger.slices.claim("job", REF, "ann", work=1, limit=2)
        second = claim_all(ledger, "bob")
        assert len({claim.slice_id for claim in (*first, *second)}) == 3
        assert claim_all(ledger, "cid") == []

    def test_only_a_running_job_and_the_named_partition_give_slices(self, ledger: Ledger) -> None:
        part, other = [new_part(ledger, lease_of(ledger, "ann", ref)) for ref in (REF, OTHER)]
        ledger.parts.plan("job", [NewPart(part, plans(2)), NewPart(other, plans(1))])
        assert claim_all(ledger) == []
        ledger.jobs.start("job")
        assert {claim.ref for claim in claim_all(ledger, ref=OTHER)} == {OTHER}
        assert claim_all(ledger, ref=PartitionRef("Unknown")) == []
        ledger.jobs.request_stop("job")
        assert claim_all(ledger) == []
        assert job_of(ledger).slices == {SliceState.PENDING: 2, SliceState.PROCESSING: 1}

    @pytest.mark.parametrize("how", ["never", "retired", "evicted"])
    def test_a_worker_that_is_not_registered_gets_nothing(self, ledger: Ledger, how: str) -> None:
        running(ledger, plans(1))
        if how != "never":
            joined(ledger, "bob")
        if how == "retired":
            ledger.workers.retire("bob")
        elif how == "evicted":
            ledger.workers.evict("bob")
        assert claim_all(ledger, "bob") == []
        assert len(claim_all(ledger)) == 1

    @pytest.mark.parametrize("how", ["released", "taken over", "handed over"])
    def test_without_the_partitions_lease_a_job_gives_nothing(
        self, ledger: Ledger, clock: VirtualClock, how: str
    ) -> None:
        lease = lease_of(ledger, "ann")
        ledger.parts.plan("job", [NewPart(new_part(ledger, lease), plans(1))])
        ledger.jobs.start("job")
        register(ledger, "bob")
        ledger.jobs.begin("next", "bob", {})
        if how == "released":
            ledger.leases.release(lease)
        elif how == "handed over":
            ledger.leases.transfer(lease, "next")
        else:
            clock.advance(TIMING.lease)
            assert isinstance(ledger.leases.acquire(REF, "next", "bob"), Lease)
        assert claim_all(ledger) == []
        assert job_of(ledger).slices == {SliceState.PENDING: 1}

    def test_an_ended_part_gives_nothing(self, ledger: Ledger) -> None:
        part, other = running_two(ledger, plans(1), plans(1))
        fail(ledger, part)
        assert claim_all(ledger) == []
        complete_all(ledger, other)

    def test_five_workers_claim_a_hundred_slices_exactly_once(self, ledgers: Callable[[], Ledger]) -> None:
        ledger, workers = ledgers(), ["ann", "bob", "cid", "dan", "eva"]
        running(ledger, plans(100, units=1))
        joined(ledger, *workers[1:])
        gate = threading.Barrier(5)

        def work(worker: str) -> list[str]:
            mine = ledgers()
            gate.wait()
            return [
                claim.slice_id for _ in range(20) for claim in mine.slices.claim("job", REF, worker, work=1, limit=1)
            ]

        with ThreadPoolExecutor(5) as pool:
            claimed = list(pool.map(work, workers))
        assert [len(each) for each in claimed] == [20] * 5
        assert len({slice_id for each in claimed for slice_id in each}) == 100

    # Fences.

    def test_the_fence_grows_with_every_claim(self, ledger: Ledger) -> None:
        running(ledger, plans(1))
        for fence in range(1, 5):
            (claim,) = claim_all(ledger)
            assert (claim.fence, claim.attempts) == (fence, 0)
            assert ledger.slices.holds([claim], "ann")
            assert not ledger.slices.holds([claim], "bob")
            ledger.slices.give_back([claim], "ann", spent=False)
            assert not ledger.slices.holds([claim], "ann")

    def test_holding_means_holding_all(self, ledger: Ledger) -> None:
        running(ledger, plans(3))
        claims = claim_all(ledger)
        assert ledger.slices.holds(claims, "ann")
        ledger.slices.give_back(claims[:1], "ann", spent=False)
        assert not ledger.slices.holds(claims, "ann")
        assert ledger.slices.holds(claims[1:], "ann")
        assert ledger.slices.holds([], "ann")

    # Splitting what proves too long.

    def test_a_slice_that_proves_too_long_is_cut_in_two_pending_halves(self, ledger: Ledger) -> None:
        part = running(ledger, [plan(0, range(5), work=50), plan(1, [9], work=40)])
        whole, rest = claim_all(ledger)
        assert ledger.slices.split(whole, "ann")
        assert status_of(ledger).slices == {SliceState.PENDING: 2, SliceState.PROCESSING: 1}
        assert status_of(ledger).units == 6
        assert not ledger.slices.holds([whole], "ann")
        assert ledger.slices.holds([rest], "ann")
        first, second = claim_all(ledger)
        assert (first.slice_id, second.slice_id) == half_ids(whole.slice_id)
        assert decode_changes(first.payload) + decode_changes(second.payload) == [change(n) for n in range(5)]
        assert (first.units, second.units, first.work + second.work) == (2, 3, 50)
        assert {(half.rank, half.attempts, half.bucket, half.index) for half in (first, second)} == {(0, 0, 3, 0)}
        assert [half.fence for half in (first, second)] == [whole.fence + 1] * 2, "greater than any of the whole"
        ledger.slices.complete(part, "ann", list(map(outcome, [first, second, rest])), job_id="job")
        assert len(ledger.documents.entries(part.instance)) == 6
        end(ledger, part)

    def test_fences_and_attempts_continue_in_the_halves(self, ledger: Ledger) -> None:
        running(ledger, [plan(0, range(4))])
        ledger.slices.give_back(claim_all(ledger), "ann", spent=True)
        ledger.slices.give_back(claim_all(ledger), "ann", spent=False)
        (whole,) = claim_all(ledger)
        assert (whole.fence, whole.attempts) == (3, 1)
        ledger.slices.split(whole, "ann")
        first, second = claim_all(ledger)
        assert {(half.fence, half.attempts) for half in (first, second)} == {(4, 1)}
        ledger.slices.split(second, "ann")
        (quarter, _) = claim_all(ledger)
        assert quarter.fence == 5
        assert quarter.slice_id == half_ids(second.slice_id)[0]

    def test_one_half_can_be_claimed_without_the_other(self, ledger: Ledger) -> None:
        running(ledger, [plan(0, range(4))])
        joined(ledger, "bob")
        (whole,) = claim_all(ledger)
        ledger.slices.split(whole, "ann")
        (first,) = ledger.slices.claim("job", REF, "ann", work=1, limit=1)
        (second,) = ledger.slices.claim("job", REF, "bob", work=1, limit=1)
        assert {first.slice_id, second.slice_id} == set(half_ids(whole.slice_id))

    @pytest.mark.parametrize("why", ["one unit", "other worker", "older fence", "given back", "not claimed"])
    def test_a_slice_that_cannot_be_split_stays_unchanged(self, ledger: Ledger, why: str) -> None:
        part = running(ledger, [plan(0, [0] if why == "one unit" else range(4))])
        joined(ledger, "bob")
        (claim,) = claim_all(ledger)
        if why in ("older fence", "given back"):
            ledger.slices.give_back([claim], "ann", spent=False)
        if why == "older fence":
            claim_all(ledger)
        if why == "not claimed":
            ledger.slices.complete(part, "ann", [outcome(claim)], job_id="job")
        before = job_of(ledger)
        assert not ledger.slices.split(claim, "bob" if why == "other worker" else "ann")
        assert job_of(ledger) == before

    def test_a_zombie_cannot_write_a_split_slice(self, ledger: Ledger) -> None:
        part = running(ledger, [plan(0, range(4))])
        (whole,) = claim_all(ledger)
        ledger.slices.split(whole, "ann")
        assert not ledger.slices.split(whole, "ann")
        with pytest.raises(Fenced):
            ledger.slices.complete(part, "ann", [outcome(whole)], job_id="job")
        ledger.slices.give_back([whole], "ann", spent=True)
        assert status_of(ledger).slices == {SliceState.PENDING: 2}

    def test_planning_again_after_a_stop_is_not_needed_to_claim(self, ledger: Ledger) -> None:
        planned(ledger, plans(1))
        ledger.jobs.request_stop("job")
        ledger.parts.adopt(lease_of(ledger, "bob"))
        ledger.jobs.start("job")
        assert len(claim_all(ledger, "bob")) == 1

    # How far a wave is.

    def test_units_reported_by_a_wave_count_until_its_slices_are_done(self, ledger: Ledger) -> None:
        part = running(ledger, [plan(0, [0, 1]), plan(1, [2])])
        claims = claim_all(ledger)
        for units in (1, 3):
            ledger.slices.tell(claims[0], "ann", units)
            status = status_of(ledger)
            assert (status.underway, status.counts.read, status.done) == (units, 0, units)
        ledger.slices.tell(claims[0], "unknown", 7)
        assert job_of(ledger).done == 3
        ledger.slices.complete(part, "ann", list(map(outcome, claims)), job_id="job")
        status = status_of(ledger)
        assert (status.underway, status.done) == (0, status.counts.read)
        assert status.done == 3

    def test_units_reported_for_slices_that_were_given_back_count_no_more(self, ledger: Ledger) -> None:
        running(ledger, [plan(0, [0, 1])])
        joined(ledger, "bob")
        (claim,) = claim_all(ledger)
        ledger.slices.tell(claim, "ann", 2)
        ledger.slices.give_back([claim], "ann", spent=False)
        assert status_of(ledger).underway == 0
        assert claim_all(ledger, "bob")
        assert status_of(ledger).underway == 0
