"""Split a range of keys into parts with a given number of keys; their distribution is not known beforehand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from instep.domain.clock import Clock
from instep.domain.pending_queue import KeyRange
from instep.errors import Transient

#: Keys may lie far apart, and then close together: from one part to the next the width changes so much at most.
_CHANGE: Final = 8
#: A last part that would be narrower than this share of the one before it is taken along with that one.
_REST: Final = 0.25

_TRIES: Final = 6

Part = TypeVar("Part")


@dataclass(frozen=True, slots=True)
class Parts:
    """The goal of a part: how many keys it should have, and the pause between two parts, in seconds."""

    keys: int
    pause: float = 0.0


@dataclass(frozen=True, slots=True)
class MeasuredRange:
    """One part that is done."""

    keys: KeyRange
    seconds: float


def next_width(width: int, found: int, goal: int) -> int:
    """The width of the next part: one that would have held so many keys. How long it took does not matter: a table that
    is not sorted by the key is read as a whole for each part, however narrow.
    """
    factor = min(_CHANGE, goal / max(found, 1))
    return max(1, int(width * max(factor, 1 / _CHANGE)))


def key_ranges(
    keys: KeyRange, work: Callable[[KeyRange], Part], found: Callable[[KeyRange, Part], int], parts: Parts, clock: Clock
) -> Iterator[tuple[MeasuredRange, Part]]:
    """Do all parts, from the lowest keys to the highest; `found` is how many keys one had. A part that is too much for
    the database is halved; what passes is waited for.
    """
    # However densely keys lie, so many numbers are no more keys than a part should have.
    lowest, width, failed = keys.lowest, parts.keys, 0
    while lowest < keys.below:
        if lowest > keys.lowest and parts.pause:
            clock.sleep(parts.pause)
        last = keys.below - lowest <= width * (1 + _REST)
        part = KeyRange(lowest, keys.below if last else lowest + width)
        began = clock.monotonic()
        try:
            done = work(part)
        except Transient:
            failed += 1
            if failed == _TRIES:
                raise
            clock.sleep(0.1 * 2**failed)
            width = max(1, width // 2)
            continue
        yield MeasuredRange(part, clock.monotonic() - began), done
        width, failed, lowest = next_width(part.below - part.lowest, found(part, done), parts.keys), 0, part.below
