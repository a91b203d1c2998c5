"""What jobs have lost of an index lately, and sources that could not be seen as a whole."""

from __future__ import annotations

import pytest

from instep.domain.promotion_rules import NO_LOSS, Loss
from instep.domain.refs import PartitionRef
from instep.errors import Fenced
from instep.ledger.ledger import Ledger
from instep.ledger.parts import NewPart
from tests.contracts.ledger.building import (
    OTHER,
    REF,
    VirtualClock,
    complete_all,
    end,
    fail,
    lease_of,
    new_part,
    plans,
    running,
    take_over,
)
from tests.contracts.ledger.fixtures import Fixtures

HOUR = 3_600_000


def _lost(ledger: Ledger, ref: PartitionRef = REF, generation: str = "") -> Loss:
    return ledger.losses.lately(ref, generation, window=HOUR)


def _run(ledger: Ledger, job_id: str, loss: Loss, *, allowed: bool = False, fresh: bool = False) -> None:
    """A job that loses so much, and is done."""
    part = new_part(ledger, lease_of(ledger, "ann", job_id=job_id), fresh=fresh)
    ledger.parts.plan(job_id, [NewPart(part, plans(1), lost=loss, allowed=allowed)])
    ledger.jobs.start(job_id)
    complete_all(ledger, part, job_id=job_id)
    end(ledger, part, job_id)


class Losing(Fixtures):
    def test_losses_of_parts_are_summed(self, ledger: Ledger) -> None:
        assert _lost(ledger) == NO_LOSS
        _run(ledger, "first", Loss(5), fresh=True)
        _run(ledger, "second", Loss(7, 2))
        assert _lost(ledger) == Loss(12, 2)
        assert _lost(ledger, generation="v2") == NO_LOSS
        assert _lost(ledger, OTHER) == NO_LOSS

    def test_a_loss_counts_while_its_part_is_open_and_for_the_window_after(
        self, ledger: Ledger, clock: VirtualClock
    ) -> None:
        _run(ledger, "built", NO_LOSS, fresh=True)
        clock.advance(1)
        part = running(ledger, plans(1), job_id="job", fresh=False)
        ledger.losses.count(part, Loss(3, 4), job_id="job")
        ledger.losses.count(part, Loss(1), job_id="job")
        assert _lost(ledger) == Loss(4, 4)
        complete_all(ledger, part)
        end(ledger, part)
        clock.advance(HOUR - 1)
        assert _lost(ledger) == Loss(4, 4)
        clock.advance(1)
        assert _lost(ledger) == NO_LOSS

    def test_a_part_that_a_person_has_allowed_everything_has_counting_begin_anew(self, ledger: Ledger) -> None:
        _run(ledger, "first", Loss(5), fresh=True)
        _run(ledger, "second", Loss(100, 100), allowed=True)
        assert _lost(ledger) == NO_LOSS
        _run(ledger, "third", Loss(1))
        assert _lost(ledger) == Loss(1)

    def test_a_part_that_fails_has_lost_it_all_the_same(self, ledger: Ledger) -> None:
        _run(ledger, "built", NO_LOSS, fresh=True)
        part = running(ledger, plans(1), fresh=False)
        ledger.losses.count(part, Loss(2), job_id="job")
        fail(ledger, part)
        assert _lost(ledger) == Loss(2)

    def test_a_fenced_worker_counts_no_loss(self, ledger: Ledger) -> None:
        part = running(ledger, plans(1))
        take_over(ledger)
        with pytest.raises(Fenced):
            ledger.losses.count(part, Loss(1), job_id="job")
        assert _lost(ledger) == NO_LOSS

    def test_a_problem_of_a_listing_stands_until_another_look(self, ledger: Ledger) -> None:
        assert ledger.losses.listing_problem(REF) is None
        ledger.losses.tell_listing(REF, "docs/b: permission denied")
        ledger.losses.tell_listing(OTHER, "away")
        ledger.losses.tell_listing(REF, "docs/c: stale file handle")
        assert ledger.losses.listing_problem(REF) == "docs/c: stale file handle"
        ledger.losses.tell_listing(REF, None)
        ledger.losses.tell_listing(REF, None)
        assert ledger.losses.listing_problem(REF) is None
        assert ledger.losses.listing_problem(OTHER) == "away"
