"""What is forgotten of jobs that ended long ago, and what is still needed."""

from __future__ import annotations

from dataclasses import replace

from instep.domain.events import InstanceTainted
from instep.domain.jobs import JobPart, JobState, SliceState
from instep.ledger.ledger import Ledger
from instep.ledger.parts import NewPart
from instep.ledger.retention import Gone
from tests.contracts.ledger.building import (
    OTHER,
    REF,
    VirtualClock,
    canonical_of,
    claim_all,
    complete_all,
    end,
    fail,
    lease_of,
    new_part,
    plans,
    running,
    running_two,
)
from tests.contracts.ledger.fixtures import Fixtures

DAY = 24 * 3_600_000


def ended(ledger: Ledger, job_id: str, *, fresh: bool = False, slices: int = 2, target: int | None = None) -> JobPart:
    """A job that was completed."""
    part = replace(new_part(ledger, lease_of(ledger, "ann", job_id=job_id), fresh=fresh), target=target)
    ledger.parts.plan(job_id, [NewPart(part, plans(slices))])
    ledger.jobs.start(job_id)
    complete_all(ledger, part, job_id=job_id)
    end(ledger, part, job_id)
    return part


def all_forgotten(ledger: Ledger, before: int, limit: int = 2_000) -> list[Gone]:
    """What each call has forgotten."""
    found = [ledger.retention.forget(before, limit)]
    while found[-1].more:
        assert len(found) < 100
        found.append(ledger.retention.forget(before, limit))
    return found


def known(ledger: Ledger) -> list[str]:
    return [each.id for each in ledger.jobs.newest()]


