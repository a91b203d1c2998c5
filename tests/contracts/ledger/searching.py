"""What a worker that looks for work is told."""

from __future__ import annotations

import pytest

from instep.domain.clock import TIMING
from instep.domain.jobs import JobState, OpenPart
from instep.ledger.ledger import Ledger
from instep.ledger.parts import NewPart
from tests.contracts.ledger.building import (
    OTHER,
    REF,
    VirtualClock,
    claim_all,
    complete_all,
    end,
    fail,
    job_of,
    joined,
    lease_of,
    new_part,
    plan,
    planned,
    plans,
    running,
    running_two,
    upstream_fails,
)
from tests.contracts.ledger.fixtures import Fixtures


class Searching(Fixtures):
    # The unfinished job of a partition.

    def test_a_job_is_unfinished_until_its_part_ends(self, ledger: Ledger) -> None:
        assert ledger.jobs.unfinished(REF) is None
        part = planned(ledger, plans(1))
        assert ledger.jobs.unfinished(REF) == job_of(ledger)
        assert ledger.jobs.unfinished(OTHER) is None
        ledger.jobs.start("job")
        assert ledger.jobs.unfinished(REF) == job_of(ledger)
        complete_all(ledger, part)
        assert ledger.jobs.unfinished(REF) == job_of(ledger)
        end(ledger, part)
        assert ledger.jobs.unfinished(REF) is None

    @pytest.mark.parametrize("slices", [0, 2])
    @pytest.mark.parametrize("fresh", [True, False])
    def test_a_stopped_job_is_unfinished(self, ledger: Ledger, slices: int, fresh: bool) -> None:
        running(ledger, plans(slices), fresh=fresh)
        ledger.jobs.request_stop("job")
        assert ledger.jobs.unfinished(REF) == job_of(ledger)

    def test_a_failed_job_is_not_unfinished(self, ledger: Ledger) -> None:
        fail(ledger, running(ledger, plans(1)))
        assert ledger.jobs.unfinished(REF) is None

    def test_a_job_that_was_not_planned_is_not_unfinished(self, ledger: Ledger) -> None:
        lease_of(ledger, "ann")
        assert ledger.jobs.unfinished(REF) is None

    def test_each_part_is_unfinished_by_itself(self, ledger: Ledger) -> None:
        part, _ = running_two(ledger, plans(1), plans(1))
        complete_all(ledger, part)
        end(ledger, part)
        assert ledger.jobs.unfinished(REF) is None
        assert ledger.jobs.unfinished(OTHER) == job_of(ledger)

    def test_the_newest_unfinished_job_is_found(self, ledger: Ledger, clock: VirtualClock) -> None:
        part = running(ledger, plans(1), job_id="b")
        ledger.jobs.request_stop("b")
        upstream_fails(ledger, part, "b")
        clock.advance(1)
        running(ledger, plans(1), job_id="a")
        assert ledger.jobs.unfinished(REF) == job_of(ledger, "a")
        ledger.jobs.request_stop("a")
        assert ledger.jobs.unfinished(REF) == job_of(ledger, "a")

    # Marks of jobs.

    def test_marks_cover_open_jobs_and_the_newest_ended_ones(self, ledger: Ledger, clock: VirtualClock) -> None:
        assert ledger.jobs.marks(2) == []
        running(ledger, plans(1), job_id="old")
        for job_id in ("a", "b", "c"):
            clock.advance(1)
            ledger.jobs.begin(job_id, "ann", {})
            ledger.jobs.request_stop(job_id)
        marks = ledger.jobs.marks(2)
        assert [each.id for each in marks] == ["c", "b", "old"]
        assert [(each.state, each.updated_at) for each in marks] == [
            (job.state, job.updated_at) for job in (job_of(ledger, each.id) for each in marks)
        ]
        clock.advance(1)
        ledger.jobs.begin("d", "ann", {})
        assert [each.id for each in ledger.jobs.marks(1)] == ["d"]
        assert [each.id for each in ledger.jobs.marks(4)] == ["d", "c", "b", "a", "old"]

    # The latest job of a partition.

    def test_the_latest_job_of_a_partition_is_found_ended_or_not(self, ledger: Ledger, clock: VirtualClock) -> None:
        assert ledger.jobs.latest(REF) is None
        fail(ledger, running(ledger, plans(1), job_id="b"), "b")
        assert ledger.jobs.latest(REF) == job_of(ledger, "b")
        clock.advance(1)
        running(ledger, plans(1), job_id="a")
        assert ledger.jobs.latest(REF) == job_of(ledger, "a")
        clock.advance(1)
        ledger.jobs.begin("unplanned", "ann", {})
        assert ledger.jobs.latest(REF) == job_of(ledger, "a")
        assert ledger.jobs.latest(OTHER) is None

    # Open parts.

    def test_an_open_part_shows_its_remaining_work(self, ledger: Ledger) -> None:
        part = planned(ledger, [plan(0, [0], work=5), plan(1, [1], work=50, priority=60), plan(2, [2], work=70)])
        assert ledger.open_parts.on([REF]) == [OpenPart("job", JobState.READY, part, 60, 50, 3, 0, True, 1)]
        ledger.jobs.start("job")
        joined(ledger, "bob")
        ledger.slices.claim("job", REF, "ann", work=1, limit=1)
        assert ledger.open_parts.on([REF]) == [OpenPart("job", JobState.RUNNING, part, 60, 70, 2, 1, True, 2)]
        claims = claim_all(ledger)
        ledger.jobs.request_stop("job")
        assert ledger.open_parts.on([REF]) == [OpenPart("job", JobState.STOPPING, part, 60, 0, 0, 3, True, 2)]
        ledger.slices.give_back(claims, "ann", spent=False)
        assert [(each.head, each.pending, each.processing) for each in ledger.open_parts.on([REF])] == [(70, 2, 1)]

    def test_only_open_parts_of_the_named_partitions_are_shown(self, ledger: Ledger) -> None:
        part, other = running_two(ledger, plans(1), [])
        assert [each.part for each in ledger.open_parts.on([OTHER])] == [other]
        assert [each.part for each in ledger.open_parts.on([OTHER, REF])] == [part, other]
        assert ledger.open_parts.on([]) == []
        end(ledger, other)
        assert [each.part for each in ledger.open_parts.on([OTHER, REF])] == [part]

    @pytest.mark.parametrize("how", ["stopped", "failed", "completed", "not planned"])
    def test_a_job_without_work_has_no_open_part(self, ledger: Ledger, how: str) -> None:
        if how == "not planned":
            lease_of(ledger, "ann")
        elif how == "stopped":
            running(ledger, plans(1))
            ledger.jobs.request_stop("job")
        elif how == "failed":
            fail(ledger, running(ledger, plans(1)))
        else:
            end(ledger, running(ledger, []))
        assert ledger.open_parts.on([REF]) == []

    @pytest.mark.parametrize(
        ("here", "there", "first"),
        [((60, 1), (40, 99), REF), ((40, 99), (60, 1), OTHER), ((40, 5), (40, 6), OTHER), ((40, 6), (40, 5), REF)],
    )
    def test_parts_of_higher_priority_come_first_then_those_with_the_larger_head(
        self, ledger: Ledger, here: tuple[int, int], there: tuple[int, int], first: object
    ) -> None:
        running(ledger, [plan(0, [0], work=here[1], priority=here[0])])
        lease = lease_of(ledger, "bob", OTHER, job_id="other")
        slices = [plan(0, [0], work=there[1], priority=there[0])]
        ledger.parts.plan("other", [NewPart(new_part(ledger, lease), slices)])
        assert ledger.open_parts.on([REF, OTHER])[0].part.ref == first

    @pytest.mark.parametrize("how", ["no worker takes part", "expired", "released"])
    def test_a_part_without_a_live_lease_is_shown_as_not_held(
        self, ledger: Ledger, clock: VirtualClock, how: str
    ) -> None:
        lease = lease_of(ledger, "ann")
        ledger.parts.plan("job", [NewPart(new_part(ledger, lease), plans(1))])
        ledger.jobs.start("job")
        if how == "no worker takes part":
            ledger.jobs.leave("job", "ann")
        elif how == "expired":
            clock.advance(TIMING.lease - 1)
            assert [each.held for each in ledger.open_parts.on([REF])] == [True]
            clock.advance(1)
        else:
            ledger.leases.release(lease)
        assert [each.held for each in ledger.open_parts.on([REF])] == [False]
