"""The places of a document's chunks: numbers in their order, which change for as few stored rows as possible."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence


def placed(stored: Sequence[int | None]) -> list[int]:
    """The numbers of chunks that stand in this order; `stored` is the number that the row of each has by now, None for
    a new one. They ascend, and as many rows keep theirs as can.

    Two rows may keep their numbers when there are enough between them for the chunks that stand there: row j behind
    row i if stored[j] - stored[i] ≥ j - i, which says that stored[k] - k does not descend. So those that keep theirs
    are a longest subsequence of these differences that does not descend (found by patience sorting). All others follow
    the kept one before them; those in front of the first go down from it, below 0 if need be.
    """
    kept = _longest([(at, number - at) for at, number in enumerate(stored) if number is not None])
    made: list[int] = []
    shift = kept[0][1] if kept else 0
    following = iter(kept)
    coming = next(following, None)
    for at in range(len(stored)):
        if coming is not None and coming[0] == at:
            shift, coming = coming[1], next(following, None)
        made.append(at + shift)
    return made


def _longest(found: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """A longest subsequence of these pairs whose second members do not descend."""
    ends: list[int] = []
    #: By length, the place of the last member of the subsequence whose end is lowest.
    last: list[int] = []
    before: list[int | None] = []
    for place, (_, shift) in enumerate(found):
        length = bisect_right(ends, shift)
        before.append(last[length - 1] if length else None)
        ends[length : length + 1] = [shift]
        last[length : length + 1] = [place]
    chosen: list[tuple[int, int]] = []
    at = last[-1] if last else None
    while at is not None:
        chosen.append(found[at])
        at = before[at]
    return chosen[::-1]
