"""A worker looks at its sources again and again, and makes jobs of what has changed."""

from __future__ import annotations

from instep.domain.refs import PartitionRef
from instep.service.begin import Beginner
from instep.service.generations import generation_of
from instep.service.plan import EntityPlan
from instep.service.planner import Planner
from instep.service.upstream import in_hand

#: A source whose look takes long is left alone for so many times as long.
REST = 4


class Watcher(Beginner):
    """Starts what differs from its source, in the promoted generation. `every`: seconds between two looks at a source,
    or more if a look takes long.
    """

    def __init__(self, planner: Planner, every: float) -> None:
        super().__init__(planner)
        self._every = every
        self._next: dict[PartitionRef, float] = {}

    def _due(self) -> list[tuple[PartitionRef, str]]:
        ledger, time = self._context.ledger, self._context.clock.monotonic()
        refs = [ref for ref in self._planner.setups if self._next.get(ref, 0.0) <= time]
        busy = in_hand(ledger.open_parts(refs), self._planner.setups) if refs else set()
        keys = [(ref, generation_of(ledger, ref, None)) for ref in refs if ref not in busy]
        return [key for key in keys if self._later.get(key, 0.0) <= time]

    def _plan(self, ref: PartitionRef, generation: str) -> EntityPlan | None:
        clock = self._context.clock
        began = clock.monotonic()
        try:
            return super()._plan(ref, generation)
        finally:
            ended = clock.monotonic()
            self._next[ref] = ended + max(self._every, REST * (ended - began))

    def _idle(self, plan: EntityPlan) -> bool:
        """It is in step."""
        return False
