"""Windows of watermarks: which rows a run reads, and what its progress is worth.

A window is (floor, target], in the units of the source's watermark (microseconds for times). Which one a run has:

| progress | window |
| --- | --- |
| none | (nothing, target]: everything that is not deleted |
| complete up to a watermark | (watermark, target]; nothing to do when target ≤ watermark |
| begun and not finished | the window that was begun, whatever is asked for now |

The target is the watermark of the request less a safety lag, for rows that get their watermark before they can be seen
(a transaction that commits late). What was begun advances nothing: the floor stays until every slice is durable. Then
the partition is complete up to the least watermark of its slices, since one that was finished in an earlier attempt
has read no further.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias


class WindowError(ValueError):
    """A window that cannot be, or a result of nothing."""


@dataclass(frozen=True, slots=True)
class Window:
    """Watermarks above `floor` and up to `target`; without a floor, all up to `target`."""

    floor: int | None
    target: int

    def __post_init__(self) -> None:
        if self.floor is not None and self.floor >= self.target:
            raise WindowError(f"the window ({self.floor}, {self.target}] is empty")

    @property
    def first(self) -> bool:
        """The window of a first run: deleted rows are not read, there is nothing to delete yet."""
        return self.floor is None

    def holds(self, watermark: int | None) -> bool:
        """Whether a row of this watermark is read. One without a watermark would be in no window at all, and lost: it
        belongs to the first.
        """
        if watermark is None:
            return self.first
        return (self.floor is None or watermark > self.floor) and watermark <= self.target

    def __str__(self) -> str:
        return f"({'nothing' if self.floor is None else self.floor}, {self.target}]"


@dataclass(frozen=True, slots=True)
class Complete:
    """Everything up to this watermark is in the target."""

    watermark: int


@dataclass(frozen=True, slots=True)
class Begun:
    """Some of this window may be in the target, nobody knows what."""

    window: Window


Progress: TypeAlias = Complete | Begun


def window_of(progress: Progress | None, request: int, *, lag: int = 0) -> Window | None:
    """The window of a run that is asked for up to `request`, or None when there is nothing to do."""
    if lag < 0:
        raise WindowError(f"a safety lag of {lag}: it is not negative")
    match progress:
        case Begun(window):
            return window
        case Complete(watermark):
            return Window(watermark, request - lag) if request - lag > watermark else None
        case None:
            return Window(None, request - lag)


def complete_up_to(progress: Progress | None) -> int | None:
    """The watermark that the target is known to be complete up to."""
    match progress:
        case Complete(watermark):
            return watermark
        case Begun(window):
            return window.floor
        case None:
            return None


def consolidated(watermarks: Iterable[int]) -> Complete:
    """What finished slices amount to: the least of their watermarks."""
    least = min(watermarks, default=None)
    if least is None:
        raise WindowError("no slices: nothing is complete")
    return Complete(least)


def later(first: Progress, second: Progress) -> Progress:
    """Which of two records about one thing holds, in whatever order they arrived: that of the higher watermark, and of
    one window the one that says it is complete.
    """
    return second if _rank(second) > _rank(first) else first


def _rank(progress: Progress) -> tuple[int, bool, bool, int]:
    match progress:
        case Complete(watermark):
            return watermark, True, False, 0
        case Begun(window):
            # Of two windows up to one target the one that begins earlier: it takes less for granted.
            return window.target, False, window.first, -(window.floor or 0)


@dataclass(frozen=True, slots=True)
class RowVersion:
    """What decides between two rows of one key. `version` is the row's watermark in microseconds, or the epoch of the
    lease it was written under when the table has none. It says nothing of how far a partition is.
    """

    version: int
    deleted: bool = False

    @property
    def rank(self) -> int:
        """One number with the order of `newer`, for a store that keeps the greatest."""
        return 2 * self.version + (not self.deleted)


def newer(a: RowVersion, b: RowVersion) -> RowVersion:
    """Which of two rows of one key stays: the later one, and at one version the one that is not deleted.

    A row that is deleted and inserted again within one tick of the watermark is there; that it was deleted last cannot
    be told from it, and the next change of the row would say so. In whatever order, and however often rows are written,
    the same one stays: the late write of a worker that was taken over changes nothing.
    """
    return b if b.rank > a.rank else a
