"""Servers with different leases on one ledger: they do not take each other for dead, and fences hold when one is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from instep.domain.clock import LONGEST_LEASE, SHORTEST_LEASE, TIMING, Timing
from instep.errors import Fenced
from instep.jobs.heartbeat import Heartbeat
from instep.ledger.leases import Lease
from instep.ledger.ledger import Ledger
from instep.ledger.open import open_ledger
from tests.contracts.ledger import REF, VirtualClock, claim_all, plans, register, running
from tests.contracts.ledger.building import joined, outcome

SHORT, LONG = TIMING.lasting(SHORTEST_LEASE), TIMING.lasting(LONGEST_LEASE)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[tuple[VirtualClock, Ledger, Ledger]]:
    clock = VirtualClock()
    ledgers = [open_ledger(f"sqlite:///{tmp_path}/ledger.db", clock=clock, timing=each) for each in (LONG, SHORT)]
    yield clock, ledgers[0], ledgers[1]
    for each in ledgers:
        each.close()


def test_the_usual_lease_is_the_usual_timing() -> None:
    assert TIMING.lasting(TIMING.lease) == TIMING


@pytest.mark.parametrize("timing", [SHORT, TIMING, LONG], ids=["short", "usual", "long"])
def test_whatever_the_lease_heartbeats_and_renewals_come_well_before_the_shortest_one_ends(timing: Timing) -> None:
    assert 4 * timing.heartbeat <= SHORTEST_LEASE
    assert 2 * timing.renew <= SHORTEST_LEASE
    assert timing.heartbeat + timing.margin < timing.lease


def test_a_short_lease_leaves_a_long_one_alone_as_long_as_its_worker_lives(
    opened: tuple[VirtualClock, Ledger, Ledger],
) -> None:
    clock, ledger, other = opened
    part = running(ledger, plans(2))
    register(other, "bob")
    heartbeat = Heartbeat(ledger, "ann", clock, LONG)
    heartbeat.keep(ledger.leases.renew(Lease(REF, "job", part.epoch, 0)), since=clock.monotonic())
    claims = claim_all(ledger)
    heartbeat.begin([each.slice_id for each in claims])
    for _ in range(2 * LONGEST_LEASE // LONG.heartbeat):
        clock.advance(LONG.heartbeat)
        assert heartbeat.beat()
        other.workers.heartbeat("bob", [])
        assert other.sweep().workers == ()
        heartbeat.require(REF)
    ledger.slices.complete(part, "ann", list(map(outcome, claims)), job_id="job")


def test_a_silent_worker_with_a_long_lease_is_fenced_when_a_short_one_has_taken_over(
    opened: tuple[VirtualClock, Ledger, Ledger],
) -> None:
    clock, ledger, other = opened
    part = running(ledger, plans(1))
    heartbeat = Heartbeat(ledger, "ann", clock, LONG)
    claims = claim_all(ledger)
    joined(other, "bob")
    for _ in range(SHORTEST_LEASE // SHORT.heartbeat):
        clock.advance(SHORT.heartbeat)
        other.workers.heartbeat("bob", [])
    assert other.sweep().workers == ("ann",)
    assert claim_all(other, "bob")[0].fence > claims[0].fence
    with pytest.raises(Fenced):
        ledger.slices.complete(part, "ann", list(map(outcome, claims)), job_id="job")
    assert not heartbeat.beat()
    assert heartbeat.lost
