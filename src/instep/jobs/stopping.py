"""Stops of threads that work: at their next pause, or before their next wave."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace

from instep.domain.clock import Clock
from instep.planning.context import Context


class Stopping(BaseException):
    """Raised in a thread that is to stop."""


@dataclass(frozen=True, slots=True)
class StoppableClock:
    """Implements `domain.clock.Clock`: a pause ends when the thread is to stop."""

    clock: Clock
    stopping: threading.Event

    def now(self) -> int:
        return self.clock.now()

    def monotonic(self) -> float:
        return self.clock.monotonic()

    def sleep(self, seconds: float) -> None:
        if self.stopping.wait(seconds):
            raise Stopping


def stoppable(context: Context, stopping: threading.Event) -> Context:
    """The context of a run that stops when told to: at its next pause, or before its next wave."""
    return replace(context, clock=StoppableClock(context.clock, stopping), stops=stopping.is_set)
