"""Retry rules: pauses that grow, and a circuit breaker that waits out an outage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

#: The seed's constants: so many failures within the window (in seconds) open the breaker; a probe after so long.
FAILURES = 5
WINDOW_SECONDS = 30.0
PROBE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Breaker:
    """A circuit breaker as a value. Times are monotonic seconds.

    Closed, it lets every try through; `FAILURES` of them within `WINDOW_SECONDS` open it. Open, it asks to wait until a
    probe is due; the probe's success closes it, its failure opens it for as long again.
    """

    failures: tuple[float, ...] = ()
    probe_at: float | None = None

    def failed(self, now: float) -> Breaker:
        if self.probe_at is not None:
            # Before the probe is due, this try began while the breaker was closed: nothing new.
            return self if now < self.probe_at else replace(self, probe_at=now + PROBE_SECONDS)
        recent = (*(each for each in self.failures if now - each <= WINDOW_SECONDS), now)
        if len(recent) < FAILURES:
            return Breaker(recent)
        return Breaker(probe_at=now + PROBE_SECONDS)

    def succeeded(self) -> Breaker:
        return Breaker()

    def wait(self, now: float) -> float:
        """Seconds until a try is allowed: 0 while closed, and when a probe is due."""
        return 0.0 if self.probe_at is None else max(0.0, self.probe_at - now)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses in seconds: `base` doubled with each try, `maximum` at most, then jittered so that workers
    which failed together do not come back together.

    `full` draws from all of the pause, `equal` from its second half (Brooker 2015, "Exponential Backoff
    And Jitter"). `random` gives numbers from 0 up to, but not including, 1.
    """

    base: float
    maximum: float
    random: Callable[[], float]
    jitter: Literal["full", "equal"] = "equal"

    def pause(self, tried: int) -> float:
        """Seconds to wait after `tried` failures (from 1)."""
        # Far beyond any maximum, and still a float.
        doublings = min(tried - 1, 60)
        longest = min(self.maximum, self.base * 2.0**doublings)
        if self.jitter == "full":
            return longest * self.random()
        return longest / 2 * (1 + self.random())
