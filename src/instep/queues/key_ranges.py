"""Split a range of keys into parts with a given number of keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from instep.domain.clock import Clock
from instep.domain.pending_queue import KeyRange, QueueKey
from instep.errors import Transient

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


def key_ranges(
    keys: KeyRange,
    edge: Callable[[KeyRange, int], QueueKey | None],
    work: Callable[[KeyRange], Part],
    parts: Parts,
    clock: Clock,
) -> Iterator[tuple[MeasuredRange, Part]]:
    """Do all parts, from the lowest keys to the highest. `edge` finds the last of so many keys, or None where there are
    no more. A part that is too much for the database is halved; what passes is waited for, and parts grow again.
    """
    size, failed = parts.keys, 0
    rest = None if keys.empty else keys
    while rest is not None:
        began = clock.monotonic()
        try:
            last = edge(rest, size)
            part = rest if last is None else KeyRange(rest.after, last)
            done = work(part)
        except Transient:
            failed += 1
            if failed == _TRIES:
                raise
            clock.sleep(0.1 * 2**failed)
            size = max(1, size // 2)
            continue
        yield MeasuredRange(part, clock.monotonic() - began), done
        # A table that is not sorted by the key is read as a whole for each part, however small.
        size, failed = min(2 * size, parts.keys), 0
        rest = None if part.upto == rest.upto else KeyRange(part.upto, rest.upto)
        if rest is not None and parts.pause:
            clock.sleep(parts.pause)
