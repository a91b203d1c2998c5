"""The real clock and the real source of ids; simulations bring their own."""

from __future__ import annotations

import time
import uuid


class SystemClock:
    """Implements `domain.clock.Clock`."""

    def now(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class RandomIds:
    """Implements `domain.clock.Ids`."""

    def new(self) -> str:
        return str(uuid.uuid4())
