"""A part may say up to when its instance is complete once it is done."""

from __future__ import annotations

from dataclasses import replace

import pytest

from instep.domain.events import InstanceBuilding, InstanceLive, InstanceRefreshed, InstanceRefreshing, WantCreated
from instep.domain.jobs import JobPart, JobState
from instep.domain.wants import WantState
from instep.ledger.ledger import Ledger
from instep.ledger.parts import NewPart
from tests.contracts.ledger.building import (
    REF,
    START,
    VirtualClock,
    canonical_of,
    complete_all,
    end,
    lease_of,
    logged,
    new_part,
    plans,
    status_of,
    take_over,
)
from tests.contracts.ledger.fixtures import Fixtures


def _running_up_to(ledger: Ledger, target: int, *, job_id: str = "job", fresh: bool = True) -> JobPart:
    part = replace(new_part(ledger, lease_of(ledger, "ann", job_id=job_id), fresh=fresh), target=target)
    ledger.parts.plan(job_id, [NewPart(part, plans(1))])
    ledger.jobs.start(job_id)
    return part


def _done_up_to(ledger: Ledger, target: int, *, job_id: str, fresh: bool = True) -> JobPart:
    part = _running_up_to(ledger, target, job_id=job_id, fresh=fresh)
    complete_all(ledger, part, job_id=job_id)
    end(ledger, part, job_id)
    return part


def _reached(ledger: Ledger) -> tuple[int, int | None]:
    checkpoint = ledger.checkpoints.get(REF)
    assert checkpoint is not None
    return checkpoint.watermark, canonical_of(ledger).watermark


def _state_of_want(ledger: Ledger) -> WantState:
    want = ledger.wants.get("want")
    assert want is not None
    return want.state


class Targets(Fixtures):
    @pytest.mark.parametrize("target", [START - 1_000, START + 1_000, 0])
    def test_a_build_is_complete_up_to_its_target(self, ledger: Ledger, clock: VirtualClock, target: int) -> None:
        part = _running_up_to(ledger, target)
        assert status_of(ledger).part == part
        (building,) = (each for each in logged(ledger) if isinstance(each, InstanceBuilding))
        assert (building.floor, building.target) == (0, target)
        clock.advance(50)
        complete_all(ledger, part)
        end(ledger, part)
        (live,) = (each for each in logged(ledger) if isinstance(each, InstanceLive))
        assert live.watermark == target
        assert _reached(ledger) == (target, target)

    def test_a_refresh_continues_from_the_target_of_the_one_before(self, ledger: Ledger, clock: VirtualClock) -> None:
        _done_up_to(ledger, START - 500, job_id="first")
        clock.advance(1_000)
        _done_up_to(ledger, START + 400, job_id="second", fresh=False)
        (refreshing,) = (each for each in logged(ledger) if isinstance(each, InstanceRefreshing))
        assert (refreshing.floor, refreshing.target) == (START - 500, START + 400)
        (refreshed,) = (each for each in logged(ledger) if isinstance(each, InstanceRefreshed))
        assert refreshed.watermark == START + 400
        assert _reached(ledger) == (START + 400, START + 400)

    def test_a_target_takes_no_watermark_back(self, ledger: Ledger) -> None:
        _done_up_to(ledger, START - 500, job_id="first")
        _done_up_to(ledger, START - 600, job_id="second", fresh=False)
        (refreshing,) = (each for each in logged(ledger) if isinstance(each, InstanceRefreshing))
        assert (refreshing.floor, refreshing.target) == (START - 500, START - 500)
        assert _reached(ledger) == (START - 500, START - 500)

    def test_a_rebuild_is_complete_up_to_its_own_target_and_no_further(self, ledger: Ledger) -> None:
        _done_up_to(ledger, START - 500, job_id="first")
        _done_up_to(ledger, START - 600, job_id="second")
        assert _reached(ledger) == (START - 600, START - 600)

    def test_a_job_that_is_resumed_later_keeps_its_target(self, ledger: Ledger, clock: VirtualClock) -> None:
        part = _running_up_to(ledger, START - 5)
        ledger.jobs.request_stop("job", "enough for today")
        clock.advance(86_400_000)
        adopted = take_over(ledger)
        assert adopted == replace(part, epoch=part.epoch + 1)
        assert adopted.target == START - 5
        ledger.jobs.start("job")
        (open_part,) = ledger.open_parts.on([REF])
        assert open_part.part == adopted
        complete_all(ledger, adopted, "bob")
        # What is stored counts, whatever the one who finishes it says.
        assert end(ledger, replace(adopted, target=None), worker="bob") is JobState.COMPLETED
        assert _reached(ledger) == (START - 5, START - 5)

    def test_a_want_waits_for_a_target_that_is_late_enough(self, ledger: Ledger) -> None:
        ledger.events.append([WantCreated(want="want", refs=(str(REF),), as_of=START - 10)])
        _done_up_to(ledger, START - 11, job_id="first")
        assert _state_of_want(ledger) is not WantState.SUCCESSFUL
        _done_up_to(ledger, START - 10, job_id="second", fresh=False)
        assert _state_of_want(ledger) is WantState.SUCCESSFUL
