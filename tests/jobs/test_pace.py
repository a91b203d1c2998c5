"""What a job measures, later plans are estimated by."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from instep.container import Container
from instep.entities.plan_request import PlanOptions
from instep.errors import Transient
from instep.jobs.run import run_entities
from instep.pipeline.engine.inline import InlineEngine
from instep.telemetry.progress import Silent
from tests.doubles.clock import VirtualClock
from tests.jobs.projects import home


@pytest.mark.parametrize(("seconds", "fails", "learns"), [(10, False, True), (2, False, False), (10, True, False)])
def test_waves_that_last_are_measured_unless_they_are_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: int, fails: bool, learns: bool
) -> None:
    real, clock, waves = InlineEngine.run, VirtualClock(), list[int]()

    def run(engine: InlineEngine, wave: Any, *args: Any) -> Any:
        waves.append(wave.work)
        clock.sleep(seconds)
        if fails and len(waves) == 1:
            raise Transient("the target is out of reach: gone")
        return real(engine, wave, *args)

    monkeypatch.setattr(InlineEngine, "run", run)
    container = Container(home(tmp_path).open().project, engine="inline", clock=clock)
    with closing(container), closing(container.ledger()) as ledger:
        (setup,) = container.setups()
        assert container.choose(setup, 1, ledger).pace_from == "a default"
        (result,) = run_entities([setup], container.context(ledger, Silent()), PlanOptions(), wait_seconds=0)
        choice = container.choose(setup, 1, ledger)
    if learns:
        assert result.job_id is not None
        assert choice.pace_from == f"measured in job {result.job_id[:8]}"
        assert choice.work_per_second == pytest.approx(sum(waves) / (seconds * len(waves)), rel=0.1)
    else:
        assert choice.pace_from == "a default"
