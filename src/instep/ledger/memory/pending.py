"""The PENDING slices of a part in the order in which they are claimed."""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heappop, heappush
from typing import Generic, Protocol, TypeVar

from instep.ledger.retries import SUSPECT_ATTEMPTS


class _Slice(Protocol):
    id: str
    rank: int
    attempts: int
    claimable_at: int

    @property
    def work(self) -> int: ...


SliceT = TypeVar("SliceT", bound=_Slice)


class Pending(Generic[SliceT]):
    """Sorted lists of what is claimable: by (rank, id) and, apart, suspects, first those that have not been alone
    yet (`retries.SUSPECTS`). And a heap of what has to wait.

    Ids are unique, so a comparison never gets as far as the slice itself.
    """

    def __init__(self) -> None:
        self._ready: list[tuple[int, str, SliceT]] = []
        self._suspects: list[tuple[bool, int, str, SliceT]] = []
        self._waiting: list[tuple[int, int, str, SliceT]] = []

    def __len__(self) -> int:
        return len(self._ready) + len(self._suspects) + len(self._waiting)

    def add(self, each: SliceT) -> None:
        heappush(self._waiting, (each.claimable_at, each.rank, each.id, each))

    def take(self, now: int, *, work: int, limit: int, after: int) -> list[SliceT]:
        """Remove and return what one claim gets. A suspect goes alone, when nothing else is claimable."""
        self._ripen(now)
        if limit < 1:
            return []
        if not self._ready:
            return [self._suspects.pop(0)[-1]] if self._suspects else []
        start = bisect_left(self._ready, after, key=lambda entry: entry[0])
        if start == len(self._ready):
            start = 0
        end = start + 1
        reached = self._ready[start][-1].work
        while end < len(self._ready) and end - start < limit and reached < work:
            reached += self._ready[end][-1].work
            end += 1
        taken = [entry[-1] for entry in self._ready[start:end]]
        del self._ready[start:end]
        return taken

    def head(self, now: int) -> SliceT | None:
        """What is claimed next, now or once its time has come."""
        self._ripen(now)
        for entries in (self._ready, self._suspects, self._waiting):
            if entries:
                return entries[0][-1]
        return None

    def clear(self) -> list[SliceT]:
        """Remove and return all."""
        removed = [entry[-1] for entries in (self._ready, self._suspects, self._waiting) for entry in entries]
        for entries in (self._ready, self._suspects, self._waiting):
            entries.clear()
        return removed

    def _ripen(self, now: int) -> None:
        while self._waiting and self._waiting[0][0] <= now:
            each = heappop(self._waiting)[-1]
            if each.attempts < SUSPECT_ATTEMPTS:
                insort(self._ready, (each.rank, each.id, each))
            else:
                insort(self._suspects, (each.attempts > SUSPECT_ATTEMPTS, each.rank, each.id, each))
