"""The state of tables that runs have seen: planned with a job, known when that has ended and is served."""

from __future__ import annotations

from instep.domain.seen import Late, Seen
from instep.domain.table_files import Files, TableFile
from instep.ledger.ledger import Ledger
from instep.ledger.parts import NewPart
from tests.contracts.ledger.building import (
    REF,
    complete_all,
    end,
    fail,
    lease_of,
    new_part,
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

    def test_a_job_that_fails_has_seen_nothing(self, ledger: Ledger) -> None:
        _job(ledger, "first", FIRST, fresh=True)
        _job(ledger, "second", SECOND, ends=False)
        assert _known(ledger) == FIRST
        _job(ledger, "third", SECOND)
        assert _known(ledger) == SECOND

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
