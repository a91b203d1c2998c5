"""The bus on NATS under the contract, and what else it has to stand."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from instep.bus.bus import Bus
from instep.bus.nats.keys import Bucket
from instep.bus.nats.nats_bus import NatsBus, open_nats
from instep.servers.address import NatsAddress, nats_address
from tests.contracts.bus import BusContract
from tests.servers.nats import NatsServer, running_nats

_numbers = itertools.count(1)


class TestNatsBus(BusContract):
    """Every handle has a connection of its own; every test a prefix."""

    @pytest.fixture
    def server(self) -> NatsServer:
        return running_nats()

    @pytest.fixture
    def address(self, server: NatsServer) -> NatsAddress:
        return nats_address(server.url(f"test_{next(_numbers)}"))

    @pytest.fixture
    def open_another(self, address: NatsAddress) -> Iterator[Callable[[], NatsBus]]:
        opened: list[NatsBus] = []

        def another() -> NatsBus:
            opened.append(open_nats(address))
            return opened[-1]

        yield another
        for bus in opened:
            bus.close()

    @pytest.fixture
    def buses(self, open_another: Callable[[], NatsBus]) -> Callable[[], Bus]:
        return open_another

    @pytest.fixture
    def spoil(self, open_another: Callable[[], NatsBus], bus: Bus) -> Callable[[str, bytes], None]:
        connection = open_another()._connection

        def write(key: str, data: bytes) -> None:
            connection.run(Bucket(connection, connection.status).change(key, lambda _: data))

        return write
