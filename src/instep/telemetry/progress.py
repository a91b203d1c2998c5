"""Ports for observers of this process: its progress, and counters of its work."""

from __future__ import annotations

from typing import Protocol

from instep.domain.counts import Counts
from instep.domain.jobs import Phase
from instep.domain.waves import Stage


class Progress(Protocol):
    """Called from several threads. `entity` is the label of a partition; a `unit` is a document, or a row. `total` is
    None if the units were not counted. `phase`: what comes after the last wave. When an attempt fails, its progress is
    taken back by a negative advance.
    """

    def listing(self, entity: str, found: int) -> None:
        """The source is being listed; so many documents or rows were found so far."""

    def begin(self, entity: str, total: int | None, unit: str) -> None:
        """The work is planned: `total` units are to be done."""

    def advance(self, entity: str, units: int) -> None:
        """So many more units are done."""

    def stage(self, entity: str, stage: Stage) -> None:
        """A wave has reached this stage."""

    def phase(self, entity: str, phase: Phase) -> None:
        """The job has reached this phase, after its last wave."""

    def say(self, entity: str, message: str) -> None:
        """Show a message beside the progress."""

    def end(self, entity: str, *, well: bool = True) -> None:
        """The partition is done. `well`: without failures."""


class Silent:
    """Implements `Progress` by saying nothing."""

    def listing(self, entity: str, found: int) -> None: ...

    def begin(self, entity: str, total: int | None, unit: str) -> None: ...

    def advance(self, entity: str, units: int) -> None: ...

    def stage(self, entity: str, stage: Stage) -> None: ...

    def phase(self, entity: str, phase: Phase) -> None: ...

    def say(self, entity: str, message: str) -> None: ...

    def end(self, entity: str, *, well: bool = True) -> None: ...


class Counters(Protocol):
    """Called from several threads. Counted by entity, never by anything of which there is no bound."""

    def done(self, entity: str, slices: int, counts: Counts) -> None:
        """These slices are durable, in the target and in the ledger."""

    def wave(self, entity: str, seconds: float) -> None:
        """From its claim until the ledger has it."""

    def step(self, entity: str, step: str, seconds: float) -> None:
        """Count a step of a wave: `claim`, `run`, `commit` or `complete`."""

    def paid(self, entity: str, tokens: int, cost: float) -> None:
        """Embedding was billed: tokens, and their cost in the user's currency."""

    def refused(self, entity: str) -> None:
        """A write of ours was refused: others had taken over."""

    def retried(self, entity: str) -> None:
        """Something is tried once more: a wave, a half of it, a commit, a slice."""


class Uncounted:
    """Implements `Counters` by doing nothing."""

    def done(self, entity: str, slices: int, counts: Counts) -> None: ...

    def wave(self, entity: str, seconds: float) -> None: ...

    def step(self, entity: str, step: str, seconds: float) -> None: ...

    def paid(self, entity: str, tokens: int, cost: float) -> None: ...

    def refused(self, entity: str) -> None: ...

    def retried(self, entity: str) -> None: ...
