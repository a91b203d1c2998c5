"""The bus in a SQLite ledger under the contract, and how it finds what is due."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from instep.bus.ledger_bus import LedgerBus
from instep.domain.request_rules import Policy
from instep.domain.requests import Kind
from instep.ledger.dialects.sqlite import SqliteDialect, sqlite_engine
from instep.ledger.ledger import Ledger
from instep.ledger.open import open_ledger
from tests.bus.ledgers import LedgerBusContract
from tests.contracts.bus.fixtures import ask
from tests.doubles.clock import VirtualClock
from tests.ledger.statements import watching


class TestSqliteBus(LedgerBusContract):
    @pytest.fixture
    def open_another(self, clock: VirtualClock, tmp_path: Path) -> Callable[[], Ledger]:
        return lambda: open_ledger(f"sqlite:///{tmp_path}/ledger.db", clock=clock)

    @pytest.fixture
    def engine(self, tmp_path: Path) -> Iterator[Engine]:
        engine = sqlite_engine(tmp_path / "ledger.db").execution_options(write=True)
        yield engine
        engine.dispose()

    def test_due_requests_are_found_by_an_index_without_sorting(
        self, open_another: Callable[[], Ledger], clock: VirtualClock, engine: Engine
    ) -> None:
        open_another().close()
        bus = LedgerBus(Ledger(engine, SqliteDialect(clock, "here")), clock)
        consumer = bus.consumer("Issue", Kind.NAMESPACE, Policy(group="source", limit=3))
        bus.publish(ask(1), ask(1, "1/"))
        sent: list[tuple[str, Any]] = []
        with watching(engine, lambda statement, parameters: sent.append((statement, parameters))):
            assert consumer.next() is not None
            bus.reconcile()
        looks = [each for each in sent if each[0].startswith("SELECT") and "FROM bus_slots" in each[0]]
        assert len(looks) == 4  # is anything due, has the group room, which one, and who is silent
        for statement, parameters in looks:
            with engine.connect() as connection:
                steps = [row[-1] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters)]
            assert steps[0].startswith("SEARCH bus_slots USING"), steps
            assert len(steps) == 1 or "is_last" in statement, steps
