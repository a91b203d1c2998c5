"""Ports for time, ids and background work; a simulator brings its own."""

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
    """Runs a task repeatedly beside the caller: in a thread, or in a simulator's turn."""

    def every(self, seconds: float, task: Callable[[], bool], name: str) -> Callable[[], None]:
        """Call `task` every `seconds` until it returns False. The returned function stops it and waits for a call in
        progress. An error in a call does not end it.
        """
