"""The state of tables that runs have seen: planned with a job, known when that has ended and is served."""

from __future__ import annotations

from instep.domain.jobs import JobState, tries_of
from instep.domain.seen import Late, Seen
from instep.domain.table_files import Files, TableFile
from instep.ledger.ledger import Ledger
from instep.ledger.parts import NewPart
from tests.contracts.ledger.building import (
    REF,
    claim_all,
    complete_all,
    end,
    fail,
    lease_of,
    new_part,
    outcome,
    plans,
    running,
)
from tests.contracts.ledger.fixtures import Fixtures

LATE = Late(2, ("4711", "ü"), exact=True, at=5)
FIRST = Seen(1_700_000_000_000_123, 5_000_000, 3, "postgresql 99", frozenset({1, -7, 2**63 - 1}), late=LATE)
SECOND = Seen(files=Files.of([TableFile("a", 1, "x"), TableFile("b", 2, "")]), reconciled=7)


def _job(ledger: Ledger, job_id: str, seen: Seen | None, *, fresh: bool = False, ends: bool = True) -> None:
    part = new_part(ledger, lease_of(ledger, "ann", job_id=job_id), fresh=fresh)
    ledger.parts.plan(job_id, [NewPart(part, plans(1), seen=seen)])
    ledger.jobs.start(job_id)
    if ends:
        complete_all(ledger, part, job_id=job_id)
        end(ledger, part, job_id)
    else:
        fail(ledger, part, job_id)


def _known(ledger: Ledger) -> Seen | None:
    checkpoint = ledger.checkpoints.get(REF)
    assert checkpoint is not None
    found = ledger.seen.get(checkpoint)
    assert ledger.seen.late(checkpoint) == (found.late if found else None)
    return found


class SeenTables(Fixtures):
    def test_what_was_seen_is_known_when_its_job_has_ended(self, ledger: Ledger) -> None:
        _job(ledger, "first", FIRST, fresh=True)
        assert _known(ledger) == FIRST
        part = new_part(ledger, lease_of(ledger, "ann", job_id="second"), fresh=False)
        ledger.parts.plan("second", [NewPart(part, plans(1), seen=SECOND)])
        ledger.jobs.start("second")
        complete_all(ledger, part, job_id="second")
        assert _known(ledger) == FIRST
        end(ledger, part, "second")
        assert _known(ledger) == SECOND

    def test_of_a_new_instance_what_its_build_has_seen_is_known_before_it_is_served(self, ledger: Ledger) -> None:
        _job(ledger, "first", FIRST, fresh=True)
        part = new_part(ledger, lease_of(ledger, "ann", job_id="second"), fresh=True)
        assert ledger.seen.of_instance(part) is None
        ledger.parts.plan("second", [NewPart(part, plans(1), seen=SECOND)])
        ledger.jobs.start("second")
        assert (_known(ledger), ledger.seen.of_instance(part)) == (FIRST, SECOND)
        fail(ledger, part, "second")
        assert (_known(ledger), ledger.seen.of_instance(part)) == (FIRST, None)

    def test_of_a_part_that_is_extended_what_was_seen_since_is_known(self, ledger: Ledger) -> None:
        _job(ledger, "first", FIRST, fresh=True)
        part = new_part(ledger, lease_of(ledger, "ann", job_id="second"), fresh=True)
        ledger.parts.plan("second", [NewPart(part, plans(1), seen=SECOND)])
        ledger.jobs.start("second")
        third = Seen(reconciled=8)
        for seen in (third, None):
            complete_all(ledger, part, job_id="second")
            ledger.parts.extend(part, plans(1), job_id="second", seen=seen)
            assert (_known(ledger), ledger.seen.of_instance(part)) == (FIRST, third)
        complete_all(ledger, part, job_id="second")
        end(ledger, part, "second")
        assert _known(ledger) == third

    def test_a_look_that_finds_nothing_to_do_is_known_while_the_same_job_is_served(self, ledger: Ledger) -> None:
        _job(ledger, "first", None, fresh=True)
        before = ledger.checkpoints.get(REF)
        assert before is not None
        for seen in (FIRST, SECOND):
            ledger.seen.confirm(before, seen)
            assert _known(ledger) == seen
        _job(ledger, "second", FIRST)
        ledger.seen.confirm(before, SECOND)
        assert _known(ledger) == FIRST

    def test_a_job_that_fails_has_seen_nothing(self, ledger: Ledger) -> None:
        _job(ledger, "first", FIRST, fresh=True)
        _job(ledger, "second", SECOND, ends=False)
        assert _known(ledger) == FIRST
        _job(ledger, "third", SECOND)
        assert _known(ledger) == SECOND

    def test_what_a_refresh_has_written_it_has_seen_though_the_target_holds_other_rows(self, ledger: Ledger) -> None:
        """Else the next job begins with the same, again and again, as long as nobody mends the target."""
        _job(ledger, "first", FIRST, fresh=True)
        for job_id, fresh in (("damaged", False), ("wrong", True)):
            part = new_part(ledger, lease_of(ledger, "ann", job_id=job_id), fresh=fresh)
            ledger.parts.plan(job_id, [NewPart(part, plans(1), seen=SECOND)])
            ledger.jobs.start(job_id)
            complete_all(ledger, part, job_id=job_id)
            ledger.parts.finish(job_id, part, JobState.COMPLETED, worker_id="ann", error="it holds other rows")
            assert _known(ledger) == SECOND, "what a build has seen goes with it"

    def test_a_refresh_of_which_slices_failed_has_not_seen_all(self, ledger: Ledger) -> None:
        _job(ledger, "first", FIRST, fresh=True)
        part = new_part(ledger, lease_of(ledger, "ann", job_id="half"), fresh=False)
        ledger.parts.plan("half", [NewPart(part, plans(2, units=1), seen=SECOND)])
        ledger.jobs.start("half")
        first, second = claim_all(ledger, job_id="half")
        ledger.slices.complete(part, "ann", [outcome(first)], job_id="half")
        ledger.slices.give_back([second], "ann", error="out of memory", spent=True)
        for _ in range(tries_of(1)):
            ledger.slices.give_back(claim_all(ledger, job_id="half"), "ann", error="out of memory", spent=True)
        assert claim_all(ledger, job_id="half") == []
        ledger.parts.finish("half", part, JobState.COMPLETED_WITH_ERRORS, worker_id="ann", error="not all is done")
        assert _known(ledger) == FIRST

    def test_a_job_that_looks_at_nothing_leaves_what_is_known_of_its_instance(self, ledger: Ledger) -> None:
        _job(ledger, "first", FIRST, fresh=True)
        _job(ledger, "repair", None)
        assert _known(ledger) == FIRST
        _job(ledger, "rebuild", None, fresh=True)
        assert _known(ledger) is None

    def test_nothing_is_known_of_a_partition_that_was_dropped(self, ledger: Ledger) -> None:
        _job(ledger, "first", FIRST, fresh=True)
        lease = lease_of(ledger, "ann", job_id="drop")
        ledger.partitions.drop(lease)
        ledger.leases.release(lease)
        running(ledger, plans(1), job_id="again")
        part = ledger.jobs.unfinished(REF)
        assert part is not None
        complete_all(ledger, part.part(REF).part, job_id="again")
        end(ledger, part.part(REF).part, "again")
        assert _known(ledger) is None
