"""Replay of the event log: the state after its events, the events that made what is in it, and those without effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from instep.domain.events import Recorded
from instep.domain.fold import follow
from instep.domain.state import Change, Forgotten, Served, State
from instep.domain.wants import Want
from instep.ledger.projections import Origins

_OF_EACH_NAME: Final = 5


@dataclass(frozen=True, slots=True)
class RejectedEvent:
    """An event of the log that has no effect: `name` is what it is counted by, `reason` is for people."""

    sequence: int
    name: str
    reason: str


class RejectedEvents:
    """Collects rejected events, as the fold tells them (`fold.Told`)."""

    def __init__(self) -> None:
        self._found: list[RejectedEvent] = []
        self._known: Counter[str] = Counter()

    def __call__(self, sequence: int, name: str, reason: str) -> None:
        self._known[name] += 1
        if self._known[name] <= _OF_EACH_NAME:
            self._found.append(RejectedEvent(sequence, name, reason))

    def found(self) -> tuple[RejectedEvent, ...]:
        """The rejected events, in the order of the log."""
        return tuple(self._found)


class Replayed:
    """The state after more events, on top of a state (which is changed) and the origins of what is in it."""

    def __init__(self, recorded: Iterable[Recorded], state: State, origins: Origins) -> None:
        self.state = state
        self.origins = origins
        self.skips = RejectedEvents()
        self.events = 0
        for each in recorded:
            self.events += 1
            for change in follow(self.state, each, self.skips):
                self._note(change, each.sequence)

    def _note(self, change: Change, sequence: int) -> None:
        wants, served = self.origins
        if isinstance(change, Want):
            wants.setdefault(change.id, sequence)
        elif isinstance(change, Served):
            served[change.ref, change.generation] = sequence
        elif isinstance(change, Forgotten):
            for id in change.wants:
                wants.pop(id, None)
