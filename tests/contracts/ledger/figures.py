"""How much there is of everything."""

from __future__ import annotations

from dataclasses import replace

import pytest

from instep.domain.counts import Counts
from instep.domain.events import WantCreated
from instep.domain.jobs import JobState, SliceState
from instep.domain.wants import WantState
from instep.domain.waves import GIVEN_UP
from instep.ledger.ledger import Ledger
from tests.contracts.ledger.building import (
    REF,
    START,
    VirtualClock,
    complete_all,
    end,
    outcome,
    plan,
    plans,
    register,
    running_two,
)
from tests.contracts.ledger.fixtures import Fixtures


class Figuring(Fixtures):
    def test_of_an_empty_ledger_there_is_nothing(self, ledger: Ledger) -> None:
        figures = ledger.figures()
        assert (figures.now, figures.jobs, figures.wants, figures.entities) == (START, {}, {}, {})

    @pytest.mark.parametrize("stage", ["parse", GIVEN_UP])
    def test_figures_count_open_work_by_entity_and_no_ended_work(
        self, ledger: Ledger, clock: VirtualClock, stage: str
    ) -> None:
        part, other = running_two(ledger, plans(3), [plan(0, [70, 71])])
        ledger.events.append([WantCreated(want="w", refs=("Report@global",))])
        register(ledger, "ann")
        first, second = ledger.slices.claim("job", REF, "ann", work=20, limit=2)
        done = outcome(first, fail=[0])
        done = replace(done, failures=[each._replace(stage=stage) for each in done.failures])
        ledger.slices.complete(part, "ann", [done], job_id="job")
        ledger.slices.give_back([second], "ann", error="once more", spent=True)
        figures = ledger.figures()
        assert (figures.jobs, figures.wants) == ({JobState.RUNNING: 1}, {WantState.IDLE: 1})
        document, ticket = figures.entities["Document"], figures.entities["Ticket"]
        assert document.slices == {SliceState.COMPLETED: 1, SliceState.PENDING: 2}
        assert (document.units, document.attempts, document.failures) == (6, 1, 1)
        assert document.counts == Counts(read=2, written=1, failed=1, rows_written=3)
        assert (document.leases, document.oldest_lease, document.watermark) == (1, START, None)
        assert document.oldest_given_up is None, "nothing of this generation is served yet"
        assert not document.unlisted
        ledger.losses.tell_listing(REF, "docs: no rights")
        assert [name for name, each in ledger.figures().entities.items() if each.unlisted] == ["Document"]
        assert document.first_expiry is not None
        assert document.first_expiry > START
        assert ticket.slices == {SliceState.PENDING: 1}

        clock.advance(60_000)
        complete_all(ledger, part)
        complete_all(ledger, other)
        end(ledger, part)
        assert ledger.figures().entities["Document"].leases == 0
        end(ledger, other)
        ended = ledger.figures()
        assert ended.jobs == {}
        document = ended.entities["Document"]
        assert (document.slices, document.units, document.attempts) == ({}, 0, 0)
        assert (document.partitions, document.watermark, document.failures) == (1, START, 1)
        assert document.oldest_given_up == (START if stage == GIVEN_UP else None)
