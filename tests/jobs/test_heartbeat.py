"""The heartbeat: a worker that cannot prove its lease or its life stops writing before another one may start."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest

from instep.domain.clock import TIMING
from instep.domain.refs import PartitionRef
from instep.errors import Fenced, Transient
from instep.jobs.heartbeat import Heartbeat
from instep.ledger.leases import Lease
from tests.doubles.clock import VirtualClock
from tests.doubles.ledger import MemoryLedger

REF = PartitionRef("Document")
TRUSTED = (TIMING.lease - TIMING.margin) / 1000


class Kept:
    """A worker that holds the lease of its job."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.ledger = MemoryLedger(self.clock)
        self.ledger.workers.register("w1", kind="run", host="h", pid=1)
        self.ledger.jobs.begin("job", "w1", {})
        lease = self.ledger.leases.acquire(REF, "job", "w1")
        assert isinstance(lease, Lease)
        self.lease = lease
        self.heartbeat = Heartbeat(self.ledger, "w1", self.clock, TIMING)
        self.heartbeat.keep(lease, since=self.clock.monotonic())


@pytest.fixture
def kept() -> Kept:
    return Kept()


def test_beats_keep_lease_and_worker_for_ever(kept: Kept) -> None:
    for _ in range(40):
        kept.clock.sleep(TIMING.heartbeat / 1000)
        assert kept.heartbeat.beat()
        kept.heartbeat.require(REF)
    assert kept.ledger.leases.renew(kept.lease).epoch == kept.lease.epoch
    assert kept.ledger.sweep().workers == ()


def test_without_renewal_the_worker_stops_a_margin_before_the_lease_expires(kept: Kept) -> None:
    kept.clock.sleep(TRUSTED)
    kept.heartbeat.require(REF)
    kept.clock.sleep(0.001)
    with pytest.raises(Fenced):
        kept.heartbeat.require(REF)
    assert kept.ledger.now() < kept.lease.expires_at


def test_a_lost_lease_is_noticed_at_the_next_renewal(kept: Kept) -> None:
    kept.ledger.leases.transfer(kept.lease, "job")
    kept.clock.sleep(TIMING.renew / 1000)
    assert kept.heartbeat.beat()
    with pytest.raises(Fenced, match="lease"):
        kept.heartbeat.require(REF)


def test_a_worker_that_others_evicted_stops_at_its_next_beat(kept: Kept) -> None:
    kept.ledger.workers.evict("w1")
    assert not kept.heartbeat.beat()
    assert kept.heartbeat.lost
    with pytest.raises(Fenced, match="could not send its heartbeat"):
        kept.heartbeat.require(REF)


def test_a_partition_that_was_never_leased_or_was_dropped_is_not_ours(kept: Kept) -> None:
    with pytest.raises(Fenced):
        kept.heartbeat.require(PartitionRef("Other"))
    kept.heartbeat.drop(REF)
    with pytest.raises(Fenced):
        kept.heartbeat.require(REF)


def test_the_heartbeat_reports_the_running_slices(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[set[str]] = []
    monkeypatch.setattr(kept.ledger.workers, "heartbeat", lambda _, running: said.append(set(running)))
    kept.heartbeat.begin(["a", "b"])
    kept.heartbeat.beat()
    kept.heartbeat.end(["a"])
    kept.heartbeat.beat()
    assert said == [{"a", "b"}, {"b"}]


def test_an_outage_is_waited_out_and_a_slow_reply_does_not_stretch_the_lease(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    renew: Callable[[Lease], Lease] = kept.ledger.leases.renew
    beat: Callable[[str, Collection[str]], int] = kept.ledger.workers.heartbeat
    outage = True

    def unreliable(held: Lease) -> Lease:
        renewed = renew(held)
        kept.clock.sleep(100)  # The reply was on its way for long.
        return renewed

    def heartbeat(worker_id: str, running: Collection[str]) -> int:
        if outage:
            raise Transient("the ledger is away")
        return beat(worker_id, running)

    monkeypatch.setattr(kept.ledger.leases, "renew", unreliable)
    monkeypatch.setattr(kept.ledger.workers, "heartbeat", heartbeat)
    kept.clock.sleep(100)
    assert kept.heartbeat.beat()
    kept.heartbeat.require(REF)
    outage = False
    assert kept.heartbeat.beat()
    # Renewed at 100 s, answered at 200 s: trusted from the start of the renewal, not from its answer.
    kept.clock.sleep(TRUSTED - 100)
    kept.heartbeat.require(REF)
    kept.clock.sleep(0.001)
    with pytest.raises(Fenced):
        kept.heartbeat.require(REF)


def test_an_unexpected_error_blocks_no_renewal_of_other_leases(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    renew, other = kept.ledger.leases.renew, PartitionRef("Other")
    lease = kept.ledger.leases.acquire(other, "job", "w1")
    assert isinstance(lease, Lease)
    kept.heartbeat.keep(lease, since=kept.clock.monotonic())

    def fails(lease: Lease) -> Lease:
        if lease.ref == REF:
            raise RuntimeError("WSREP has not yet prepared node for application use")
        return renew(lease)

    def fails_too(worker_id: str, running: Collection[str]) -> int:
        raise RuntimeError("the same")

    for _ in range(6):
        kept.clock.sleep(TIMING.renew / 1000)
        with monkeypatch.context() as patch:
            patch.setattr(kept.ledger.leases, "renew", fails)
            with pytest.raises(RuntimeError, match="WSREP"):
                kept.heartbeat.beat()
    with pytest.raises(Fenced):
        kept.heartbeat.require(REF)
    kept.heartbeat.require(other)

    with monkeypatch.context() as patch:
        patch.setattr(kept.ledger.workers, "heartbeat", fails_too)
        with pytest.raises(RuntimeError, match="the same"):
            kept.heartbeat.beat()
    assert not kept.heartbeat.lost
    assert kept.heartbeat.beat()
