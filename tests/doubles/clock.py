"""A clock that moves only when told to, or when somebody sleeps on it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class VirtualClock:
    milliseconds: int = 1_800_000_000_000

    def now(self) -> int:
        return self.milliseconds

    def monotonic(self) -> float:
        return self.milliseconds / 1000

    def sleep(self, seconds: float) -> None:
        self.milliseconds += round(seconds * 1000)
