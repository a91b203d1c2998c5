"""The outcomes of a wave are checked before they are used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from instep.domain.waves import TaskOutcome, Wave, WaveSlice
from instep.errors import InstepError, Transient, UserError
from tests.jobs.quiet import REF, Quiet, indexed
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


def attempts(world: Quiet) -> list[int]:
    """Tries that ended badly, of the slices of the newest job."""
    (job, *_) = world.ledger.jobs.newest(1)
    return [each.attempts for each in world.ledger.slices.of_part(job.id, REF, limit=100)]


def broken(monkeypatch: pytest.MonkeyPatch, fails: Callable[[Wave], Exception | None]) -> list[Wave]:
    """Waves that fail so; returns all that are run."""
    real, seen = SimEngine.run, list[Wave]()

    def run(self: SimEngine, wave: Wave, *args: Any) -> Sequence[TaskOutcome]:
        seen.append(wave)
        if error := fails(wave):
            raise error
        return real(self, wave, *args)

    monkeypatch.setattr(SimEngine, "run", run)
    return seen


def test_a_dead_wave_is_retried_in_halves_and_spends_no_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = broken(monkeypatch, lambda wave: RuntimeError("too many at once") if len(wave.slices) > 1 else None)
    world = Quiet(len(ALL))
    assert world.run_once().promoted
    assert max(len(wave.slices) for wave in seen) > 1, "else nothing was tried"
    assert indexed(world) == ALL
    assert not any(attempts(world))


def test_waves_that_always_fail_end_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = broken(monkeypatch, lambda _: RuntimeError("no module named helpers"))
    world = Quiet(len(ALL))
    with pytest.raises(UserError, match=r"8 waves failed in a row.*no module named helpers"):
        world.run_once()
    assert len(seen) == 8
    assert world.served is None


def test_an_outage_spends_no_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    away = [True]
    broken(monkeypatch, lambda _: Transient("the embedder is out of reach") if away[0] else None)
    world = Quiet(len(ALL))
    for _ in range(5):
        with pytest.raises(InstepError, match="out of reach"):
            world.run_once()
        assert not any(attempts(world))
    away.clear()
    away.append(False)
    assert world.run_once().promoted
    assert (indexed(world), any(attempts(world))) == (ALL, False)
