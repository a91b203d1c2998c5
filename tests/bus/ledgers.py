"""The bus in the ledger's database under the contract; every handle has connections of its own."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import Engine, delete, insert

from instep.bus.bus import Bus
from instep.bus.open import open_bus
from instep.ledger.ledger import Ledger
from instep.ledger.tables import bus_status
from tests.contracts.bus import BusContract
from tests.doubles.clock import VirtualClock


class LedgerBusContract(BusContract):
    @pytest.fixture
    def clock(self) -> VirtualClock:
        return VirtualClock()

    @abstractmethod
    @pytest.fixture
    def open_another(self, clock: VirtualClock) -> Callable[[], Ledger]:
        """One more ledger in the same database."""

    @abstractmethod
    @pytest.fixture
    def engine(self) -> Iterator[Engine]:
        """Into that database."""

    @pytest.fixture
    def buses(self, clock: VirtualClock, open_another: Callable[[], Ledger]) -> Iterator[Callable[[], Bus]]:
        opened: list[tuple[Bus, Ledger]] = []

        def another() -> Bus:
            ledger = open_another()
            bus = open_bus(None, ledger)
            opened.append((bus, ledger))
            return bus

        yield another
        for bus, ledger in opened:
            bus.close()
            ledger.close()

    @pytest.fixture
    def spoil(self, engine: Engine, bus: Bus) -> Callable[[str, bytes], None]:
        def write(key: str, data: bytes) -> None:
            with engine.begin() as connection:
                connection.execute(delete(bus_status).where(bus_status.c.key == key))
                row = {"key": key, "value": data.decode(), "revision": 1, "updated_at": 0}
                connection.execute(insert(bus_status), row)

        return write
