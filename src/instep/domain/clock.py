"""Time and identity come in as arguments, so that a simulator can bring its own."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    """Wall-clock milliseconds, monotonic seconds, and sleeping: all three can be virtual."""

    def now(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""

    def monotonic(self) -> float:
        """Seconds; only differences mean anything."""

    def sleep(self, seconds: float) -> None: ...


class Ids(Protocol):
    def new(self) -> str:
        """A new unique id (UUID text)."""
