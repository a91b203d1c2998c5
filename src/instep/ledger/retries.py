"""What becomes of a slice whose attempts end badly: first it runs alone, then it is cut in two, until
the poison stands alone. So a document that kills its worker takes no neighbour down with it.
"""

from __future__ import annotations

from dataclasses import dataclass

from instep.domain.counts import Counts
from instep.domain.jobs import MAX_ATTEMPTS, SliceState, after_failure
from instep.domain.manifest import decode_changes, encode_changes
from instep.domain.waves import Failure, SliceOutcome

#: After so many bad ends a slice is a suspect: it is claimed alone, after all others. When a worker
#: dies, all its slices have ended badly, and only one of them need be at fault.
SUSPECT_ATTEMPTS = MAX_ATTEMPTS - 1

#: Halves were already tried as often as their whole: at the next bad end they are cut again.
ATTEMPTS_OF_HALVES = MAX_ATTEMPTS - 1


@dataclass(frozen=True, slots=True)
class SliceWork:
    """What is known of a slice without looking into the hot table's state."""

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


def may_be_tried_again(attempts: int) -> bool:
    """Whether a slice may go back to PENDING after `attempts` bad ends."""
    return after_failure(attempts, transient=True) is SliceState.PENDING


def demand_balance(outcome: SliceOutcome) -> None:
    if not outcome.counts.balanced:
        raise ValueError(f"slice {outcome.slice_id} does not add up: {outcome.counts}")


def take_apart(slice_work: SliceWork, attempts: int, error: str | None) -> tuple[SliceWork, SliceWork] | Poisoned:
    """Two halves with the same documents and bounds, or the end of the line for a single document."""
    changes = decode_changes(slice_work.payload)
    if len(changes) < 2:
        reason = f"its slice ended badly {attempts} times" + (f"; the last time: {error}" if error else "")
        failures = tuple(Failure(each.document_id, each.uri, each.version, "wave", reason) for each in changes)
        return Poisoned(reason, Counts(read=slice_work.units, failed=slice_work.units), failures)
    middle = len(changes) // 2
    first, second = changes[:middle], changes[middle:]
    edge = second[0].document_id
    work = max(1, slice_work.work * len(first) // len(changes))
    return (
        SliceWork(f"{slice_work.id}a", len(first), work, slice_work.lower, edge, encode_changes(first)),
        SliceWork(
            f"{slice_work.id}b",
            len(second),
            max(1, slice_work.work - work),
            edge,
            slice_work.upper,
            encode_changes(second),
        ),
    )
