"""Time and identity come in as arguments, so that a simulator can bring its own."""

from __future__ import annotations

from collections.abc import Callable
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


class Background(Protocol):
    """Runs something beside the caller, again and again: a thread, or a simulator's turn."""

    def every(self, seconds: float, task: Callable[[], bool], name: str) -> Callable[[], None]:
        """Call `task` each time so many seconds have passed, until it returns False; the answer stops it
        and waits for a call under way to end. An error that a call raises does not end it.
        """
