"""What an engine brings back of a wave is looked at before anybody believes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from instep.domain.waves import TaskOutcome, Wave, WaveSlice
from tests.service.quiet import Quiet, indexed
from tests.simulator.engine import SimEngine

ALL = set(range(1, 13))


def test_an_outcome_that_adds_up_and_lacks_a_document_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that lost a document on its way counts right what it has met."""
    real, lost = SimEngine._read, list[str]()

    def forgetful(self: SimEngine, part: WaveSlice, program: Any) -> Any:
        if not lost:
            lost.append(part.changes[-1].uri)
            part = replace(part, changes=part.changes[:-1])
        return real(self, part, program)

    monkeypatch.setattr(SimEngine, "_read", forgetful)
    world = Quiet(len(ALL))
    result = world.run_once()
    assert lost
    assert result.promoted
    assert (result.counts.read, result.counts.failed) == (len(ALL), 0)
    assert indexed(world) == ALL, "it was done again"
    world.sound()


@pytest.mark.parametrize("how", ["none", "two"])
def test_each_slice_of_a_wave_has_one_outcome(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real, wrong = SimEngine.run, list[str]()

    def run(self: SimEngine, wave: Wave, *args: Any) -> Sequence[TaskOutcome]:
        tasks = list(real(self, wave, *args))
        if not wrong:
            first, *others = tasks[0].slices
            wrong.append(first.slice_id)
            tasks[0] = replace(tasks[0], slices=tuple(others) if how == "none" else (first, first, *others))
        return tasks

    monkeypatch.setattr(SimEngine, "run", run)
    world = Quiet(len(ALL))
    result = world.run_once()
    assert wrong
    assert result.promoted
    assert (result.counts.read, result.counts.failed) == (len(ALL), 0)
    assert indexed(world) == ALL
    world.sound()
