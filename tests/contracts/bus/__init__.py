"""How every bus behaves. Inherit `BusContract` and give the fixtures `buses` and `spoil`."""

from __future__ import annotations

from tests.contracts.bus.status import Status


class BusContract(Status):
    """All of it."""
