"""How every bus behaves. Inherit `BusContract` and give the fixtures `buses` and `spoil`."""

from __future__ import annotations

from tests.contracts.bus.crowds import Crowds
from tests.contracts.bus.requests import Requests
from tests.contracts.bus.retries import Retries
from tests.contracts.bus.status import Status
from tests.contracts.bus.traces import Traces


class BusContract(Requests, Retries, Status, Traces, Crowds):
    """All of it."""
