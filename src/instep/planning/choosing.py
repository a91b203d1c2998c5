"""The choice of an engine, as plans and jobs ask for it."""

from __future__ import annotations

from typing import Protocol

from instep.entities.setup import EntitySetup
from instep.pipeline.engine.choice import EngineChoice


class Choose(Protocol):
    """Chooses the engine for so much work, which is of so many documents as far as that is known."""

    def __call__(self, setup: EntitySetup, work: int, /, *, documents: int = 0) -> EngineChoice: ...
