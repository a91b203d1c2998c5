"""The benchmark of the matrix of status keys, with few namespaces: every state is checked there."""

from __future__ import annotations

from tests.doubles.clock import VirtualClock
from tests.doubles.ledger import MemoryLedger

from bench import matrix
from instep.bus.open import open_bus


def test_every_look_shows_every_state() -> None:
    clock = VirtualClock()
    assert len(matrix.measure(open_bus(None, MemoryLedger(clock)), namespaces=3, looks=2)) == 2
