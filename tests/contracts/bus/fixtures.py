"""What every part of the contract is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from instep.bus.bus import Bus
from instep.domain.refs import GLOBAL, Scope
from instep.domain.requests import GlobalRequest, NamespaceRequest

#: What takes its time takes this long at most (in seconds), or something is broken.
TIMEOUT_SECONDS = 60.0

NAMESPACE = Scope.parse("42/9970")
OTHER = Scope.parse("42/9971")


def ask(watermark: int, path: str = "42/9970/") -> NamespaceRequest:
    return NamespaceRequest(path, watermark)


def ask_global(watermark: int) -> GlobalRequest:
    return GlobalRequest(watermark)


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


__all__ = ["GLOBAL", "NAMESPACE", "OTHER", "TIMEOUT_SECONDS", "Fixtures", "ask", "ask_global"]
