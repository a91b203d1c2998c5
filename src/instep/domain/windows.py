"""Windows of watermarks: the rows that a run reads.

A window is (floor, target], in microseconds since 1970. Which one a run has:

| before | window |
| --- | --- |
| nothing | (nothing, target]: everything that is not deleted |
| a run that is complete up to a watermark | (watermark, target]; nothing to do when target ≤ watermark |
| a run that has not ended | its own window, whatever is requested now: its slices have it |

The target is the watermark of the request less a safety lag, for rows that get their watermark before they can be seen
(a transaction that commits late). The floor moves when every slice is durable.
"""

from __future__ import annotations

from dataclasses import dataclass


class WindowError(ValueError):
    """A window that cannot be."""


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


def window_of(complete: int | None, request: int, *, lag: int = 0) -> Window | None:
    """The window of a new run that is asked for up to `request`, when everything up to `complete` (None: nothing) is in
    the target. None when there is nothing to do.
    """
    if lag < 0:
        raise WindowError(f"a safety lag of {lag}: it is not negative")
    target = request - lag
    if complete is not None and target <= complete:
        return None
    return Window(complete, target)
