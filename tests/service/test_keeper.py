"""The keeper: a worker that cannot prove its lease stops writing before anybody else may start."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from instep.domain.refs import PartitionRef
from instep.errors import Fenced, Transient
from instep.ledger.memory import MemoryLedger
from instep.ledger.port import LEASE_RENEW_MS, LEASE_TTL_MS, Lease
from instep.service.keeper import MARGIN_SECONDS, Keeper
from tests.doubles.clock import VirtualClock

REF = PartitionRef("Document")


def setup(clock: VirtualClock) -> tuple[MemoryLedger, Lease]:
    ledger = MemoryLedger(clock)
    ledger.register_worker("w1", host="h", pid=1)
    lease = ledger.acquire_lease(REF, "w1")
    assert isinstance(lease, Lease)
    return ledger, lease


def test_renewing_keeps_the_lease_for_ever() -> None:
    clock = VirtualClock()
    ledger, lease = setup(clock)
    keeper = Keeper(ledger, lease, clock)
    for _ in range(20):
        clock.sleep(LEASE_RENEW_MS / 1000)
        keeper.beat()
        keeper.require()
    assert ledger.renew_lease(lease).epoch == lease.epoch


def test_without_renewal_the_worker_stops_a_margin_before_the_lease_expires() -> None:
    clock = VirtualClock()
    ledger, lease = setup(clock)
    keeper = Keeper(ledger, lease, clock)
    clock.sleep(LEASE_TTL_MS / 1000 - MARGIN_SECONDS)
    keeper.require()
    clock.sleep(0.001)
    with pytest.raises(Fenced):
        keeper.require()
    assert ledger.now() < lease.expires_at


def test_a_takeover_is_noticed_at_the_next_beat() -> None:
    clock = VirtualClock()
    ledger, lease = setup(clock)
    keeper = Keeper(ledger, lease, clock)
    assert ledger.break_lease(REF, lease.epoch)
    ledger.register_worker("w2", host="h", pid=2)
    assert isinstance(ledger.acquire_lease(REF, "w2"), Lease)
    clock.sleep(LEASE_RENEW_MS / 1000)
    keeper.beat()
    with pytest.raises(Fenced):
        keeper.require()


def test_an_outage_is_waited_out_and_a_slow_reply_does_not_stretch_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = VirtualClock()
    ledger, lease = setup(clock)
    renew: Callable[[Lease], Lease] = ledger.renew_lease
    outage = True

    def unreliable(held: Lease) -> Lease:
        if outage:
            raise Transient("the ledger is away")
        renewed = renew(held)
        clock.sleep(100)  # The reply was on its way for long.
        return renewed

    monkeypatch.setattr(ledger, "renew_lease", unreliable)
    keeper = Keeper(ledger, lease, clock)
    clock.sleep(100)
    keeper.beat()
    keeper.require()
    outage = False
    keeper.beat()
    # Renewed at 100 s, answered at 200 s: trusted from the start of the renewal, not from its answer.
    clock.sleep(LEASE_TTL_MS / 1000 - MARGIN_SECONDS - 100)
    keeper.require()
    clock.sleep(0.001)
    with pytest.raises(Fenced):
        keeper.require()
