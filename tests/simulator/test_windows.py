"""Windows of tables that are cut into slices: whatever goes wrong, no row of one is lost, and none is left too soon."""

from __future__ import annotations

from collections import Counter

import pytest

from .mutations import Mutation
from .window_mutations import WINDOW_BUGS
from .windows import WindowSimulation

#: Schedules after which a bug must have been noticed.
_BOUND = 200


@pytest.fixture(autouse=True)
def _small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("instep.domain.planning.SLICE_ROWS_MIN", 1)
    monkeypatch.setattr("instep.ledger.log_start.FEW", 8)


def _broken(seed: int) -> list[str]:
    simulation = WindowSimulation(seed)
    simulation.run()
    return simulation.broken


@pytest.mark.parametrize("seeds", [range(8), pytest.param(range(8, 80), marks=pytest.mark.proof)], ids=len)
def test_no_row_of_a_window_is_lost(seeds: range) -> None:
    counters: Counter[str] = Counter()
    broken: list[str] = []
    for seed in seeds:
        simulation = WindowSimulation(seed)
        simulation.run()
        counters.update(simulation.world.counters)
        counters["cut"] += simulation.most > 2
        counters["forgotten"] += simulation.forgotten > 0
        counters["shared"] += any(len(each) > 1 for each in simulation.workers.values())
        broken += [f"seed {seed}: {each}" for each in simulation.broken]
    assert not broken, "\n".join(broken[:10])
    assert counters["cut"] > len(seeds) / 2
    assert counters["shared"] > 0
    assert counters["forgotten"] > 0
    assert counters.keys() & {"crash before", "crash after", "pause before", "late", "lost"}


@pytest.mark.parametrize("bug", WINDOW_BUGS, ids=lambda bug: bug.name)
def test_a_seeded_bug_of_windows_is_caught(bug: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.apply(monkeypatch)
    assert any(_broken(seed) for seed in range(_BOUND)), f"nothing was noticed in {_BOUND} schedules"
