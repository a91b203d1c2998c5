"""What every part of the contract is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import pytest

from instep.domain.instances import Instance
from instep.ledger.ledger import Ledger
from tests.contracts.ledger.building import VirtualClock


class Intruder(Protocol):
    """Changes a ledger behind its back."""

    def write(self, kind: str, version: int, body: str) -> None:
        """One more row in the log, whatever is in it; nothing follows from it."""

    def store(self, instance: Instance) -> None:
        """A projection that the log did not lead to."""

    def forget(self, instance: str) -> None:
        """A projection that is gone."""


class Fixtures:
    @pytest.fixture
    def clock(self) -> VirtualClock:
        return VirtualClock()

    @pytest.fixture
    def ledgers(self, clock: VirtualClock) -> Iterator[Callable[[], Ledger]]:
        """Opens further connections to one and the same ledger, which is new."""
        raise NotImplementedError

    @pytest.fixture
    def intruder(self, ledger: Ledger) -> Intruder:
        """Into the ledger of the test."""
        raise NotImplementedError

    @pytest.fixture
    def ledger(self, ledgers: Callable[[], Ledger]) -> Ledger:
        return ledgers()
