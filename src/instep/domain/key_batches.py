"""Keys of a pending queue, in order, as batches and as the stretches they lie in."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import nlargest


def batches(keys: Sequence[int], size: int) -> list[Sequence[int]]:
    """As few as hold so many at most, of about the same size."""
    count = -(-len(keys) // size)
    return [keys[len(keys) * at // count : len(keys) * (at + 1) // count] for at in range(count)]


def stretches(keys: Sequence[int], most: int) -> list[tuple[int, int]]:
    """The first and the last key of at most so many stretches, which leave out the widest gaps."""
    if not keys:
        return []
    gaps = ((after - keys[at], at + 1) for at, after in enumerate(keys[1:]) if after - keys[at] > 1)
    starts = [0, *sorted(at for _, at in nlargest(most - 1, gaps))]
    return [(keys[first], keys[after - 1]) for first, after in zip(starts, [*starts[1:], len(keys)], strict=True)]
