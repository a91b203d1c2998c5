"""What every part of the contract is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from instep.ledger.port import Ledger
from tests.contracts.ledger.building import VirtualClock


class Fixtures:
    @pytest.fixture
    def clock(self) -> VirtualClock:
        return VirtualClock()

    @pytest.fixture
    def ledgers(self, clock: VirtualClock) -> Iterator[Callable[[], Ledger]]:
        """Opens further connections to one and the same ledger, which is new."""
        raise NotImplementedError

    @pytest.fixture
    def ledger(self, ledgers: Callable[[], Ledger]) -> Ledger:
        return ledgers()
