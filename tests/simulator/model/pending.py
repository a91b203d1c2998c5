"""The PENDING slices of a part in the order in which they are claimed."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Generic, Protocol, TypeVar

from instep.domain.jobs import MAX_ATTEMPTS
from instep.domain.retries import LONGEST_DELAY, SUSPECT_ATTEMPTS


class _Slice(Protocol):
    id: str
    rank: int
    attempts: int
    claimable_at: int

    @property
    def work(self) -> int: ...


SliceT = TypeVar("SliceT", bound=_Slice)


def _run(entries: Sequence[tuple[int, str, SliceT]], work: int, limit: int, after: int) -> tuple[int, int]:
    """From where to where one claim takes them: from a rank on, if there are any."""
    start = bisect_left(entries, after, key=lambda entry: entry[0])
    if start == len(entries):
        start = 0
    end, reached = start, 0
    while end < len(entries) and end - start < limit and (reached < work or end == start):
        reached += entries[end][-1].work
        end += 1
    return start, end


class Pending(Generic[SliceT]):
    """Sorted lists of what is claimable: by (rank, id) and, apart, suspects, first those that have not been alone
    yet (`retries.SUSPECTS`). And a heap of what has to wait.

    Ids are unique, so a comparison never gets as far as the slice itself.
    """

    def __init__(self) -> None:
        self._ready: list[tuple[int, str, SliceT]] = []
        self._suspects: list[tuple[bool, int, str, SliceT]] = []
        self._waiting: list[tuple[int, int, str, SliceT]] = []
        #: No time in the heap is later.
        self._latest = 0

    def __len__(self) -> int:
        return len(self._ready) + len(self._suspects) + len(self._waiting)

    def add(self, each: SliceT) -> None:
        heappush(self._waiting, (each.claimable_at, each.rank, each.id, each))
        self._latest = max(self._latest, each.claimable_at)

    def take(self, now: int, *, work: int, limit: int, after: int, together: bool) -> list[SliceT]:
        """Remove and return what one claim gets. A suspect goes alone, when nothing else is claimable; if not, all go
        `together`, and those that ended badly most often last.
        """
        self._ripen(now)
        if limit < 1:
            return []
        if together:
            return self._take_together(work, limit, after)
        if not self._ready:
            return [self._suspects.pop(0)[-1]] if self._suspects else []
        start, end = _run(self._ready, work, limit, after)
        taken = [entry[-1] for entry in self._ready[start:end]]
        del self._ready[start:end]
        return taken

    def _take_together(self, work: int, limit: int, after: int) -> list[SliceT]:
        suspects = [(each.rank, each.id, each) for *_, each in self._suspects]
        to_run = sorted([*self._ready, *(entry for entry in suspects if entry[-1].attempts < MAX_ATTEMPTS)])
        entries = to_run or sorted(suspects)
        start, end = _run(entries, work, limit, after if to_run else 0)
        taken = {entry[1]: entry[-1] for entry in entries[start:end]}
        self._ready = [entry for entry in self._ready if entry[1] not in taken]
        self._suspects = [entry for entry in self._suspects if entry[2] not in taken]
        return list(taken.values())

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
        if self._latest > now + LONGEST_DELAY:  # The clock was set back.
            waiting, self._waiting, self._latest = self._waiting, [], now + LONGEST_DELAY
            for at, rank, id, each in waiting:
                heappush(self._waiting, (at if at <= now + LONGEST_DELAY else now, rank, id, each))
        while self._waiting and self._waiting[0][0] <= now:
            each = heappop(self._waiting)[-1]
            if each.attempts < SUSPECT_ATTEMPTS:
                insort(self._ready, (each.rank, each.id, each))
            else:
                insort(self._suspects, (each.attempts > SUSPECT_ATTEMPTS, each.rank, each.id, each))
