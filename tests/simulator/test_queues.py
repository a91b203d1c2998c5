"""Schedules of consumers of one queue: whatever goes wrong, no key is lost, and none is shared while a lease holds."""

from __future__ import annotations

from collections import Counter

import pytest

from .queues import QueueSimulation

#: What must have happened now and then: where it did not, a schedule proves nothing about it.
SOMETIMES = (
    *("given", "given again", "acked", "failed", "refused", "parked", "unknown"),
    *("crash before", "crash after", "pause before", "pause after", "late", "lost", "twice"),
)


@pytest.mark.parametrize("first", [0, pytest.param(1_000, marks=pytest.mark.long)])
def test_no_key_is_lost_or_shared(first: int) -> None:
    counters: Counter[str] = Counter()
    broken: list[str] = []
    for seed in range(first, first + (60 if not first else 2_000)):
        simulation = QueueSimulation(seed)
        simulation.run()
        counters.update(simulation.world.counters)
        broken += [f"seed {seed}: {each}" for each in simulation.broken]
    assert not broken, "\n".join(broken[:10])
    assert [each for each in SOMETIMES if not counters[each]] == []
