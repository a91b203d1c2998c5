"""The SQLite ledger under the contract: every handle is a connection of its own to one file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from instep.ledger.dialects.sqlite import sqlite_engine
from instep.ledger.ledger import Ledger
from instep.ledger.open import open_ledger
from tests.contracts.ledger import LedgerContract, VirtualClock
from tests.ledger.intruders import SqlIntruder


class TestSqliteLedger(LedgerContract):
    @pytest.fixture
    def ledgers(self, clock: VirtualClock, tmp_path: Path) -> Iterator[Callable[[], Ledger]]:
        opened: list[Ledger] = []

        def another() -> Ledger:
            opened.append(open_ledger(f"sqlite:///{tmp_path}/state/ledger.db", clock=clock))
            return opened[-1]

        yield another
        for ledger in opened:
            ledger.close()

    @pytest.fixture
    def intruder(self, ledger: Ledger, tmp_path: Path) -> Iterator[SqlIntruder]:
        engine = sqlite_engine(tmp_path / "state" / "ledger.db")
        yield SqlIntruder(engine)
        engine.dispose()
