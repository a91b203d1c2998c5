"""What tests of commands on a project share: one clock, and the project's ledger. Each has a `folder` of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

import instep
from instep import container
from instep.ledger.ledger import Ledger
from instep.ledger.open import open_ledger
from tests.doubles.clock import VirtualClock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualClock:
    """The clock of all, commands too: the times that they print are exact."""
    clock = VirtualClock()
    monkeypatch.setattr(container, "SystemClock", lambda: clock)
    return clock


@pytest.fixture
def ledger(folder: Path, clock: VirtualClock) -> Iterator[Ledger]:
    """The project's own ledger, as other workers fill it."""
    with closing(open_ledger(instep.load(folder).project.ledger_url, clock=clock)) as opened:
        yield opened
