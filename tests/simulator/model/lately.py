"""What slices of a part counted that were completed lately, without looking at all of them each time."""

from __future__ import annotations

from collections import deque

from instep.domain.speed import WINDOW, Lately


class Completed:
    def __init__(self) -> None:
        #: When each was completed, and its units, in that order.
        self._ended: deque[tuple[int, int]] = deque()
        #: When those were completed and claimed of which none that was claimed before has been completed since.
        self._begun: deque[tuple[int, int]] = deque()
        self._units = 0

    def add(self, finished_at: int, claimed_at: int, units: int) -> None:
        self._ended.append((finished_at, units))
        self._units += units
        while self._begun and self._begun[-1][1] >= claimed_at:
            self._begun.pop()
        self._begun.append((finished_at, claimed_at))

    def lately(self, now: int) -> Lately:
        while self._ended and self._ended[0][0] < now - WINDOW:
            self._units -= self._ended.popleft()[1]
        while self._begun and self._begun[0][0] < now - WINDOW:
            self._begun.popleft()
        return Lately(self._units, self._begun[0][1] if self._begun else None)
