"""What every part of the contract is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from instep.bus.bus import Bus, Consumer, Delivery
from instep.domain.refs import GLOBAL, Scope
from instep.domain.request_rules import Policy
from instep.domain.requests import GlobalRequest, Kind, NamespaceRequest

#: What takes its time takes this long at most (in seconds), or something is broken.
PATIENCE = 60.0

#: Nothing runs out while a test runs, however slow the machine.
PATIENT = Policy(max_attempts=3, backoff=(3_600_000,), ack_wait=3_600_000)
#: The same, and tried once.
ONCE = Policy(max_attempts=1, ack_wait=3_600_000)
#: Everything runs out at once.
HASTY = Policy(max_attempts=3, backoff=(1, 2), ack_wait=200)

NAMESPACE = Scope.parse("42/9970")
OTHER = Scope.parse("42/9971")


def ask(watermark: int, path: str = "42/9970/") -> NamespaceRequest:
    return NamespaceRequest(path, watermark)


def ask_global(watermark: int) -> GlobalRequest:
    return GlobalRequest(watermark)


def consumer(bus: Bus, name: str = "Issue", policy: Policy = PATIENT, kind: Kind = Kind.NAMESPACE) -> Consumer:
    return bus.consumer(name, kind, policy)


def taken(consumer: Consumer) -> Delivery:
    delivery = consumer.next(PATIENCE)
    assert delivery is not None
    return delivery


class Fixtures:
    @pytest.fixture
    def buses(self) -> Iterator[Callable[[], Bus]]:
        """Opens further handles of one and the same bus, which is new."""
        raise NotImplementedError

    @pytest.fixture
    def bus(self, buses: Callable[[], Bus]) -> Bus:
        return buses()

    @pytest.fixture
    def spoil(self, bus: Bus) -> Callable[[str, bytes], None]:
        """Writes a status key behind the bus's back."""
        raise NotImplementedError


__all__ = [
    "GLOBAL",
    "HASTY",
    "NAMESPACE",
    "ONCE",
    "OTHER",
    "PATIENCE",
    "PATIENT",
    "Fixtures",
    "ask",
    "ask_global",
    "consumer",
    "taken",
]
