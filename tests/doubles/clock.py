"""A clock that moves only when told to, or when a caller sleeps on it; what runs in the background does so then."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")


@dataclass
class _Task:
    every: int
    due: int
    call: Callable[[], bool]


@dataclass
class VirtualClock:
    """Implements `domain.clock.Clock` and `domain.clock.Background`."""

    milliseconds: int = 1_800_000_000_000
    _tasks: list[_Task] = field(default_factory=list)

    def now(self) -> int:
        return self.milliseconds

    def monotonic(self) -> float:
        return self.milliseconds / 1000

    def sleep(self, seconds: float) -> None:
        until = self.milliseconds + round(seconds * 1000)
        while due := [task for task in self._tasks if task.due <= until]:
            first = min(due, key=lambda task: task.due)
            self.milliseconds = max(self.milliseconds, first.due)
            first.due += first.every
            if not first.call():
                self._tasks.remove(first)
        self.milliseconds = max(self.milliseconds, until)

    def every(self, seconds: float, task: Callable[[], bool], name: str) -> Callable[[], None]:
        added = _Task(round(seconds * 1000), self.milliseconds + round(seconds * 1000), task)
        self._tasks.append(added)

        def stop() -> None:
            if added in self._tasks:
                self._tasks.remove(added)

        return stop

    def beside(self, task: Callable[[], T], name: str) -> Callable[[], T]:
        """At once: it takes no time."""
        done = Future[T]()
        try:
            done.set_result(task())
        except Exception as error:
            done.set_exception(error)
        return done.result
