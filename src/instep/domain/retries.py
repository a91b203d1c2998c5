"""Retry rules: pauses that grow, a circuit breaker that waits out an outage, and what becomes of failed slices.

What becomes of a slice whose attempts end badly: first it runs alone, then it is cut in two, until the poison stands
alone. So a document that kills its worker takes no neighbour down with it.

A document that always kills its worker, in a slice of n, kills at most `MAX_ATTEMPTS + 1 + ceil(log2(n))` of them:
the whole three times, its halves and theirs once each, and itself twice. One that does not is FAILED
only if it was alone at two bad ends, which a single accident never is.

A worker taken for dead may have committed before. So no slice is cut or FAILED when it is taken from a worker, or
at the end of a try: it goes back PENDING, **worn out**. The next worker to claim it looks for it in the
target, and gives it back spent if it is not there.

Slices of rows are another matter. They are claimed together, since one scan reads them all, and are never cut nor
FAILED: what is written up to their checkpoint would be taken for complete, and rows would be missing. One that is worn
out stops its part of the job, in words, and the run that resumes the part tries it from the beginning.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from instep.domain.counts import Counts
from instep.domain.jobs import MAX_ATTEMPTS, half_ids, tries_of
from instep.domain.manifest import decode_changes, encode_changes
from instep.domain.refs import CheckpointKey, PartitionRef
from instep.domain.rows import decode_row_slice
from instep.domain.waves import GIVEN_UP, Failure, SliceOutcome

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


#: No slice waits longer than so many milliseconds before it may be claimed. One that seems to was put back before the
#: ledger's clock was set back, and may be claimed.
LONGEST_DELAY = 60_000

#: After so many bad ends a slice is a suspect: it is claimed alone, after all others. When a worker
#: dies, all its slices have ended badly, and only one of them need be at fault.
SUSPECT_ATTEMPTS = MAX_ATTEMPTS - 1

#: Halves of a slice that ended badly are suspects as well: at the next bad end they are cut again. (Halves of one
#: that only proved too long keep its attempts.)
ATTEMPTS_OF_HALVES = SUSPECT_ATTEMPTS

#: Suspects in the order in which they are claimed, as the fewest and the most attempts: first those that have not
#: been alone yet. So the good half follows on the bad one, and a reader does not see only failures for long.
SUSPECTS = ((SUSPECT_ATTEMPTS, SUSPECT_ATTEMPTS), (SUSPECT_ATTEMPTS + 1, tries_of(1)))

#: The same of slices that are claimed together: first what is to be run, then what is to be looked up.
TOGETHER = ((0, MAX_ATTEMPTS - 1), (MAX_ATTEMPTS, tries_of(1)))


@dataclass(frozen=True, slots=True)
class SliceWork:
    """The facts about a slice that need no look into the hot table's state."""

    id: str
    units: int
    work: int
    lower: str
    upper: str
    payload: bytes


@dataclass(frozen=True, slots=True)
class Poisoned:
    """A slice that cannot be cut any further: FAILED, and its documents are failures."""

    error: str
    counts: Counts
    failures: tuple[Failure, ...]


@dataclass(frozen=True, slots=True)
class Stuck:
    """A slice that must not be given up: its part of the job stops, for this reason."""

    reason: str


def demand_balance(outcome: SliceOutcome) -> None:
    if not outcome.counts.balanced:
        raise ValueError(f"slice {outcome.slice_id} does not add up: {outcome.counts}")


def halves(whole: SliceWork) -> tuple[SliceWork, SliceWork] | None:
    """Two slices with the same documents and bounds; None for a single document, and for rows.

    They keep the rank of their whole, and start with its fence: then the fence of their next claim is
    greater than any under which a former holder may still write the whole.
    """
    if decode_row_slice(whole.payload) is not None:
        return None
    changes = decode_changes(whole.payload)
    if len(changes) < 2:
        return None
    middle = len(changes) // 2
    first, second = changes[:middle], changes[middle:]
    edge = second[0].document_id
    work = max(1, whole.work * len(first) // len(changes))
    left, right = half_ids(whole.id)
    return (
        SliceWork(left, len(first), work, whole.lower, edge, encode_changes(first)),
        SliceWork(right, len(second), max(1, whole.work - work), edge, whole.upper, encode_changes(second)),
    )


def take_apart(
    whole: SliceWork, ref: PartitionRef, attempts: int, error: str | None
) -> tuple[SliceWork, SliceWork] | Poisoned | Stuck:
    """Divide a slice that is worn out: into two halves, or give up a single document. `error` says what was wrong the
    last time.
    """
    how = f"ended badly {attempts} times" + (f"; the last time: {error}" if error else "")
    rows = decode_row_slice(whole.payload)
    if rows is not None:
        return Stuck(f"{CheckpointKey(ref, rows.index, rows.count)} {how}")
    cut = halves(whole)
    if cut is not None:
        return cut
    reason = f"its slice {how}"
    failures = tuple(
        Failure(each.document_id, each.uri, each.version, GIVEN_UP, reason) for each in decode_changes(whole.payload)
    )
    return Poisoned(reason, Counts(read=whole.units, failed=whole.units), failures)
