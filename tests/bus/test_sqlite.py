"""The bus in a SQLite ledger under the contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from instep.ledger.dialects.sqlite import sqlite_engine
from instep.ledger.ledger import Ledger
from instep.ledger.open import open_ledger
from tests.bus.ledgers import LedgerBusContract
from tests.doubles.clock import VirtualClock


class TestSqliteBus(LedgerBusContract):
    @pytest.fixture
    def open_another(self, clock: VirtualClock, tmp_path: Path) -> Callable[[], Ledger]:
        return lambda: open_ledger(f"sqlite:///{tmp_path}/ledger.db", clock=clock)

    @pytest.fixture
    def engine(self, tmp_path: Path) -> Iterator[Engine]:
        engine = sqlite_engine(tmp_path / "ledger.db").execution_options(write=True)
        yield engine
        engine.dispose()
