"""Look up, for a search, which index of a document entity is served and what made it; remember that for later ones."""

from __future__ import annotations

import time
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from instep.answers.readers import Build, build_of
from instep.entities.documents.setup import DocumentSetup
from instep.entities.generations import generation_of, physical_of
from instep.ledger.checkpoints import Checkpoint
from instep.ledger.ledger import Ledger

#: Not every change of what is served is an event. An older look is not trusted, whatever the ledger says.
_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Look:
    """An index that is served, and what the ledger knows of it.

    `build`: see `build_of`. `known`: whether the ledger knows of any index of the entity. `checkpoint` is that of the
    generation that was asked for.
    """

    physical: str
    build: Build | None
    known: bool
    checkpoint: Checkpoint | None

    @property
    def made_of(self) -> Mapping[str, str] | None:
        """Its fingerprint, if that is known."""
        return self.build.made_of if self.build else None


def look(setup: DocumentSetup, ledger: Ledger, generation: str | None) -> Look | None:
    """Look at target and ledger. None: nothing is built. `generation`: another than the promoted one."""
    physical = physical_of(setup, ledger, generation)
    if physical is None:
        return None
    build = build_of(setup, ledger, physical, generation)
    known = build is not None or bool(ledger.checkpoints.of_entity(setup.ref.entity))
    checkpoint = ledger.checkpoints.get(setup.ref, generation_of(ledger, setup.ref, generation))
    return Look(physical, build, known, checkpoint)


class Seen(NamedTuple):
    """A look, when it was, and the last event before it."""

    look: Look
    event: int
    at: float


class Looks:
    """The looks of one search. `memory` keeps them for the next, which other threads may share: one is good as long as
    the ledger has no new event, for what the rest asks of ledger and target takes longer than many a search.
    """

    def __init__(self, ledger: Ledger, memory: dict[Hashable, Seen] | None = None) -> None:
        self.ledger = ledger
        self._memory = {} if memory is None else memory
        self._used: list[tuple[DocumentSetup, str | None, Look]] = []

    def at(self, setup: DocumentSetup, generation: str | None) -> Look | None:
        """See `look`."""
        found = self._looked(setup, generation)
        if found is not None:
            self._used.append((setup, generation, found))
        return found

    def _looked(self, setup: DocumentSetup, generation: str | None) -> Look | None:
        key = setup.ref, setup.target_name, generation
        # Before the look: what happens in its time is news afterwards.
        event, at, seen = self.ledger.events.last(), time.monotonic(), self._memory.get(key)
        if seen is not None and seen.event == event and at - seen.at < _SECONDS:
            return seen.look
        found = look(setup, self.ledger, generation)
        if found is not None:
            self._memory[key] = Seen(found, event, at)
        return found

    def outdated(self) -> bool:
        """Whether another index is served by now than was seen. Then the memory is cleared."""
        if all(physical_of(setup, self.ledger, name) == each.physical for setup, name, each in self._used):
            return False
        self._memory.clear()
        return True
