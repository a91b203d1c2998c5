"""The bus in memory under the contract."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from instep.bus.memory import MemoryStore
from instep.bus.port import Bus
from instep.bus.stored import StoredBus
from tests.contracts.bus import BusContract
from tests.doubles.clock import VirtualClock


class TestMemoryBus(BusContract):
    @pytest.fixture
    def store(self) -> MemoryStore:
        return MemoryStore(VirtualClock())

    @pytest.fixture
    def buses(self, store: MemoryStore) -> Callable[[], Bus]:
        return lambda: StoredBus(store, store.clock)

    @pytest.fixture
    def spoil(self, store: MemoryStore) -> Callable[[str, bytes], None]:
        def write(key: str, data: bytes) -> None:
            store.status.rows[key] = (data.decode(), 1)

        return write
