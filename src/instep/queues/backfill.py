"""Backfill a queue with keys from before live capture, in parts; an interrupted backfill resumes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from instep.domain.clock import Clock
from instep.domain.pending_queue import KeyRange, QueueKey
from instep.queues.engines.queue_engine import PendingStore
from instep.queues.key_ranges import Parts, key_ranges
from instep.queues.open import demand_created
from instep.queues.queue_state import Filling, recall, remember_filling
from instep.telemetry.progress import Progress

#: Seconds between messages about progress.
_EVERY: Final = 5.0


@dataclass(frozen=True, slots=True)
class Backfill:
    """The result of one call. `began_at` is the key behind which it went on, None at the beginning."""

    filling: Filling
    began_at: QueueKey | None


def backfill(store: PendingStore, clock: Clock, progress: Progress, parts: Parts) -> Backfill:
    """Bring the queue up to what the tables hold. Another call after its end starts again, which changes nothing."""
    demand_created(store)
    store.check()
    before = recall(store).filling
    resumed = before is not None and not before.complete
    filling = before if before is not None and resumed else _beginning(store.bounds())
    remember_filling(store, filling)
    name = store.spec.name
    progress.begin(name, None, "key")
    progress_lines = _ProgressLines(progress, name, clock, filling.share)
    began_at = filling.reached if resumed else None
    for stride, part in key_ranges(filling.rest, store.edge, store.backfill, parts, clock):
        filling = filling.grown(stride.keys.upto, part.keys, part.pending, round(stride.seconds * 1000))
        remember_filling(store, filling)
        progress.advance(name, part.keys)
        progress_lines.now(filling)
    progress.end(name)
    return Backfill(filling, began_at)


def _beginning(bounds: KeyRange | None) -> Filling:
    """A source without keys has nothing to backfill."""
    return Filling(None, None, None) if bounds is None else Filling(bounds.after, bounds.after, bounds.upto)


class _ProgressLines:
    """Says now and then how far it is, and how long the rest takes if keys lie as they did so far."""

    def __init__(self, progress: Progress, name: str, clock: Clock, began_at: float) -> None:
        self._progress, self._name, self._clock, self._share = progress, name, clock, began_at
        self._began = self._last = clock.monotonic()

    def now(self, filling: Filling) -> None:
        now = self._clock.monotonic()
        if now - self._last < _EVERY or filling.complete or filling.share <= self._share:
            return
        self._last = now
        left = (now - self._began) * (1 - filling.share) / (filling.share - self._share)
        text = f"{filling.share:.0%} of the key range, {filling.pending:,} pending, about {left:,.0f} s left"
        self._progress.say(self._name, text)


def backfill_statements(store: PendingStore) -> tuple[str, ...]:
    """The statements of the next call, for all that is left at once: it runs in parts."""
    words = recall(store) if store.exists() else None
    filling = words.filling if words is not None else None
    rest = filling.rest if filling is not None and not filling.complete else store.bounds()
    return () if rest is None else store.backfill_statements(rest)
