"""Dimensions of the indexes of a target, which stay as long as an index does: asked of its store once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property


class Widths:
    """The base of targets that would else ask a server twice for each search."""

    @cached_property
    def _widths(self) -> dict[str, int]:
        return {}

    def _width(self, physical: str, ask: Callable[[], int]) -> int:
        if physical not in self._widths:
            self._widths[physical] = ask()
        return self._widths[physical]

    def _forget_width(self, physical: str) -> None:
        """Forget an index that is dropped: another of that name may come."""
        self._widths.pop(physical, None)
