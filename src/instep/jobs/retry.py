"""Retries during an outage: growing pauses, and a circuit breaker per target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from instep.domain.clock import Clock
from instep.domain.retries import Backoff, Breaker
from instep.entities.setup import EntitySetup
from instep.errors import Transient, Unknown

T = TypeVar("T")

#: Hint for an outage that lasted too long.
RESUMES = "Nothing is lost. Run again when it is back: the job resumes."
#: Hint for what a run can go on with once the cause is mended.
MEND = "Fix the cause and run again: finished slices are not redone."

#: First and longest pause between tries, in seconds.
FIRST_PAUSE = 0.25
LONGEST_PAUSE = 10.0

#: Seconds for which one step is retried while the target or the embedder is down.
OUTAGE_SECONDS = 30.0


class Outage(Transient):
    """The target or the embedder was down for longer than a wave is retried. The slices were given back."""


def backoff(random: Callable[[], float]) -> Backoff:
    return Backoff(base=FIRST_PAUSE, maximum=LONGEST_PAUSE, random=random)


def with_retries(
    call: Callable[[], T],
    *,
    clock: Clock,
    pauses: Backoff,
    allowed: Callable[[], None],
    waits: Callable[[str], None],
) -> T:
    """Repeat an idempotent call until it answers; `allowed` raises when there is no point in going on. `waits` is told
    once why nothing goes on meanwhile.
    """
    tried = 0
    while True:
        try:
            return call()
        except (Transient, Unknown) as error:
            tried += 1
            if tried == 1:
                waits(str(error))
            clock.sleep(pauses.pause(tried))
            allowed()


@dataclass
class Circuit:
    """A target's circuit breaker in one worker. `down_since` is monotonic seconds, None while the target answers."""

    clock: Clock
    breaker: Breaker = field(default_factory=Breaker)
    down_since: float | None = None

    def succeeded(self) -> None:
        self.breaker, self.down_since = self.breaker.succeeded(), None

    def failed(self) -> None:
        now = self.clock.monotonic()
        self.breaker = self.breaker.failed(now)
        if self.down_since is None:
            self.down_since = now

    def wait(self) -> float:
        """Seconds until the target may be tried again."""
        return self.breaker.wait(self.clock.monotonic())

    def down_for(self) -> float:
        """Seconds since the first failure that no success followed."""
        return 0.0 if self.down_since is None else self.clock.monotonic() - self.down_since


class Circuits:
    """The circuit breakers of one worker, by target."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._found: dict[str, Circuit] = {}

    def of(self, setup: EntitySetup) -> Circuit:
        return self._found.setdefault(setup.target_name, Circuit(self._clock))
