"""Leases: held for a job by all who take part in it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from instep.domain.clock import TIMING
from instep.domain.events import InstanceCreated
from instep.domain.instances import Reason
from instep.domain.refs import PartitionRef
from instep.domain.requests import Group, Kind
from instep.errors import Conflict, Fenced
from instep.ledger.leases import Holder, Lease
from instep.ledger.ledger import Ledger
from instep.ledger.parts import NewPart
from instep.ledger.workers import WorkerInfo
from tests.contracts.ledger.building import (
    OTHER,
    REF,
    START,
    VirtualClock,
    joined,
    lease_of,
    new_part,
    plans,
    register,
)
from tests.contracts.ledger.fixtures import Fixtures


def _begun(ledger: Ledger, *workers: str) -> None:
    """Each of the workers has begun a job named after it."""
    register(ledger, *workers)
    for worker in workers:
        ledger.jobs.begin(f"job of {worker}", worker, {})


def _acquire(ledger: Ledger, worker: str, ref: PartitionRef = REF) -> Lease | Holder:
    return ledger.leases.acquire(ref, f"job of {worker}", worker)


class Leases(Fixtures):
    def test_a_free_lease_is_acquired_and_a_held_one_names_its_job_and_workers(
        self, ledger: Ledger, clock: VirtualClock
    ) -> None:
        lease = lease_of(ledger, "ann")
        assert lease == Lease(REF, "job", 1, START + TIMING.lease)
        clock.advance(2)
        ledger.workers.register("cid", kind="worker", host="castle", pid=42)
        ledger.jobs.join("job", "cid")
        _begun(ledger, "bob")
        assert _acquire(ledger, "bob") == Holder(
            REF,
            "job",
            1,
            START,
            START + TIMING.lease,
            (
                WorkerInfo("ann", "run", "here", 1, START, START, ("job",)),
                WorkerInfo("cid", "worker", "castle", 42, START + 2, START + 2, ("job",)),
            ),
        )

    @pytest.mark.parametrize("worker", ["ann", "bob"])
    def test_a_jobs_own_live_lease_is_not_free_either(self, ledger: Ledger, worker: str) -> None:
        lease_of(ledger, "ann")
        register(ledger, "bob")
        answer = ledger.leases.acquire(REF, "job", worker)
        assert isinstance(answer, Holder)
        assert answer.job_id == "job"
        assert [each.id for each in answer.workers] == ["ann"], "who was refused takes no part by that"

    def test_leases_of_different_partitions_are_independent(self, ledger: Ledger) -> None:
        lease_of(ledger, "ann", REF)
        assert lease_of(ledger, "bob", OTHER, job_id="other").epoch == 1

    def test_a_full_group_has_no_lease_for_another_partition(self, ledger: Ledger, clock: VirtualClock) -> None:
        """On all servers together; leases of other kinds, and those without a worker, take no room."""
        group = Group("source", 1, frozenset({Kind.NAMESPACE}))
        first, second = PartitionRef.parse("Issue@1"), PartitionRef.parse("Note@2")
        lease_of(ledger, "cid", REF, job_id="global")
        _begun(ledger, "ann", "bob")
        assert isinstance(ledger.leases.acquire(first, "job of ann", "ann", group), Lease)
        answer = ledger.leases.acquire(second, "job of bob", "bob", group)
        assert isinstance(answer, Holder)
        assert (answer.ref, answer.job_id, [each.id for each in answer.workers]) == (second, "job of ann", ["ann"])
        assert isinstance(ledger.leases.acquire(OTHER, "job of bob", "bob"), Lease), "it keeps to no group"
        clock.advance(TIMING.lease)
        assert isinstance(ledger.leases.acquire(second, "job of bob", "bob", group), Lease)
        assert isinstance(ledger.leases.acquire(first, "job of ann", "ann", group), Holder)

    def test_a_lease_needs_a_job_and_a_registered_worker(self, ledger: Ledger) -> None:
        register(ledger, "ann")
        with pytest.raises(Conflict):
            ledger.leases.acquire(REF, "nothing", "ann")
        ledger.jobs.begin("job", "ann", {})
        with pytest.raises(Fenced):
            ledger.leases.acquire(REF, "job", "zombie")
        assert isinstance(ledger.leases.acquire(REF, "job", "ann"), Lease)

    def test_a_lease_is_held_until_the_last_millisecond_and_free_at_its_expiry(
        self, ledger: Ledger, clock: VirtualClock
    ) -> None:
        lease_of(ledger, "ann")
        _begun(ledger, "bob")
        clock.advance(TIMING.lease - 1)
        assert isinstance(_acquire(ledger, "bob"), Holder)
        clock.advance(1)
        assert _acquire(ledger, "bob") == Lease(REF, "job of bob", 2, START + 2 * TIMING.lease)

    def test_a_job_may_have_its_own_lease_again_once_it_expired(self, ledger: Ledger, clock: VirtualClock) -> None:
        lease_of(ledger, "ann")
        clock.advance(TIMING.lease)
        assert ledger.leases.acquire(REF, "job", "ann") == Lease(REF, "job", 2, START + 2 * TIMING.lease)

    def test_a_lease_can_be_renewed_until_the_last_millisecond_and_not_at_its_expiry(
        self, ledger: Ledger, clock: VirtualClock
    ) -> None:
        lease = lease_of(ledger, "ann")
        clock.advance(TIMING.lease - 1)
        renewed = ledger.leases.renew(lease)
        assert renewed == Lease(REF, "job", 1, START + 2 * TIMING.lease - 1)
        clock.advance(TIMING.lease - 1)
        renewed = ledger.leases.renew(lease)
        assert renewed.expires_at == START + 3 * TIMING.lease - 2, "an older copy of it does as well"
        clock.advance(TIMING.lease)
        with pytest.raises(Fenced):
            ledger.leases.renew(renewed)

    def test_events_are_recorded_under_a_lease_as_long_as_it_is_held(self, ledger: Ledger, clock: VirtualClock) -> None:
        lease, before = lease_of(ledger, "ann"), ledger.events.last()
        made = InstanceCreated(ref=str(REF), reason=Reason.GENERATION, generation="v2")
        clock.advance(TIMING.lease - 1)
        ledger.leases.record(lease, [made])
        assert ledger.events.last() == before + 1
        clock.advance(TIMING.lease - 1)
        assert ledger.leases.renew(lease).epoch == lease.epoch, "it was extended"
        clock.advance(TIMING.lease)
        other = InstanceCreated(ref=str(REF), reason=Reason.GENERATION, generation="v3")
        with pytest.raises(Fenced):
            ledger.leases.record(lease, [other])
        _begun(ledger, "bob")
        assert isinstance(_acquire(ledger, "bob"), Lease)
        with pytest.raises(Fenced):
            ledger.leases.record(lease, [other])
        assert ledger.events.last() == before + 1, "nothing was recorded"

    def test_every_worker_of_the_job_keeps_the_lease_alive(self, ledger: Ledger, clock: VirtualClock) -> None:
        lease = lease_of(ledger, "ann")
        joined(ledger, "bob")
        ledger.jobs.leave("job", "ann")
        clock.advance(TIMING.lease - 1)
        ledger.leases.renew(lease)
        clock.advance(TIMING.lease - 1)
        _begun(ledger, "cid")
        answer = _acquire(ledger, "cid")
        assert isinstance(answer, Holder)
        assert [each.id for each in answer.workers] == ["bob"]

    @pytest.mark.parametrize("how", ["left", "retired", "evicted", "swept", "stopped"])
    def test_a_lease_is_free_once_its_job_has_no_workers(self, ledger: Ledger, clock: VirtualClock, how: str) -> None:
        lease = lease_of(ledger, "ann")
        if how == "swept":
            clock.advance(TIMING.stale - 1)
            lease = ledger.leases.renew(lease)
        _begun(ledger, "bob")
        assert isinstance(_acquire(ledger, "bob"), Holder)
        if how == "left":
            ledger.jobs.leave("job", "ann")
        elif how == "retired":
            ledger.workers.retire("ann")
        elif how == "evicted":
            ledger.workers.evict("ann")
        elif how == "stopped":
            ledger.jobs.leave("job", "ann", stop="told to")
        else:
            clock.advance(1)
            assert ledger.sweep().workers == ("ann",)
        taken = _acquire(ledger, "bob")
        assert isinstance(taken, Lease)
        assert taken.epoch == lease.epoch + 1
        with pytest.raises(Fenced):
            ledger.leases.renew(lease)

    def test_a_sweep_frees_a_fresh_lease_of_a_silent_worker(self, ledger: Ledger, clock: VirtualClock) -> None:
        register(ledger, "ann")
        clock.advance(TIMING.stale - 1)
        lease = lease_of(ledger, "ann")
        _begun(ledger, "bob")
        clock.advance(1)
        assert lease.expires_at > START + TIMING.stale, "it is not for its age that it is free"
        answer = _acquire(ledger, "bob")
        assert isinstance(answer, Holder), "silence alone frees nothing: its slices would not be looked after"
        assert [each.id for each in answer.workers] == ["ann"]
        assert ledger.sweep().workers == ("ann",)
        taken = _acquire(ledger, "bob")
        assert isinstance(taken, Lease)
        assert taken.epoch == lease.epoch + 1
        with pytest.raises(Fenced):
            ledger.leases.renew(lease)

    def test_the_epoch_grows_over_release_expiry_abandonment_and_transfer(
        self, ledger: Ledger, clock: VirtualClock
    ) -> None:
        first = lease_of(ledger, "ann", job_id="first")
        ledger.leases.release(first)
        second = lease_of(ledger, "ann", job_id="second")
        clock.advance(TIMING.lease)
        third = lease_of(ledger, "bob", job_id="third")
        ledger.workers.retire("bob")
        fourth = lease_of(ledger, "ann", job_id="fourth")
        fifth = ledger.leases.transfer(fourth, "first")
        assert [lease.epoch for lease in (first, second, third, fourth, fifth)] == [1, 2, 3, 4, 5]

    def test_epochs_of_an_entity_with_several_targets_grow_together(self, ledger: Ledger) -> None:
        register(ledger, "ann")
        names = ("Document", "Document__main", "Documents", "Document__pg", "document", "Document")
        epochs = []
        for number, name in enumerate(names):
            ledger.jobs.begin(f"j{number}", "ann", {})
            lease = ledger.leases.acquire(PartitionRef(name), f"j{number}", "ann")
            assert isinstance(lease, Lease)
            ledger.leases.release(lease)
            epochs.append(lease.epoch)
        assert epochs == [1, 2, 1, 3, 1, 4]
        assert [ledger.leases.last_epoch(PartitionRef(name)) for name in (*names, "Other")] == [4, 4, 1, 4, 1, 4, 0]

    def test_a_late_release_does_not_remove_a_fresh_lease(self, ledger: Ledger, clock: VirtualClock) -> None:
        old = lease_of(ledger, "ann")
        clock.advance(TIMING.lease)
        new = lease_of(ledger, "bob", job_id="new")
        with pytest.raises(Fenced):
            ledger.leases.renew(old)
        ledger.leases.release(old)
        ledger.leases.release(Lease(REF, "job", new.epoch, 0))
        _begun(ledger, "cid")
        assert isinstance(_acquire(ledger, "cid"), Holder)
        assert ledger.leases.renew(new) == new

    def test_a_late_release_under_the_same_job_does_not_remove_a_fresh_lease(
        self, ledger: Ledger, clock: VirtualClock
    ) -> None:
        old = lease_of(ledger, "ann")
        clock.advance(TIMING.lease)
        new = lease_of(ledger, "bob")
        ledger.leases.release(old)
        assert ledger.leases.renew(new) == new

    def test_two_that_see_an_expired_lease_do_not_both_get_it(
        self, ledgers: Callable[[], Ledger], clock: VirtualClock
    ) -> None:
        ledger, workers = ledgers(), ["bob", "cid", "dan", "eva"]
        lease_of(ledger, "ann")
        _begun(ledger, *workers)
        clock.advance(TIMING.lease)
        gate = threading.Barrier(4)

        def acquire(worker: str) -> Lease | Holder:
            mine = ledgers()
            gate.wait()
            return _acquire(mine, worker)

        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(acquire, workers))
        assert [answer.epoch for answer in answers] == [2, 2, 2, 2]
        assert sum(isinstance(answer, Lease) for answer in answers) == 1
        assert len({answer.job_id for answer in answers}) == 1, "all agree on who has it"

    def test_a_first_lease_is_given_once(self, ledgers: Callable[[], Ledger]) -> None:
        workers = ["ann", "bob", "cid", "dan"]
        _begun(ledgers(), *workers)
        gate = threading.Barrier(4)

        def acquire(worker: str) -> Lease | Holder:
            mine = ledgers()
            gate.wait()
            return _acquire(mine, worker)

        with ThreadPoolExecutor(4) as pool:
            answers = list(pool.map(acquire, workers))
        assert [answer.epoch for answer in answers] == [1, 1, 1, 1]
        assert sum(isinstance(answer, Lease) for answer in answers) == 1

    def test_a_lease_can_be_handed_to_another_job(self, ledger: Ledger, clock: VirtualClock) -> None:
        old = lease_of(ledger, "ann")
        ledger.jobs.begin("next", "ann", {})
        clock.advance(10)
        new = ledger.leases.transfer(old, "next")
        assert new == Lease(REF, "next", 2, START + 10 + TIMING.lease)
        with pytest.raises(Fenced):
            ledger.leases.renew(old)
        with pytest.raises(Fenced):
            ledger.leases.transfer(old, "next")
        ledger.leases.release(old)
        _begun(ledger, "bob")
        answer = _acquire(ledger, "bob")
        assert isinstance(answer, Holder)
        assert (answer.job_id, answer.epoch, answer.since) == ("next", 2, START + 10)
        ledger.parts.plan("next", [NewPart(new_part(ledger, new), plans(1))])

    @pytest.mark.parametrize("loss", ["expired", "taken over", "released"])
    def test_a_lost_lease_cannot_be_handed_over(self, ledger: Ledger, clock: VirtualClock, loss: str) -> None:
        lease = lease_of(ledger, "ann")
        ledger.jobs.begin("next", "ann", {})
        if loss == "released":
            ledger.leases.release(lease)
        else:
            clock.advance(TIMING.lease)
        if loss == "taken over":
            lease_of(ledger, "bob", job_id="theirs")
        with pytest.raises(Fenced):
            ledger.leases.transfer(lease, "next")
