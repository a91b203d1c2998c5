"""The benchmark of the matrix of status keys, with few namespaces: every state is checked there."""

from __future__ import annotations

from tests.doubles.clock import VirtualClock

from bench import matrix
from instep.bus.memory import MemoryStore
from instep.bus.stored import StoredBus


def test_every_look_shows_every_state() -> None:
    clock = VirtualClock()
    assert len(matrix.measure(StoredBus(MemoryStore(clock), clock), namespaces=3, looks=2)) == 2
