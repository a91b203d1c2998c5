"""Compare a queue with the anti-join it replaces, one key range after another, in both directions.

The tables change during the check, so a key may differ because it was looked at in two moments. Such keys are looked
at again a moment later, they alone; what still differs then, differs. A key that the ledger holds (it failed, and
waits for its next try) is out of what is read on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from instep.domain.clock import Clock
from instep.domain.pending_queue import KeyRange, QueueKey, before, stretches
from instep.errors import UserError
from instep.queues.engines.queue_engine import Comparison, PendingStore
from instep.queues.key_ranges import MeasuredRange, Part, Parts, key_ranges
from instep.queues.open import demand_created
from instep.queues.queue_state import Verdict, recall, remember_verdict
from instep.telemetry.progress import Progress

#: Keys that differ are looked at again so often, after so many seconds each time.
LOOKS: Final = 3
MOMENT_SECONDS: Final = 1.0

#: More keys than these are not told apart: they count as differences.
MOST_SUSPECTS: Final = 10_000
#: In so many ranges they are looked at again, at most.
_CLUSTERS: Final = 20

#: Those of some keys that the ledger holds.
Held = Callable[[Collection[QueueKey]], Collection[QueueKey]]


@dataclass(frozen=True, slots=True)
class Verified:
    """The verdict, and the first of the keys that differ."""

    verdict: Verdict
    missing: tuple[QueueKey, ...]
    surplus: tuple[QueueKey, ...]


@dataclass(slots=True)
class _Suspects:
    """The differences found so far, and those that were explained. `beyond` are differences without a name."""

    missing: set[QueueKey] = field(default_factory=set)
    surplus: set[QueueKey] = field(default_factory=set)
    beyond_missing: int = 0
    beyond_surplus: int = 0
    pending: int = 0
    held: int = 0
    stale: int = 0

    @property
    def keys(self) -> set[QueueKey]:
        return self.missing | self.surplus

    @property
    def count(self) -> int:
        return len(self.missing) + len(self.surplus) + self.beyond_missing + self.beyond_surplus


def verify(
    store: PendingStore,
    held: Held,
    now: Callable[[], int],
    clock: Clock,
    progress: Progress,
    *,
    parts: Parts,
    repair: bool = False,
) -> Verified:
    """Compare all keys; the verdict is remembered. With `repair`, what is missing is offered again."""
    demand_created(store)
    store.check()
    _demand_backfilled(store)
    looking = _Looking(store, held, clock, parts)
    began = clock.monotonic()
    suspects = looking.everything(progress)
    first = suspects.count
    looking.again(suspects)
    raced, repaired = first - suspects.count, 0
    if repair and suspects.count:
        differed = suspects.count
        suspects = looking.repaired(suspects, progress)
        repaired = max(0, differed - suspects.count)
    verdict = Verdict(
        at=now(),
        pending=suspects.pending,
        missing=len(suspects.missing) + suspects.beyond_missing,
        surplus=len(suspects.surplus) + suspects.beyond_surplus,
        held=suspects.held,
        stale=suspects.stale,
        raced=raced,
        repaired=repaired,
        took=round((clock.monotonic() - began) * 1000),
        garbage=store.garbage(),
    )
    remember_verdict(store, verdict)
    return Verified(verdict, tuple(sorted(suspects.missing)[:100]), tuple(sorted(suspects.surplus)[:100]))


def _demand_backfilled(store: PendingStore) -> None:
    filling = recall(store).filling
    if filling is None or not filling.complete:
        name = store.spec.name
        raise UserError(
            f"the queue {name} is not backfilled: it would differ in whatever was there before it",
            hint=f"Run: instep queue backfill {name}",
        )


class _Looking:
    def __init__(self, store: PendingStore, held: Held, clock: Clock, parts: Parts) -> None:
        self._store, self._held, self._clock, self._parts = store, held, clock, parts
        self._bounds = store.bounds() or store.spec.keys

    def everything(self, progress: Progress) -> _Suspects:
        """The first look: every key that the source has."""
        suspects, name = _Suspects(), self._store.spec.name
        progress.begin(name, None, "pending key")
        for stride, part in self._strides(self._store.compare):
            self._sort(stride.keys, part, suspects)
            progress.advance(name, part.pending)
        for keys in self._beyond():
            self._sort(keys, self._store.compare(keys), suspects)
        progress.end(name)
        return suspects

    def _strides(self, work: Callable[[KeyRange], Part]) -> Iterator[tuple[MeasuredRange, Part]]:
        return key_ranges(self._bounds, self._store.edge, work, self._parts, self._clock)

    def _beyond(self) -> list[KeyRange]:
        """The queue may hold what the source has not any more."""
        every, ours = self._store.spec.keys, self._bounds
        sides = [] if ours.after is None else [KeyRange(every.after, ours.after)]
        if ours.upto is not None:
            sides.append(KeyRange(ours.upto, every.upto))
        return [each for each in sides if not each.empty]

    def again(self, suspects: _Suspects) -> None:
        """Keeps what still differs, each time it is looked at."""
        for _ in range(LOOKS):
            if not suspects.keys:
                return
            self._clock.sleep(MOMENT_SECONDS)
            seen = _Suspects()
            for keys in clusters(suspects.keys, _CLUSTERS):
                self._sort(keys, self._store.compare(keys), seen)
            if not seen.beyond_missing:
                suspects.missing &= seen.missing
            if not seen.beyond_surplus:
                suspects.surplus &= seen.surplus

    def repaired(self, suspects: _Suspects, progress: Progress) -> _Suspects:
        """Offer missing keys, backfill those that the queue's own truth does not know, then compare again."""
        missing = suspects.missing
        unknown = missing - self._store.confirm(missing) if missing else set()
        for keys in clusters(unknown | suspects.surplus, _CLUSTERS):
            self._store.backfill(keys)
        if suspects.beyond_missing or suspects.beyond_surplus:
            for _ in self._strides(self._store.backfill):
                pass  # Each part is done when it comes.
        if missing:
            self._store.offer(missing)
        after = self.everything(progress)
        self.again(after)
        return after

    def _sort(self, keys: KeyRange, seen: Comparison, suspects: _Suspects) -> None:
        """Sort out which differences of a comparison are suspect. Where it names not all, and those that it does are
        all explained so far, it is done again for the keys behind those.
        """
        suspects.pending += seen.pending
        last = seen.named_upto
        while last is not None and len(suspects.keys) < MOST_SUSPECTS:
            self._explain(seen.upto(last), suspects)
            seen = self._store.compare(KeyRange(last, keys.upto))
            last = seen.named_upto
        self._explain(seen, suspects)

    def _explain(self, seen: Comparison, suspects: _Suspects) -> None:
        held = set(self._held(seen.missing)) if seen.missing else set()
        # What reading would confirm though the anti-join has it not, reading would give.
        wrong = self._store.confirm(seen.surplus) if seen.surplus else set()
        suspects.held += len(held)
        suspects.stale += len(seen.surplus) - len(wrong)
        suspects.missing |= set(seen.missing) - held
        suspects.surplus |= wrong
        suspects.beyond_missing += seen.missing_count - len(seen.missing)
        suspects.beyond_surplus += seen.surplus_count - len(seen.surplus)


def clusters(keys: Iterable[QueueKey], most: int) -> list[KeyRange]:
    """A few ranges that hold all these keys, and little else."""
    return [KeyRange(before(first), last) for first, last in stretches(sorted(keys), most)]
