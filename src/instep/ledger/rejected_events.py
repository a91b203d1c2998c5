"""Which events of the log had no effect: the first few of each name, so that no log is too broken to be told of."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

_OF_EACH_NAME: Final = 5


@dataclass(frozen=True, slots=True)
class RejectedEvent:
    """An event of the log that has no effect: `name` is what it is counted by, `reason` is for people."""

    sequence: int
    name: str
    reason: str


class RejectedEvents:
    """Told by the fold (`fold.Told`)."""

    def __init__(self) -> None:
        self._found: list[RejectedEvent] = []
        self._known: Counter[str] = Counter()

    def __call__(self, sequence: int, name: str, reason: str) -> None:
        self._known[name] += 1
        if self._known[name] <= _OF_EACH_NAME:
            self._found.append(RejectedEvent(sequence, name, reason))

    def found(self) -> tuple[RejectedEvent, ...]:
        """In the order of the log."""
        return tuple(self._found)
