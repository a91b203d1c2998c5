"""What tests of commands on a project share: one clock, and the project's ledger. Each has a `folder` of its own."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

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


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts lines on standard input."""

    def give(*lines: str | dict[str, Any]) -> None:
        text = "".join(f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in lines)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    return give
