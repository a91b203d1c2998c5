"""A clock that is set back: nothing waits for as long as it was wrong by."""

from __future__ import annotations

import pytest

from instep.domain.clock import TIMING
from instep.domain.events import WantCreated
from instep.domain.jobs import JobState
from instep.domain.key_leases import LONGEST_PAUSE
from instep.domain.retries import LONGEST_DELAY
from instep.domain.wants import WantState
from instep.ledger.key_leases import KeyFailure
from instep.ledger.ledger import Ledger
from instep.ledger.parts import NewPart
from tests.contracts.ledger.building import (
    REF,
    VirtualClock,
    canonical_of,
    claim_all,
    complete_all,
    end,
    imported,
    job_of,
    joined,
    lease_of,
    new_part,
    plan,
    plans,
    register,
    running,
)
from tests.contracts.ledger.fixtures import Fixtures

#: By how much it was wrong.
HOUR = 3_600_000


class Clocks(Fixtures):
    def test_slices_are_claimed(self, ledger: Ledger, clock: VirtualClock) -> None:
        running(ledger, plans(10), stagger=True)
        clock.advance(-HOUR)
        assert [each.head > 0 for each in ledger.open_parts.on([REF])] == [True]
        assert len(claim_all(ledger)) == 10

    def test_slices_that_were_given_back_are_claimed(self, ledger: Ledger, clock: VirtualClock) -> None:
        running(ledger, plans(2))
        ledger.slices.give_back(claim_all(ledger), "ann", spent=False, delay=10_000)
        assert claim_all(ledger) == []
        clock.advance(-HOUR)
        back = claim_all(ledger)
        assert len(back) == 2
        ledger.slices.give_back(back, "ann", spent=False, delay=10_000)
        assert claim_all(ledger) == [], "a pause is a pause by the new clock"
        clock.advance(10_000)
        assert len(claim_all(ledger)) == 2

    def test_no_delay_is_longer_than_the_longest_allowed(self, ledger: Ledger, clock: VirtualClock) -> None:
        running(ledger, plans(1))
        ledger.slices.give_back(claim_all(ledger), "ann", spent=False, delay=2 * LONGEST_DELAY)
        clock.advance(LONGEST_DELAY - 1)
        assert claim_all(ledger) == []
        clock.advance(1)
        assert len(claim_all(ledger)) == 1

    def test_slices_that_a_thread_forgot_go_back(self, ledger: Ledger, clock: VirtualClock) -> None:
        running(ledger, plans(3))
        (kept, *_) = claim_all(ledger)
        clock.advance(-HOUR)
        assert ledger.workers.heartbeat("ann", [kept.slice_id]) == 2
        assert len(claim_all(ledger)) == 2

    def test_a_worker_that_died_is_evicted_in_time(self, ledger: Ledger, clock: VirtualClock) -> None:
        running(ledger, plans(2))
        register(ledger, "bob")
        claim_all(ledger)
        clock.advance(-HOUR)
        assert ledger.sweep().workers == (), "no worker is taken for dead because the clock was wrong"
        clock.advance(TIMING.stale // 2)
        ledger.workers.heartbeat("bob", [])
        clock.advance(TIMING.stale // 2)
        assert ledger.sweep().workers == ("ann",)

    def test_a_lease_without_renewal_expires(self, ledger: Ledger, clock: VirtualClock) -> None:
        lease = lease_of(ledger, "ann", job_id="first")
        clock.advance(-HOUR)
        ledger.sweep()
        register(ledger, "bob")
        ledger.jobs.begin("second", "bob", {})
        assert ledger.leases.acquire(REF, "second", "bob") != lease
        clock.advance(TIMING.lease)
        assert lease_of(ledger, "bob", job_id="second").epoch > lease.epoch

    def test_a_job_that_is_to_stop_stops_in_time(self, ledger: Ledger, clock: VirtualClock) -> None:
        running(ledger, plans(2))
        claim_all(ledger)
        assert ledger.jobs.request_stop("job") is JobState.STOPPING
        clock.advance(-HOUR)
        ledger.sweep()
        assert job_of(ledger).state is JobState.STOPPING
        clock.advance(TIMING.grace)
        ledger.workers.heartbeat("ann", [])
        ledger.sweep()
        assert job_of(ledger).state is JobState.STOPPED

    def test_a_job_was_not_touched_in_the_future(self, ledger: Ledger, clock: VirtualClock) -> None:
        running(ledger, plans(2))
        clock.advance(-HOUR)
        ledger.sweep()
        assert job_of(ledger).updated_at == clock.now()

    @pytest.mark.parametrize("before", [True, False])
    def test_a_want_as_of_now_is_started_and_a_job_satisfies_it(
        self, ledger: Ledger, clock: VirtualClock, *, before: bool
    ) -> None:
        """Whether it was made before the clock was set back or after that."""
        part = running(ledger, [plan(0, [1])], job_id="first")
        complete_all(ledger, part, job_id="first")
        end(ledger, part, "first")
        want = WantCreated(want="now", refs=(str(REF),), fresh_within=0)
        clock.advance(1)
        if before:
            ledger.events.append([want])
        clock.advance(-HOUR)
        if not before:
            ledger.events.append([want])
        found = ledger.wants.get("now")
        assert found is not None
        assert found.state is WantState.IDLE, "what is served is older than the want, whatever the clock said"
        assert [each.id for each in ledger.wants.startable([REF])] == ["now"]
        assert (found.needed or 0) <= ledger.present()

        register(ledger, "ann")
        lease = lease_of(ledger, "ann", job_id="second")
        part = new_part(ledger, lease, fresh=False)
        ledger.parts.plan("second", [NewPart(part, [plan(0, [1])])])
        ledger.jobs.start("second")
        complete_all(ledger, part, job_id="second")
        end(ledger, part, "second")
        found = ledger.wants.get("now")
        assert found is not None
        assert found.state is WantState.SUCCESSFUL
        latest = ledger.jobs.latest(REF)
        assert latest is not None
        assert latest.id == "second"

    def test_log_times_grow_though_the_clock_steps_back(self, ledger: Ledger, clock: VirtualClock) -> None:
        imported(ledger, watermark=1)
        clock.advance(-HOUR)
        for number in range(3):
            ledger.events.append([WantCreated(want=str(number), refs=("Other@global",))])
        times = [at for _, at, *_ in ledger.events.rows()]
        assert times == sorted(set(times))
        assert times[-1] - times[0] < 10
        assert ledger.present() == times[-1]
        clock.advance(2 * HOUR)
        assert ledger.present() == clock.now()
        assert canonical_of(ledger).watermark == 1

    def test_keys_of_queues_are_given_again(self, ledger: Ledger, clock: VirtualClock) -> None:
        ledger.key_leases.lease("queue", [1], "ann", lasting=60_000)
        assert ledger.key_leases.fail("queue", [KeyFailure(2, None, "no luck")])
        clock.advance(-HOUR)
        assert sorted(ledger.key_leases.due("queue", 10)) == [1, 2]
        taken = ledger.key_leases.lease("queue", [1, 2], "bob", lasting=60_000, retries=True)
        assert sorted(taken.leased) == [1, 2]
        assert ledger.key_leases.due("queue", 10) == {}
        clock.advance(60_000)
        assert sorted(ledger.key_leases.due("queue", 10)) == [1, 2]

    def test_a_pause_of_a_key_is_as_long_as_it_is(self, ledger: Ledger, clock: VirtualClock) -> None:
        clock.advance(LONGEST_PAUSE)
        ledger.key_leases.fail("queue", [KeyFailure(2, None, "no luck")])
        clock.advance(-1_000)
        assert ledger.key_leases.due("queue", 10) == {}, "clocks are corrected by a second every day"

    def test_joining_leaves_and_claims_continue_as_before(self, ledger: Ledger, clock: VirtualClock) -> None:
        part = running(ledger, plans(4))
        joined(ledger, "bob")
        clock.advance(-HOUR)
        ledger.sweep()
        complete_all(ledger, part, "bob")
        assert end(ledger, part, worker="bob") is JobState.COMPLETED
