"""Speed of work and remaining time: one rule, for jobs and progress bars.

The work of the last five minutes counts, divided by these; or since the current work began, if that is later. So
neither work before a pause nor time before the first possible work counts after that.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final, NamedTuple

#: In milliseconds. Waves take some ten seconds, or a minute with a slow model: several are in it.
WINDOW: Final = 5 * 60_000
#: What comes within so many milliseconds is one advance: several workers may end a wave together.
_TOGETHER: Final = 2_000


def rate(units: int, since: float, now: float) -> float | None:
    """Units per second, if so many were done since; None while there is nothing to tell by. Times in milliseconds."""
    began = max(since, now - WINDOW)
    return units * 1_000 / (now - began) if units > 0 and now > began else None


def seconds_left(total: int | None, done: int, rate: float | None) -> float | None:
    """None when it is not known; nor is it when all is read, and what is left is to write it and bring indexes up to
    date.
    """
    return None if rate is None or total is None or done >= total else (total - done) / rate


class Cpu(NamedTuple):
    """Seconds of CPU that a run has used on a cluster: in its own process and JVM, and in the Python of tasks."""

    driver: float
    tasks: float

    @property
    def share(self) -> float:
        """The driver's. What it does, tasks cannot share."""
        return self.driver / (self.driver + self.tasks)

    def after(self, earlier: Cpu | None) -> Cpu:
        """Together with what was measured earlier in the same run."""
        return Cpu(self.driver, self.tasks + earlier.tasks) if earlier else self


@dataclass(frozen=True, slots=True)
class Lately:
    """The counts of the slices completed in the window, and the time (ms) at which the first of them was begun."""

    units: int = 0
    since: int | None = None

    def __add__(self, other: Lately) -> Lately:
        known = [each.since for each in (self, other) if each.since is not None]
        return Lately(self.units + other.units, min(known, default=None))

    def rate(self, now: int) -> float | None:
        return None if self.since is None else rate(self.units, self.since, now)


NOTHING_LATELY: Final = Lately()


@dataclass(slots=True)
class _Mark:
    """The work done from the beginning until `at`. `first`: when the first was that is in it."""

    first: float
    at: float
    total: int


class Meter:
    """A meter of speed that is called at each advance. Times are seconds of a clock that never goes back. Not for
    several threads.

    It measures from advance to advance. The time before the first one counts until as much has passed since: it may
    have gone by with a start. What comes at once with the beginning was done before a resume.
    """

    def __init__(self, now: float) -> None:
        self.done = 0
        self._marks = deque([_Mark(now * 1_000, now * 1_000, 0)])
        self._starting = True

    def advance(self, units: int, now: float) -> None:
        self.done += units
        at, last = now * 1_000, self._marks[-1]
        if at - last.first < _TOGETHER:
            last.at, last.total = at, self.done
        else:
            self._marks.append(_Mark(at, at, self.done))
        self._forget(at)

    def rate(self, now: float) -> float | None:
        at = now * 1_000
        self._forget(at)
        first = self._marks[0]
        return rate(self.done - first.total, first.at, at)

    def _forget(self, at: float) -> None:
        marks = self._marks
        while len(marks) > 1 and marks[1].at <= at - WINDOW:
            self._drop()
        if self._starting and len(marks) > 2 and at - marks[1].at >= marks[1].at - marks[0].at:
            self._drop()

    def _drop(self) -> None:
        self._marks.popleft()
        self._starting = False
