"""Batches and contiguous ranges of the ordered keys of a pending queue."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nlargest


def batches(keys: Sequence[int], size: int) -> list[Sequence[int]]:
    """The fewest batches of at most `size` keys, all of about the same size."""
    count = -(-len(keys) // size)
    return [keys[len(keys) * at // count : len(keys) * (at + 1) // count] for at in range(count)]


def stretches(keys: Sequence[int], most: int) -> list[tuple[int, int]]:
    """First and last key of at most `most` ranges, which leave out the widest gaps."""
    if not keys:
        return []
    gaps = ((after - keys[at], at + 1) for at, after in enumerate(keys[1:]) if after - keys[at] > 1)
    starts = [0, *sorted(at for _, at in nlargest(most - 1, gaps))]
    return [(keys[first], keys[after - 1]) for first, after in zip(starts, [*starts[1:], len(keys)], strict=True)]