class Forgetting(Fixtures):
    def test_jobs_that_ended_long_ago_are_forgotten_but_for_those_that_are_needed(
        self, ledger: Ledger, clock: VirtualClock
    ) -> None:
        built = ended(ledger, "built", fresh=True)
        for number in range(3):
            clock.advance(DAY)
            ended(ledger, f"refreshed {number}")
        clock.advance(DAY)
        fail(ledger, running(ledger, plans(1), job_id="failed", fresh=False), "failed")
        clock.advance(DAY)
        young = clock.now()
        ended(ledger, "young")
        clock.advance(DAY)
        running(ledger, plans(1), job_id="stopped", fresh=False)
        ledger.jobs.request_stop("stopped")
        documents, checkpoint = ledger.documents.entries(built.instance), ledger.checkpoints.get(REF)
        failures, state = ledger.failures.newest(), ledger.events.state()
        assert ledger.retention.forgettable(young) == Gone(4, 7)
        assert all_forgotten(ledger, young) == [Gone(4, 7)]
        assert known(ledger) == ["stopped", "young", "built"]
        assert ledger.retention.forgettable(clock.now() + 1) == Gone()
        assert all_forgotten(ledger, clock.now() + 1) == [Gone()]
        assert ledger.documents.entries(built.instance) == documents
        assert (ledger.checkpoints.get(REF), ledger.failures.newest()) == (checkpoint, failures)
        assert ledger.events.state() == state
        assert [each.id for each in ledger.slices.page("built")] == ["built.0.0", "built.0.1"]
        assert ledger.slices.page("refreshed 0") == []
        assert ledger.jobs.unfinished(REF) is not None

    def test_the_newest_job_of_each_partition_stays(self, ledger: Ledger, clock: VirtualClock) -> None:
        ended(ledger, "one", fresh=True)
        other = new_part(ledger, lease_of(ledger, "ann", OTHER, job_id="other"))
        ledger.parts.plan("other", [NewPart(other, plans(1))])
        ledger.jobs.start("other")
        fail(ledger, other, "other")
        clock.advance(DAY)
        assert all_forgotten(ledger, clock.now()) == [Gone()]
        ended(ledger, "two")
        clock.advance(DAY)
        ended(ledger, "three")
        clock.advance(DAY)
        assert all_forgotten(ledger, clock.now()) == [Gone(1, 2)]
        assert known(ledger) == ["three", "one", "other"] or known(ledger) == ["three", "other", "one"]

    def test_a_job_that_built_what_is_served_no_more_goes(self, ledger: Ledger, clock: VirtualClock) -> None:
        first = ended(ledger, "first", fresh=True)
        ledger.events.append([InstanceTainted(instance=first.instance, by="ann")])
        clock.advance(DAY)
        second = ended(ledger, "second", fresh=True)
        clock.advance(DAY)
        assert canonical_of(ledger).uuid == second.instance != first.instance
        assert all_forgotten(ledger, clock.now()) == [Gone(1, 2)]
        assert known(ledger) == ["second"]

    def test_what_a_forgotten_job_wrote_is_nobody_elses(self, ledger: Ledger, clock: VirtualClock) -> None:
        """Neither under its epoch, nor with its watermark."""
        parts = [ended(ledger, "0", fresh=True, target=100)]
        for number in range(1, 5):
            clock.advance(DAY)
            parts.append(ended(ledger, str(number), target=100 * number + 100))
        before = {each.epoch: ledger.parts.of_epoch(REF, each.epoch) for each in parts}
        watermarks = {mark: ledger.parts.reaching(REF, parts[0].instance, mark) for mark in (50, 150, 400, 401, 500)}
        assert ledger.retention.of(REF) is None
        until = clock.now()
        assert all_forgotten(ledger, until) == [Gone(3, 6)]
        assert known(ledger) == ["4", "0"]
        for number, part in enumerate(parts):
            found = ledger.parts.of_epoch(REF, part.epoch)
            assert found == (None if 1 <= number <= 3 else before[part.epoch])
        for mark, found in watermarks.items():
            gone = 100 < mark <= 400
            assert ledger.parts.reaching(REF, parts[0].instance, mark) == (None if gone else found)
        forgotten = ledger.retention.of(REF)
        assert forgotten is not None
        assert (forgotten.epoch, forgotten.target, forgotten.at) == (parts[3].epoch, 400, until - DAY)
        assert ledger.retention.of(OTHER) is None

    def test_a_large_job_goes_a_little_at_a_time(self, ledger: Ledger, clock: VirtualClock) -> None:
        ended(ledger, "large", fresh=True)
        clock.advance(DAY)
        ended(ledger, "old", slices=7)
        clock.advance(DAY)
        part = ended(ledger, "new")
        clock.advance(DAY)
        assert all_forgotten(ledger, clock.now(), limit=3) == [Gone(0, 3, True), Gone(0, 3, True), Gone(1, 1)]
        assert known(ledger) == ["new", "large"]
        running(ledger, plans(1), job_id="next", fresh=False)
        assert len(claim_all(ledger, job_id="next")) == 1
        assert part.epoch < ledger.leases.last_epoch(REF)

    def test_what_the_slices_of_a_part_were_to_do_is_forgotten_when_it_has_ended(self, ledger: Ledger) -> None:
        part, other = running_two(ledger, plans(3), plans(2))
        payloads = [each.payload for each in ledger.slices.of_part("job", REF)]
        ledger.slices.forget_work("job", REF)
        assert [each.payload for each in ledger.slices.of_part("job", REF)] == payloads != []
        complete_all(ledger, part)
        end(ledger, part)
        before = ledger.slices.of_part("job", OTHER)
        for _ in range(2):
            ledger.slices.forget_work("job", REF)
            assert [(each.state, each.payload) for each in ledger.slices.of_part("job", REF)] == [
                (SliceState.COMPLETED, b"") for _ in payloads
            ]
        assert ledger.slices.of_part("job", OTHER) == before
        complete_all(ledger, other)
        assert end(ledger, other) is JobState.COMPLETED

    def test_one_worker_in_a_while_looks_through_all_instances(self, ledger: Ledger, clock: VirtualClock) -> None:
        assert [ledger.retention.due(1_000) for _ in range(2)] == [True, False]
        clock.advance(999)
        assert not ledger.retention.due(1_000)
        clock.advance(1)
        assert [ledger.retention.due(1_000) for _ in range(2)] == [True, False]
        clock.advance(-5_000)
        assert ledger.retention.due(1_000), "the clock was set back"
