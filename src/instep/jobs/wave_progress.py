"""Progress of a wave while it runs: to the caller at once, to the ledger every few seconds, taken back if it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from instep.domain.clock import Clock
from instep.domain.jobs import Claim
from instep.errors import InstepError
from instep.ledger.ledger import Ledger
from instep.telemetry.context import current_context, in_context

#: Seconds between two reports to the ledger of how far a wave is, and what they are for each worker of the job: many
#: must not keep it busy.
TELL_SECONDS, TELL_SECONDS_EACH = 2.0, 0.02


class WaveProgress:
    """Reports how far the waves of one worker are."""

    def __init__(self, ledger: Ledger, clock: Clock, worker_id: str) -> None:
        self._ledger = ledger
        self._clock = clock
        self._worker = worker_id
        self._every = TELL_SECONDS
        self._is_in_ledger = False

    def share(self, workers: int) -> None:
        """Report to the ledger less often if so many workers do."""
        self._every = max(TELL_SECONDS, TELL_SECONDS_EACH * workers)

    @contextmanager
    def of(self, claims: Sequence[Claim], progress: Callable[[int], None]) -> Iterator[AttemptProgress]:
        """The progress of one attempt at a wave. If it fails, what was reported to the caller is taken back: the next
        attempt reports it again.
        """
        attempt = AttemptProgress(self, claims, progress)
        try:
            yield attempt
        except BaseException:
            progress(-attempt.units)
            raise

    def due(self) -> float:
        """The time of the next report to the ledger."""
        return self._clock.monotonic() + self._every

    def is_due(self, due: float) -> bool:
        return self._clock.monotonic() >= due

    def forget_failed(self, claims: Sequence[Claim]) -> None:
        """Take back what an attempt that failed has reported to the ledger."""
        if self._is_in_ledger:
            self.tell_ledger(claims, 0)

    def tell_ledger(self, claims: Sequence[Claim], units: int) -> None:
        """Show others how far the wave is, until its slices are complete or given back. If that fails, they wait for
        the next time.
        """
        self._is_in_ledger = units > 0
        with suppress(InstepError):
            self._ledger.slices.tell(claims[0], self._worker, units)

    def complete(self) -> None:
        """Note that the slices are complete: from now on the ledger counts them itself."""
        self._is_in_ledger = False


class AttemptProgress:
    """The progress of one attempt at a wave: `units` are done of its slices."""

    def __init__(self, waves: WaveProgress, claims: Sequence[Claim], progress: Callable[[int], None]) -> None:
        self.units = 0
        self._waves = waves
        self._claims = claims
        self._progress = progress

    def begin(self) -> None:
        self._waves.forget_failed(self._claims)
        self._place, self._due = current_context(), self._waves.due()

    def tell(self, units: int) -> None:
        """Report so many more units. Engines call it from their own threads."""
        self.units += units
        with in_context(self._place):
            self._progress(units)
            if self._waves.is_due(self._due):
                self._waves.tell_ledger(self._claims, self.units)
                self._due = self._waves.due()

    def end(self, units: int) -> None:
        """Report the rest of all units, which the engine has not reported while it ran."""
        if units > self.units:
            self._progress(units - self.units)
            self.units = units
        self._waves.complete()
