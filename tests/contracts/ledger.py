"""How every ledger behaves. Inherit `LedgerContract` and give the fixture `ledgers`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from instep.domain.counts import Counts
from instep.domain.jobs import MAX_ATTEMPTS, Claim, Job, JobPart, JobState, SlicePlan, SliceState, end_of_job
from instep.domain.manifest import Action, DocumentChange, ManifestEntry, decode_changes, encode_changes
from instep.domain.refs import PartitionRef
from instep.domain.waves import Failure, SliceOutcome
from instep.errors import Conflict, Fenced
from instep.ledger.port import LEASE_TTL_MS, Holder, Lease, Ledger, NewPart

REF = PartitionRef.parse("Document@global")
OTHER = PartitionRef.parse("Ticket@42/9970")
START = 1_700_000_000_000


class VirtualClock:
    """Time that passes only when told to."""

    def __init__(self, now: int = START) -> None:
        self._now = now

    def now(self) -> int:
        return self._now

    def monotonic(self) -> float:
        return self._now / 1000

    def sleep(self, seconds: float) -> None:
        self.advance(round(seconds * 1000))

    def advance(self, milliseconds: int) -> None:
        self._now += milliseconds


# Building blocks, also for other tests of ledgers.


def change(number: int, action: Action = Action.INSERT) -> DocumentChange:
    return DocumentChange(action, f"doc_{number:04}", f"file:///docs/{number}.md", 100 + number, "v1", 0, "", "new")


def plan(index: int, documents: Sequence[int], *, work: int = 10, priority: int = 40) -> SlicePlan:
    payload = encode_changes([change(number) for number in documents])
    return SlicePlan(index, 3, "", "", len(documents), work, priority, payload)


def plans(count: int, *, units: int = 2, work: int = 10) -> list[SlicePlan]:
    return [plan(index, range(index * units, (index + 1) * units), work=work) for index in range(count)]


def part_of(lease: Lease, *, instance: str = "instance-1", fresh: bool = True) -> JobPart:
    return JobPart(lease.ref, instance, f"{instance}-index", {"chunker": "c1"}, 16, lease.epoch, 7, fresh)


def entry(document: DocumentChange, *, chunks: int = 3, version: str = "v1") -> ManifestEntry:
    return ManifestEntry(
        document.document_id, document.uri, document.size, version, f"hash of {version}", chunks, document.bucket
    )


def outcome(claim: Claim, *, fail: Sequence[int] = (), version: str = "v1") -> SliceOutcome:
    """What a slice would report had it written all its documents but those numbered in `fail`."""
    failing = {change(number).document_id for number in fail}
    changes = decode_changes(claim.payload)
    good = [each for each in changes if each.document_id not in failing]
    bad = [each for each in changes if each.document_id in failing]
    return SliceOutcome(
        claim.slice_id,
        claim.fence,
        Counts(read=len(changes), written=len(good), failed=len(bad), rows_written=3 * len(good)),
        entries=[entry(each, version=version) for each in good],
        failures=[Failure(each.document_id, each.uri, version, "parse", "no text in it") for each in bad],
    )


def lease_of(ledger: Ledger, worker: str, ref: PartitionRef = REF) -> Lease:
    ledger.register_worker(worker, host="here", pid=1)
    lease = ledger.acquire_lease(ref, worker)
    assert isinstance(lease, Lease)
    return lease


def job_of(ledger: Ledger, job_id: str) -> Job:
    job = ledger.job(job_id)
    assert job is not None
    return job


def running(
    ledger: Ledger, slices: Sequence[SlicePlan], *, job_id: str = "job", instance: str = "instance-1"
) -> JobPart:
    """A running job of worker `ann` on `REF`."""
    part = part_of(lease_of(ledger, "ann"), instance=instance)
    ledger.create_job(job_id, [NewPart(part, slices)], worker_id="ann")
    ledger.start_job(job_id)
    return part


def claim_all(ledger: Ledger, worker: str = "ann", job_id: str = "job") -> list[Claim]:
    return ledger.claim(job_id, REF, worker, work=10**9, limit=1_000)


def take_over(ledger: Ledger, worker: str = "bob", job_id: str = "job") -> JobPart:
    """Somebody finds the lease expired, or proves its holder dead, and continues the job."""
    ledger.register_worker(worker, host="here", pid=2)
    lease = ledger.acquire_lease(REF, worker)
    if isinstance(lease, Holder):
        assert ledger.break_lease(REF, lease.epoch)
        lease = lease_of(ledger, worker)
    return ledger.adopt_job(job_id, lease)


def end(ledger: Ledger, part: JobPart, job_id: str = "job") -> JobState:
    """End a job as a service would, and promote its part."""
    job = job_of(ledger, job_id)
    state = end_of_job(job.slices, job.counts)
    assert state is not None
    ledger.finish_job(job_id, state, promote=[part])
    return state


def state_of_everything(ledger: Ledger, part: JobPart, job_id: str = "job") -> object:
    """All that a reader can see; equal before and after means that nothing was changed."""
    return (
        ledger.job(job_id),
        ledger.manifest(part.instance),
        ledger.failures(),
        ledger.checkpoint(part.ref),
        ledger.unfinished_job(part.ref),
    )


class _Fixtures:
    @pytest.fixture
    def clock(self) -> VirtualClock:
        return VirtualClock()

    @pytest.fixture
    def ledgers(self, clock: VirtualClock) -> Iterator[Callable[[], Ledger]]:
        """Opens further connections to one and the same ledger."""
        raise NotImplementedError

    @pytest.fixture
    def ledger(self, ledgers: Callable[[], Ledger]) -> Ledger:
        return ledgers()


class _Leases(_Fixtures):
    def test_the_clock_is_the_ledgers_own(self, ledger: Ledger, clock: VirtualClock) -> None:
        clock.advance(5)
        assert ledger.now() == START + 5

    def test_a_free_lease_is_had_and_a_held_one_names_its_holder(self, ledger: Ledger) -> None:
        ledger.register_worker("ann", host="castle", pid=42)
        lease = ledger.acquire_lease(REF, "ann")
        assert lease == Lease(REF, "ann", 1, START + LEASE_TTL_MS)
        assert ledger.acquire_lease(REF, "bob") == Holder(REF, "ann", "castle", 42, 1, START, START + LEASE_TTL_MS)

    def test_leases_of_different_partitions_are_independent(self, ledger: Ledger) -> None:
        lease_of(ledger, "ann", REF)
        assert lease_of(ledger, "bob", OTHER).epoch == 1

    def test_a_lease_is_held_until_the_last_millisecond_and_free_at_its_expiry(
        self, ledger: Ledger, clock: VirtualClock
    ) -> None:
        lease_of(ledger, "ann")
        clock.advance(LEASE_TTL_MS - 1)
        assert isinstance(ledger.acquire_lease(REF, "bob"), Holder)
        clock.advance(1)
        taken = ledger.acquire_lease(REF, "bob")
        assert taken == Lease(REF, "bob", 2, START + 2 * LEASE_TTL_MS)

    def test_a_lease_can_be_renewed_until_the_last_millisecond_and_not_at_its_expiry(
        self, ledger: Ledger, clock: VirtualClock
    ) -> None:
        lease = lease_of(ledger, "ann")
        clock.advance(LEASE_TTL_MS - 1)
        renewed = ledger.renew_lease(lease)
        assert renewed == Lease(REF, "ann", 1, START + 2 * LEASE_TTL_MS - 1)
        clock.advance(LEASE_TTL_MS)
        with pytest.raises(Fenced):
            ledger.renew_lease(renewed)

    def test_the_epoch_grows_over_release_break_and_expiry(self, ledger: Ledger, clock: VirtualClock) -> None:
        first = lease_of(ledger, "ann")
        ledger.release_lease(first)
        second = lease_of(ledger, "ann")
        assert ledger.break_lease(REF, second.epoch)
        third = lease_of(ledger, "bob")
        clock.advance(LEASE_TTL_MS)
        fourth = lease_of(ledger, "ann")
        assert [lease.epoch for lease in (first, second, third, fourth)] == [1, 2, 3, 4]

    def test_a_lease_that_was_taken_over_can_be_neither_renewed_nor_released(
        self, ledger: Ledger, clock: VirtualClock
    ) -> None:
        old = lease_of(ledger, "ann")
        clock.advance(LEASE_TTL_MS)
        lease_of(ledger, "bob")
        with pytest.raises(Fenced):
            ledger.renew_lease(old)
        ledger.release_lease(old)
        assert isinstance(ledger.acquire_lease(REF, "cid"), Holder)

    def test_breaking_shows_the_epoch_that_was_seen(self, ledger: Ledger, clock: VirtualClock) -> None:
        old = lease_of(ledger, "ann")
        clock.advance(LEASE_TTL_MS)
        new = lease_of(ledger, "bob")
        assert not ledger.break_lease(REF, old.epoch)
        assert isinstance(ledger.acquire_lease(REF, "cid"), Holder)
        assert ledger.break_lease(REF, new.epoch)
        assert not ledger.break_lease(REF, new.epoch)
        assert not ledger.break_lease(OTHER, 1)

    def test_two_that_see_an_expired_lease_do_not_both_get_it(
        self, ledgers: Callable[[], Ledger], clock: VirtualClock
    ) -> None:
        lease_of(ledgers(), "ann")
        clock.advance(LEASE_TTL_MS)
        gate = threading.Barrier(4)

        def acquire(worker: str) -> Lease | Holder:
            ledger = ledgers()
            gate.wait()
            return ledger.acquire_lease(REF, worker)

        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(acquire, ["bob", "cid", "dan", "eva"]))
        assert [answer.epoch for answer in answers] == [2, 2, 2, 2]
        assert sum(isinstance(answer, Lease) for answer in answers) == 1

    def test_a_heartbeat_needs_a_registered_worker(self, ledger: Ledger) -> None:
        ledger.register_worker("ann", host="here", pid=1)
        ledger.heartbeat("ann")
        ledger.register_worker("ann", host="here", pid=2)
        ledger.heartbeat("ann")
        ledger.retire_worker("ann")
        with pytest.raises(Fenced):
            ledger.heartbeat("ann")
        ledger.retire_worker("ann")


class _Jobs(_Fixtures):
    def test_a_job_is_stored_with_its_parts_and_slices(self, ledger: Ledger) -> None:
        part, other = part_of(lease_of(ledger, "ann")), part_of(lease_of(ledger, "ann", OTHER), instance="instance-2")
        ledger.create_job("job", [NewPart(part, plans(3)), NewPart(other, plans(2))], worker_id="ann")
        assert ledger.job("job") == Job(
            "job", JobState.READY, START, None, None, None, Counts(), {SliceState.PENDING: 5}, (part, other)
        )
        assert ledger.job("nothing") is None

    def test_a_job_without_slices_can_be_completed(self, ledger: Ledger) -> None:
        part = running(ledger, [])
        assert claim_all(ledger) == []
        assert end(ledger, part) is JobState.COMPLETED

    def test_a_job_id_is_used_once(self, ledger: Ledger) -> None:
        part = running(ledger, plans(1))
        before = state_of_everything(ledger, part)
        with pytest.raises(Conflict):
            ledger.create_job("job", [NewPart(part, plans(2))], worker_id="ann")
        assert state_of_everything(ledger, part) == before
        assert ledger.next_sequence(REF) == 2

    @pytest.mark.parametrize("loss", ["expired and taken", "broken", "released", "never had"])
    def test_a_job_needs_the_lease_of_every_part(self, ledger: Ledger, clock: VirtualClock, loss: str) -> None:
        lease, other = lease_of(ledger, "ann"), lease_of(ledger, "ann", OTHER)
        if loss == "expired and taken":
            clock.advance(LEASE_TTL_MS)
            lease_of(ledger, "bob", OTHER)
        elif loss == "broken":
            ledger.break_lease(OTHER, other.epoch)
        elif loss == "released":
            ledger.release_lease(other)
        else:
            other = Lease(PartitionRef("Nobody"), "ann", 1, START)
        parts = [NewPart(part_of(lease), plans(1)), NewPart(part_of(other), plans(1))]
        with pytest.raises(Fenced):
            ledger.create_job("job", parts, worker_id="ann")
        assert ledger.job("job") is None
        assert ledger.next_sequence(REF) == 1

    def test_jobs_are_listed_newest_first(self, ledger: Ledger, clock: VirtualClock) -> None:
        lease = lease_of(ledger, "ann")
        for number in range(4):
            clock.advance(1)
            ledger.create_job(f"job-{9 - number}", [NewPart(part_of(lease), plans(1))], worker_id="ann")
        assert [job.id for job in ledger.jobs()] == ["job-6", "job-7", "job-8", "job-9"]
        assert [job.id for job in ledger.jobs(2)] == ["job-6", "job-7"]
        assert ledger.jobs(1) == [ledger.job("job-6")]

    def test_the_sequence_grows_with_every_fresh_part_and_never_goes_back(self, ledger: Ledger) -> None:
        assert [ledger.next_sequence(REF), ledger.next_sequence(REF)] == [1, 1], "asking changes nothing"
        part = running(ledger, plans(1), job_id="first")
        assert ledger.next_sequence(REF) == 2
        ledger.finish_job("first", JobState.FAILED)
        lease = Lease(REF, "ann", part.epoch, START)
        ledger.create_job("second", [NewPart(part_of(lease, fresh=False), plans(1))], worker_id="ann")
        assert ledger.next_sequence(REF) == 2
        ledger.create_job("third", [NewPart(part_of(lease), plans(1))], worker_id="ann")
        assert ledger.next_sequence(REF) == 3
        assert ledger.next_sequence(OTHER) == 1

    def test_starting_stopping_and_resuming_follow_the_moves(self, ledger: Ledger, clock: VirtualClock) -> None:
        running(ledger, plans(2))
        clock.advance(1)
        ledger.start_job("job")
        assert job_of(ledger, "job").started_at == START
        ledger.request_stop("job")
        assert job_of(ledger, "job").state is JobState.STOPPING
        ledger.start_job("job")
        assert job_of(ledger, "job").state is JobState.STOPPING, "a stop that was asked for stands"
        ledger.finish_job("job", JobState.STOPPED, error="stopped by the user")
        stopped = job_of(ledger, "job")
        assert (stopped.state, stopped.finished_at, stopped.error) == (
            JobState.STOPPED,
            START + 1,
            "stopped by the user",
        )
        assert stopped.slices == {SliceState.PENDING: 2}
        ledger.request_stop("job")
        assert ledger.job("job") == stopped
        clock.advance(1)
        ledger.start_job("job")
        resumed = job_of(ledger, "job")
        assert (resumed.state, resumed.started_at, resumed.finished_at, resumed.error) == (
            JobState.RUNNING,
            START,
            None,
            None,
        )

    def test_a_ready_job_can_be_stopped(self, ledger: Ledger) -> None:
        ledger.create_job("job", [NewPart(part_of(lease_of(ledger, "ann")), plans(1))], worker_id="ann")
        ledger.request_stop("job")
        ledger.finish_job("job", JobState.STOPPED)
        assert job_of(ledger, "job").state is JobState.STOPPED

    def test_ends_are_final(self, ledger: Ledger) -> None:
        part = running(ledger, plans(1))
        ledger.finish_job("job", JobState.FAILED, error="hopeless")
        before = state_of_everything(ledger, part)
        ledger.finish_job("job", JobState.FAILED, error="again")
        ledger.request_stop("job")
        with pytest.raises(Conflict):
            ledger.finish_job("job", JobState.COMPLETED, promote=[part])
        with pytest.raises(Conflict):
            ledger.start_job("job")
        with pytest.raises(Conflict):
            ledger.adopt_job("job", Lease(REF, "ann", part.epoch, START))
        with pytest.raises(ValueError, match="not an end"):
            ledger.finish_job("job", JobState.RUNNING)
        assert state_of_everything(ledger, part) == before

    def test_unknown_jobs_are_refused(self, ledger: Ledger) -> None:
        lease = lease_of(ledger, "ann")
        with pytest.raises(Conflict):
            ledger.start_job("nothing")
        with pytest.raises(Conflict):
            ledger.request_stop("nothing")
        with pytest.raises(Conflict):
            ledger.finish_job("nothing", JobState.FAILED)
        with pytest.raises(Conflict):
            ledger.adopt_job("nothing", lease)
        assert ledger.claim("nothing", REF, "ann", work=1, limit=1) == []

    def test_a_failed_job_leaves_no_open_slice(self, ledger: Ledger) -> None:
        part = running(ledger, plans(3))
        done, held = ledger.claim("job", REF, "ann", work=20, limit=2)
        ledger.complete(part, "ann", [outcome(done)], job_id="job")
        ledger.finish_job("job", JobState.FAILED)
        assert job_of(ledger, "job").slices == {SliceState.COMPLETED: 1, SliceState.CANCELLED: 2}
        assert not ledger.holds([held], "ann")
        with pytest.raises(Fenced):
            ledger.complete(part, "ann", [outcome(held)], job_id="job")

    def test_a_job_with_open_slices_is_not_completed(self, ledger: Ledger) -> None:
        part = running(ledger, plans(1))
        for state in (JobState.COMPLETED, JobState.COMPLETED_WITH_ERRORS):
            with pytest.raises(Conflict):
                ledger.finish_job("job", state, promote=[part])
        assert job_of(ledger, "job").state is JobState.RUNNING
        assert ledger.checkpoint(REF) is None


class _Unfinished(_Fixtures):
    def test_a_job_is_unfinished_until_it_ends(self, ledger: Ledger) -> None:
        assert ledger.unfinished_job(REF) is None
        part = part_of(lease_of(ledger, "ann"))
        ledger.create_job("job", [NewPart(part, plans(1))], worker_id="ann")
        assert ledger.unfinished_job(REF) == ledger.job("job")
        assert ledger.unfinished_job(OTHER) is None
        ledger.start_job("job")
        assert ledger.unfinished_job(REF) == ledger.job("job")
        ledger.complete(part, "ann", list(map(outcome, claim_all(ledger))), job_id="job")
        assert ledger.unfinished_job(REF) == ledger.job("job")
        end(ledger, part)
        assert ledger.unfinished_job(REF) is None

    def test_a_stopped_job_with_open_slices_is_unfinished(self, ledger: Ledger) -> None:
        _stopped(ledger, plans(1), fresh=False)
        assert ledger.unfinished_job(REF) == ledger.job("job")
        ledger.finish_job("job", JobState.FAILED, error="given up")
        assert ledger.unfinished_job(REF) is None

    def test_a_stopped_build_is_unfinished_until_promoted_even_with_all_slices_done(self, ledger: Ledger) -> None:
        _stopped(ledger, [], fresh=True)
        assert ledger.unfinished_job(REF) == ledger.job("job")

    def test_a_stopped_refresh_with_all_slices_done_has_nothing_left(self, ledger: Ledger) -> None:
        _stopped(ledger, [], fresh=False)
        assert ledger.unfinished_job(REF) is None

    def test_a_failed_job_is_not_resumed(self, ledger: Ledger) -> None:
        running(ledger, plans(1))
        ledger.finish_job("job", JobState.FAILED)
        assert ledger.unfinished_job(REF) is None


def _stopped(ledger: Ledger, slices: Sequence[SlicePlan], *, fresh: bool) -> None:
    part = part_of(lease_of(ledger, "ann"), fresh=fresh)
    ledger.create_job("job", [NewPart(part, slices)], worker_id="ann")
    ledger.start_job("job")
    ledger.request_stop("job")
    ledger.finish_job("job", JobState.STOPPED)


class _Claims(_Fixtures):
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

    def test_a_claim_carries_what_was_planned(self, ledger: Ledger) -> None:
        planned = plan(7, [1, 2, 3], work=33)
        running(ledger, [planned])
        (claim,) = claim_all(ledger)
        assert (claim.job_id, claim.ref, claim.index, claim.bucket) == ("job", REF, 7, 3)
        assert (claim.units, claim.work, claim.attempts, claim.fence) == (3, 33, 0, 1)
        assert claim.payload == planned.payload
        assert job_of(ledger, "job").slices == {SliceState.PROCESSING: 1}

    @pytest.mark.parametrize(
        ("work", "limit", "expected"),
        [(1, 10, 1), (10, 10, 1), (11, 10, 2), (20, 10, 2), (21, 10, 3), (0, 10, 1), (10**9, 4, 4), (10**9, 99, 5)],
    )
    def test_a_claim_stops_once_its_work_is_reached(self, ledger: Ledger, work: int, limit: int, expected: int) -> None:
        running(ledger, plans(5, work=10))
        assert len(ledger.claim("job", REF, "ann", work=work, limit=limit)) == expected

    def test_one_slice_is_claimed_however_much_work_it_is(self, ledger: Ledger) -> None:
        running(ledger, [plan(0, [0], work=10**12), plan(1, [1])])
        assert [claim.index for claim in ledger.claim("job", REF, "ann", work=1, limit=5)] == [0]

    def test_what_is_claimed_is_not_claimed_again(self, ledger: Ledger) -> None:
        running(ledger, plans(3))
        first = ledger.claim("job", REF, "ann", work=1, limit=2)
        second = claim_all(ledger, "bob")
        assert len({claim.slice_id for claim in (*first, *second)}) == 3
        assert claim_all(ledger, "cid") == []

    def test_only_a_running_job_and_the_named_partition_give_slices(self, ledger: Ledger) -> None:
        part, other = part_of(lease_of(ledger, "ann")), part_of(lease_of(ledger, "ann", OTHER), instance="instance-2")
        ledger.create_job("job", [NewPart(part, plans(2)), NewPart(other, plans(1))], worker_id="ann")
        assert claim_all(ledger) == []
        ledger.start_job("job")
        assert {claim.ref for claim in ledger.claim("job", OTHER, "ann", work=99, limit=99)} == {OTHER}
        ledger.request_stop("job")
        assert claim_all(ledger) == []
        assert job_of(ledger, "job").slices == {SliceState.PENDING: 2, SliceState.PROCESSING: 1}

    def test_the_fence_grows_with_every_claim(self, ledger: Ledger) -> None:
        running(ledger, plans(1))
        for fence in range(1, 5):
            (claim,) = claim_all(ledger)
            assert (claim.fence, claim.attempts) == (fence, 0)
            assert ledger.holds([claim], "ann")
            assert not ledger.holds([claim], "bob")
            ledger.give_back([claim], "ann", spent=False)
            assert not ledger.holds([claim], "ann")

    def test_holding_means_holding_all(self, ledger: Ledger) -> None:
        running(ledger, plans(3))
        claims = claim_all(ledger)
        assert ledger.holds(claims, "ann")
        ledger.give_back(claims[:1], "ann", spent=False)
        assert not ledger.holds(claims, "ann")
        assert ledger.holds(claims[1:], "ann")
        assert ledger.holds([], "ann")

    def test_five_workers_claim_a_hundred_slices_exactly_once(self, ledgers: Callable[[], Ledger]) -> None:
        running(ledgers(), plans(100, units=1))
        gate = threading.Barrier(5)

        def work(worker: str) -> list[str]:
            ledger = ledgers()
            gate.wait()
            return [claim.slice_id for _ in range(20) for claim in ledger.claim("job", REF, worker, work=1, limit=1)]

        with ThreadPoolExecutor(5) as pool:
            claimed = list(pool.map(work, ["ann", "bob", "cid", "dan", "eva"]))
        assert [len(each) for each in claimed] == [20] * 5
        assert len({slice_id for each in claimed for slice_id in each}) == 100

    def test_a_retired_workers_slices_are_pending_again_without_a_spent_attempt(self, ledger: Ledger) -> None:
        part = running(ledger, plans(3))
        done, *held = claim_all(ledger)
        ledger.complete(part, "ann", [outcome(done)], job_id="job")
        ledger.retire_worker("ann")
        assert job_of(ledger, "job").slices == {SliceState.COMPLETED: 1, SliceState.PENDING: 2}
        again = claim_all(ledger, "bob")
        assert [(claim.slice_id, claim.attempts, claim.fence) for claim in again] == [
            (claim.slice_id, 0, 2) for claim in held
        ]


class _Completing(_Fixtures):
    def test_completing_records_counts_documents_and_failures_at_once(
        self, ledger: Ledger, clock: VirtualClock
    ) -> None:
        part = running(ledger, plans(2, units=3))
        clock.advance(9)
        claims = claim_all(ledger)
        ledger.complete(part, "ann", [outcome(claims[0], fail=[1]), outcome(claims[1])], job_id="job")
        job = job_of(ledger, "job")
        assert job.slices == {SliceState.COMPLETED: 2}
        assert job.counts == Counts(read=6, written=5, failed=1, rows_written=15)
        assert ledger.manifest(part.instance) == {change(n).uri: entry(change(n)) for n in (0, 2, 3, 4, 5)}
        assert ledger.totals(part.instance) == (5, 15, 100 + 102 + 103 + 104 + 105)
        (failure,) = ledger.failures()
        assert failure == (REF, "doc_0001", change(1).uri, "v1", "parse", "no text in it", 1, "job", START + 9)
        assert ledger.failed_versions(REF) == {change(1).uri: "v1"}

    def test_a_lost_reply_may_be_asked_for_again(self, ledger: Ledger) -> None:
        part = running(ledger, plans(2))
        first, second = claim_all(ledger)
        ledger.complete(part, "ann", [outcome(first, fail=[1])], job_id="job")
        before = state_of_everything(ledger, part)
        ledger.complete(part, "ann", [outcome(first, fail=[1])], job_id="job")
        assert state_of_everything(ledger, part) == before
        ledger.complete(part, "ann", [outcome(first, fail=[1]), outcome(second)], job_id="job")
        assert job_of(ledger, "job").counts.read == 4
        assert [failure.attempts for failure in ledger.failures()] == [1]

    def test_one_slice_taken_over_undoes_the_whole_completion(self, ledger: Ledger) -> None:
        part = running(ledger, plans(3))
        claims = claim_all(ledger)
        ledger.give_back(claims[1:2], "ann", spent=False)
        before = state_of_everything(ledger, part)
        with pytest.raises(Fenced):
            ledger.complete(part, "ann", list(map(outcome, claims)), job_id="job")
        assert state_of_everything(ledger, part) == before

    @pytest.mark.parametrize("wrong", ["fence", "worker", "slice", "job"])
    def test_a_completion_shows_slice_fence_worker_and_job(self, ledger: Ledger, wrong: str) -> None:
        part = running(ledger, plans(1))
        (claim,) = claim_all(ledger)
        before = state_of_everything(ledger, part)
        fence = claim.fence + (wrong == "fence")
        slice_id = "nothing" if wrong == "slice" else claim.slice_id
        with pytest.raises(Fenced):
            ledger.complete(
                part,
                "bob" if wrong == "worker" else "ann",
                [SliceOutcome(slice_id, fence, Counts(read=2, written=2))],
                job_id="other" if wrong == "job" else "job",
            )
        assert state_of_everything(ledger, part) == before

    def test_counts_that_do_not_add_up_are_refused(self, ledger: Ledger) -> None:
        part = running(ledger, plans(1))
        (claim,) = claim_all(ledger)
        before = state_of_everything(ledger, part)
        with pytest.raises(ValueError, match="add up"):
            ledger.complete(
                part, "ann", [SliceOutcome(claim.slice_id, claim.fence, Counts(read=2, written=1))], job_id="job"
            )
        assert state_of_everything(ledger, part) == before

    @pytest.mark.parametrize("loss", ["taken over", "broken", "released"])
    def test_completing_needs_the_lease(self, ledger: Ledger, clock: VirtualClock, loss: str) -> None:
        part = running(ledger, plans(1))
        claims = claim_all(ledger)
        if loss == "taken over":
            clock.advance(LEASE_TTL_MS)
            lease_of(ledger, "bob")
        elif loss == "broken":
            ledger.break_lease(REF, part.epoch)
        else:
            ledger.release_lease(Lease(REF, "ann", part.epoch, 0))
        before = state_of_everything(ledger, part)
        with pytest.raises(Fenced):
            ledger.complete(part, "ann", list(map(outcome, claims)), job_id="job")
        assert state_of_everything(ledger, part) == before

    def test_an_expired_lease_that_nobody_took_still_completes(self, ledger: Ledger, clock: VirtualClock) -> None:
        part = running(ledger, plans(1))
        claims = claim_all(ledger)
        clock.advance(2 * LEASE_TTL_MS)
        ledger.complete(part, "ann", list(map(outcome, claims)), job_id="job")
        assert job_of(ledger, "job").slices == {SliceState.COMPLETED: 1}

    def test_a_job_can_be_done_by_several_workers(self, ledger: Ledger) -> None:
        part = running(ledger, plans(2))
        (first,) = ledger.claim("job", REF, "ann", work=1, limit=1)
        (second,) = ledger.claim("job", REF, "bob", work=1, limit=1)
        ledger.complete(part, "bob", [outcome(second)], job_id="job")
        ledger.complete(part, "ann", [outcome(first)], job_id="job")
        assert end(ledger, part) is JobState.COMPLETED

    def test_a_stopping_job_still_takes_what_is_under_way(self, ledger: Ledger) -> None:
        part = running(ledger, plans(2))
        claims = ledger.claim("job", REF, "ann", work=1, limit=1)
        ledger.request_stop("job")
        ledger.complete(part, "ann", list(map(outcome, claims)), job_id="job")
        assert job_of(ledger, "job").slices == {SliceState.COMPLETED: 1, SliceState.PENDING: 1}


class _Documents(_Fixtures):
    def _run(self, ledger: Ledger, job_id: str, make: Callable[[Claim], SliceOutcome]) -> JobPart:
        """One more job over documents 0 and 1 of the same instance."""
        held = ledger.acquire_lease(REF, "ann")
        part = part_of(Lease(REF, "ann", held.epoch, 0), fresh=False)
        ledger.create_job(job_id, [NewPart(part, plans(1))], worker_id="ann")
        ledger.start_job(job_id)
        (claim,) = claim_all(ledger, job_id=job_id)
        ledger.complete(part, "ann", [make(claim)], job_id=job_id)
        return part

    def test_entries_replace_those_of_the_same_document(self, ledger: Ledger) -> None:
        self._run(ledger, "first", outcome)
        part = self._run(ledger, "second", lambda claim: outcome(claim, version="v2"))
        assert [each.version for each in ledger.manifest(part.instance).values()] == ["v2", "v2"]

    def test_removed_documents_leave_the_manifest_and_others_stay(self, ledger: Ledger) -> None:
        part = self._run(ledger, "first", outcome)

        def remove(claim: Claim) -> SliceOutcome:
            counts = Counts(read=2, deleted=2)
            return SliceOutcome(claim.slice_id, claim.fence, counts, removed=["doc_0000", "doc_9999"])

        self._run(ledger, "second", remove)
        assert list(ledger.manifest(part.instance)) == [change(1).uri]

    def test_a_failing_document_keeps_what_is_indexed_of_it(self, ledger: Ledger) -> None:
        self._run(ledger, "first", outcome)
        part = self._run(ledger, "second", lambda claim: outcome(claim, fail=[0], version="v2"))
        versions = {uri: each.version for uri, each in ledger.manifest(part.instance).items()}
        assert versions == {change(0).uri: "v1", change(1).uri: "v2"}

    def test_each_failure_of_a_document_is_one_more_attempt(self, ledger: Ledger, clock: VirtualClock) -> None:
        for attempt, version in enumerate(["v1", "v1", "v2"], start=1):
            clock.advance(10)
            self._run(ledger, f"job-{attempt}", lambda claim, v=version: outcome(claim, fail=[0], version=v))  # type: ignore[misc]  # a default argument binds the loop variable
        (failure,) = ledger.failures()
        assert (failure.attempts, failure.version, failure.job_id) == (3, "v2", "job-3")
        assert failure.failed_at == START + 30

    @pytest.mark.parametrize("how", ["written", "removed"])
    def test_a_document_that_was_written_or_removed_has_no_failure_any_more(self, ledger: Ledger, how: str) -> None:
        self._run(ledger, "first", lambda claim: outcome(claim, fail=[0, 1]))
        assert ledger.count_failures(REF) == 2

        def cure(claim: Claim) -> SliceOutcome:
            if how == "written":
                return outcome(claim, fail=[1])
            counts, failures = Counts(read=2, deleted=1, failed=1), outcome(claim, fail=[1]).failures
            return SliceOutcome(claim.slice_id, claim.fence, counts, removed=["doc_0000"], failures=failures)

        self._run(ledger, "second", cure)
        assert [(each.document_id, each.attempts) for each in ledger.failures()] == [("doc_0001", 2)]
        self._run(ledger, "third", outcome)
        assert ledger.failures() == []
        assert ledger.count_failures(REF) == 0

    def test_failures_are_listed_newest_first_by_partition(self, ledger: Ledger, clock: VirtualClock) -> None:
        part, other = part_of(lease_of(ledger, "ann")), part_of(lease_of(ledger, "ann", OTHER), instance="instance-2")
        ledger.create_job("job", [NewPart(part, plans(2, units=1)), NewPart(other, plans(1, units=1))], worker_id="ann")
        ledger.start_job("job")
        for each in (part, other):
            for claim in ledger.claim("job", each.ref, "ann", work=99, limit=99):
                clock.advance(1)
                ledger.complete(each, "ann", [outcome(claim, fail=[0, 1])], job_id="job")
        assert [(each.ref, each.document_id) for each in ledger.failures()] == [
            (OTHER, "doc_0000"),
            (REF, "doc_0001"),
            (REF, "doc_0000"),
        ]
        assert [each.document_id for each in ledger.failures(REF)] == ["doc_0001", "doc_0000"]
        assert [each.document_id for each in ledger.failures(REF, limit=1)] == ["doc_0001"]
        assert (ledger.count_failures(REF), ledger.count_failures(OTHER)) == (2, 1)
        assert ledger.failed_versions(OTHER) == {change(0).uri: "v1"}

    def test_text_comes_back_as_it_went_in(self, ledger: Ledger) -> None:
        strange = 'file:///o\'Brien "quoted" 100%/ünïcode/\N{PILE OF POO};DROP TABLE documents--.md'
        odd = ManifestEntry("doc_0000", strange, 2**62, "", "hash", 0, 15)

        def make(claim: Claim) -> SliceOutcome:
            failure = Failure("doc_0001", strange, "v:1", "parse", "line one\nline 'two'")
            return SliceOutcome(claim.slice_id, claim.fence, Counts(2, 1, failed=1), [odd], failures=[failure])

        part = self._run(ledger, "job", make)
        assert ledger.manifest(part.instance) == {strange: odd}
        assert ledger.failures()[0].reason == "line one\nline 'two'"

    def test_an_unknown_instance_is_empty(self, ledger: Ledger) -> None:
        assert ledger.manifest("nothing") == {}
        assert ledger.totals("nothing") == (0, 0, 0)
        assert ledger.failed_versions(REF) == {}
        assert ledger.checkpoint(REF) is None


class _Promotion(_Fixtures):
    def test_a_promoted_part_becomes_the_checkpoint_complete_up_to_the_jobs_creation(
        self, ledger: Ledger, clock: VirtualClock
    ) -> None:
        part = running(ledger, plans(1))
        clock.advance(100)
        ledger.complete(part, "ann", list(map(outcome, claim_all(ledger))), job_id="job")
        end(ledger, part)
        checkpoint = ledger.checkpoint(REF)
        assert checkpoint is not None
        assert (checkpoint.ref, checkpoint.instance, checkpoint.sequence) == (REF, "instance-1", 1)
        assert (checkpoint.physical, checkpoint.fingerprint) == ("instance-1-index", {"chunker": "c1"})
        assert (checkpoint.buckets, checkpoint.job_id) == (16, "job")
        assert (checkpoint.watermark, checkpoint.updated_at) == (START, START + 100)
        assert job_of(ledger, "job").finished_at == START + 100

    def test_a_rebuild_replaces_the_manifest_and_a_refresh_keeps_it(self, ledger: Ledger, clock: VirtualClock) -> None:
        first = running(ledger, plans(1), job_id="first")
        ledger.complete(first, "ann", list(map(outcome, claim_all(ledger, job_id="first"))), job_id="first")
        end(ledger, first, "first")
        lease = Lease(REF, "ann", first.epoch, 0)

        refresh = part_of(lease, fresh=False)
        clock.advance(1)
        ledger.create_job("refresh", [NewPart(refresh, [])], worker_id="ann")
        ledger.start_job("refresh")
        end(ledger, refresh, "refresh")
        after_refresh = ledger.checkpoint(REF)
        assert after_refresh is not None
        assert (after_refresh.sequence, after_refresh.watermark, after_refresh.job_id) == (1, START + 1, "refresh")
        assert len(ledger.manifest("instance-1")) == 2

        second = part_of(lease, instance="instance-2")
        ledger.create_job("second", [NewPart(second, plans(1))], worker_id="ann")
        ledger.start_job("second")
        ledger.complete(second, "ann", list(map(outcome, claim_all(ledger, job_id="second"))), job_id="second")
        assert len(ledger.manifest("instance-1")) == 2, "what is served stays until the new one is"
        end(ledger, second, "second")
        after_rebuild = ledger.checkpoint(REF)
        assert after_rebuild is not None
        assert (after_rebuild.instance, after_rebuild.sequence) == ("instance-2", 2)
        assert ledger.manifest("instance-1") == {}
        assert len(ledger.manifest("instance-2")) == 2

    def test_a_failed_rebuild_changes_nothing_of_what_is_served(self, ledger: Ledger) -> None:
        first = running(ledger, plans(1), job_id="first")
        ledger.complete(first, "ann", list(map(outcome, claim_all(ledger, job_id="first"))), job_id="first")
        end(ledger, first, "first")
        served = ledger.checkpoint(REF)
        rebuild = part_of(Lease(REF, "ann", first.epoch, 0), instance="instance-2")
        ledger.create_job("second", [NewPart(rebuild, plans(1))], worker_id="ann")
        ledger.start_job("second")
        ledger.complete(rebuild, "ann", list(map(outcome, claim_all(ledger, job_id="second"))), job_id="second")
        assert len(ledger.manifest("instance-2")) == 2
        ledger.finish_job("second", JobState.FAILED, error="no luck")
        assert ledger.checkpoint(REF) == served
        assert len(ledger.manifest("instance-1")) == 2
        assert ledger.manifest("instance-2") == {}

    def test_promoting_needs_the_lease(self, ledger: Ledger, clock: VirtualClock) -> None:
        part = running(ledger, plans(1))
        ledger.complete(part, "ann", list(map(outcome, claim_all(ledger))), job_id="job")
        clock.advance(LEASE_TTL_MS)
        lease_of(ledger, "bob")
        before = state_of_everything(ledger, part)
        with pytest.raises(Fenced):
            ledger.finish_job("job", JobState.COMPLETED, promote=[part])
        assert state_of_everything(ledger, part) == before

    def test_only_a_jobs_own_part_can_be_promoted(self, ledger: Ledger) -> None:
        part = running(ledger, [])
        before = state_of_everything(ledger, part)
        foreign = part_of(Lease(REF, "ann", part.epoch, 0), instance="instance-9")
        with pytest.raises(Conflict):
            ledger.finish_job("job", JobState.COMPLETED, promote=[part, foreign])
        assert state_of_everything(ledger, part) == before


class _Takeover(_Fixtures):
    def test_an_adopted_job_goes_on_under_the_new_epoch(self, ledger: Ledger, clock: VirtualClock) -> None:
        part = running(ledger, plans(3))
        (done, *_) = ledger.claim("job", REF, "ann", work=20, limit=9)
        ledger.complete(part, "ann", [outcome(done)], job_id="job")
        clock.advance(LEASE_TTL_MS)
        adopted = take_over(ledger)
        assert adopted == part_of(Lease(REF, "bob", part.epoch + 1, 0))
        assert adopted.base == part.base
        assert job_of(ledger, "job").parts == (adopted,)
        assert job_of(ledger, "job").slices == {SliceState.COMPLETED: 1, SliceState.PENDING: 2}
        again = claim_all(ledger, "bob")
        assert sorted((claim.fence, claim.attempts) for claim in again) == [(1, 0), (2, 1)]

    def test_a_zombie_can_do_nothing_after_a_takeover(self, ledger: Ledger, clock: VirtualClock) -> None:
        part = running(ledger, plans(2))
        old = claim_all(ledger)
        clock.advance(LEASE_TTL_MS)
        adopted = take_over(ledger)
        for before_claim in (True, False):
            new = [] if before_claim else claim_all(ledger, "bob")
            before = state_of_everything(ledger, adopted)
            assert not ledger.holds(old, "ann")
            with pytest.raises(Fenced):
                ledger.complete(part, "ann", list(map(outcome, old)), job_id="job")
            with pytest.raises(Fenced):
                ledger.complete(adopted, "ann", list(map(outcome, old)), job_id="job")
            with pytest.raises(Fenced):
                ledger.renew_lease(Lease(REF, "ann", part.epoch, 0))
            with pytest.raises(Fenced):
                ledger.adopt_job("job", Lease(REF, "ann", part.epoch, 0))
            with pytest.raises(Fenced):
                ledger.finish_job("job", JobState.COMPLETED, promote=[part])
            ledger.give_back(old, "ann", error="late", spent=True)
            ledger.retire_worker("ann")
            assert state_of_everything(ledger, adopted) == before
            assert ledger.holds(new, "bob")

    def test_the_same_worker_under_a_new_fence_is_fenced_too(self, ledger: Ledger) -> None:
        part = running(ledger, plans(1))
        old = claim_all(ledger)
        ledger.give_back(old, "ann", spent=False)
        new = claim_all(ledger)
        with pytest.raises(Fenced):
            ledger.complete(part, "ann", list(map(outcome, old)), job_id="job")
        ledger.give_back(old, "ann", spent=True)
        assert ledger.holds(new, "ann")
        assert not ledger.holds(old, "ann")

    def test_adopting_leaves_the_other_parts_of_a_job_alone(self, ledger: Ledger) -> None:
        part, other = part_of(lease_of(ledger, "ann")), part_of(lease_of(ledger, "cid", OTHER), instance="instance-2")
        ledger.create_job("job", [NewPart(part, plans(1)), NewPart(other, plans(1))], worker_id="ann")
        ledger.start_job("job")
        claim_all(ledger)
        theirs = ledger.claim("job", OTHER, "cid", work=1, limit=1)
        adopted = take_over(ledger)
        assert job_of(ledger, "job").parts == (adopted, other)
        assert ledger.holds(theirs, "cid")
        ledger.complete(other, "cid", list(map(outcome, theirs)), job_id="job")

    def test_a_job_whose_stop_was_cut_off_can_be_adopted_and_started(self, ledger: Ledger) -> None:
        running(ledger, plans(1))
        claim_all(ledger)
        ledger.request_stop("job")
        take_over(ledger)
        assert job_of(ledger, "job").state is JobState.STOPPED
        ledger.start_job("job")
        assert len(claim_all(ledger, "bob")) == 1

    def test_a_partition_that_the_job_does_not_have_cannot_be_adopted(self, ledger: Ledger) -> None:
        running(ledger, plans(1))
        with pytest.raises(Conflict):
            ledger.adopt_job("job", lease_of(ledger, "bob", OTHER))


class _BadEnds(_Fixtures):
    def _kill(self, ledger: Ledger, how: str) -> list[Claim]:
        """Claim what there is and let it end badly; returns what was claimed."""
        claims = claim_all(ledger)
        if how == "worker died":
            take_over(ledger, "ann")
        else:
            ledger.give_back(claims, "ann", error="out of memory", spent=True)
        return claims

    @pytest.mark.parametrize("how", ["worker died", "given back"])
    def test_a_slice_is_tried_again_until_its_attempts_are_spent(self, ledger: Ledger, how: str) -> None:
        running(ledger, plans(1, units=1))
        tries = [self._kill(ledger, how) for _ in range(MAX_ATTEMPTS)]
        assert [[claim.attempts for claim in claims] for claims in tries] == [[n] for n in range(MAX_ATTEMPTS)]
        assert claim_all(ledger) == []
        job = job_of(ledger, "job")
        assert job.slices == {SliceState.FAILED: 1}
        assert job.counts == Counts(read=1, failed=1)
        assert end_of_job(job.slices, job.counts) is JobState.FAILED
        (failure,) = ledger.failures()
        assert (failure.document_id, failure.stage, failure.version, failure.attempts) == ("doc_0000", "wave", "v1", 1)
        assert f"{MAX_ATTEMPTS} times" in failure.reason

    def test_giving_back_unspent_never_wears_a_slice_out(self, ledger: Ledger) -> None:
        running(ledger, plans(1, units=1))
        for _ in range(3 * MAX_ATTEMPTS):
            ledger.give_back(claim_all(ledger), "ann", error="target is down", spent=False)
        assert job_of(ledger, "job").slices == {SliceState.PENDING: 1}

    @pytest.mark.parametrize("how", ["worker died", "given back"])
    def test_a_worn_out_slice_is_cut_in_halves_that_hold_the_same_documents(self, ledger: Ledger, how: str) -> None:
        running(ledger, [plan(0, range(5), work=50)])
        for _ in range(MAX_ATTEMPTS):
            (whole,) = self._kill(ledger, how)
        assert job_of(ledger, "job").slices == {SliceState.PENDING: 2}
        assert job_of(ledger, "job").counts == Counts()
        halves = [claim_all(ledger), claim_all(ledger)]
        assert [len(claims) for claims in halves] == [1, 1], "each runs alone"
        (first,), (second,) = sorted(halves, key=lambda claims: claims[0].slice_id)
        assert decode_changes(first.payload) + decode_changes(second.payload) == decode_changes(whole.payload)
        assert (first.units, second.units) == (2, 3)
        assert first.work + second.work == 50
        assert (first.attempts, second.attempts) == (MAX_ATTEMPTS - 1, MAX_ATTEMPTS - 1)
        assert whole.slice_id not in (first.slice_id, second.slice_id)
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
        assert job_of(ledger, "job").counts == Counts(read=16, written=15, failed=1, rows_written=45)
        assert end(ledger, part) is JobState.COMPLETED_WITH_ERRORS

    def test_a_slice_on_its_last_attempt_waits_for_the_others_and_runs_alone(self, ledger: Ledger) -> None:
        running(ledger, [plan(0, [0], work=90), plan(1, [1], work=80), plan(2, [2], work=10)])
        for _ in range(MAX_ATTEMPTS - 1):
            suspects = ledger.claim("job", REF, "ann", work=100, limit=9)
            ledger.give_back(suspects, "ann", spent=True)
        orders = [[claim.index for claim in claim_all(ledger)] for _ in range(4)]
        assert orders == [[2], [0], [1], []]

    def test_a_poisoned_slice_among_good_ones_leaves_a_job_with_errors(self, ledger: Ledger) -> None:
        part = running(ledger, plans(2, units=1))
        good, bad = claim_all(ledger)
        ledger.complete(part, "ann", [outcome(good)], job_id="job")
        ledger.give_back([bad], "ann", spent=True)
        for _ in range(MAX_ATTEMPTS - 1):
            self._kill(ledger, "given back")
        assert end(ledger, part) is JobState.COMPLETED_WITH_ERRORS

    def test_splitting_does_not_spoil_a_job_that_ends_well(self, ledger: Ledger) -> None:
        part = running(ledger, plans(1, units=2))
        for _ in range(MAX_ATTEMPTS):
            self._kill(ledger, "given back")
        while claims := claim_all(ledger):
            ledger.complete(part, "ann", list(map(outcome, claims)), job_id="job")
        assert job_of(ledger, "job").counts == Counts(read=2, written=2, rows_written=6)
        assert end(ledger, part) is JobState.COMPLETED


class LedgerContract(_Leases, _Jobs, _Unfinished, _Claims, _Completing, _Documents, _Promotion, _Takeover, _BadEnds):
    """All of it."""
