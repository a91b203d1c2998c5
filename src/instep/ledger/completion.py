"""Slices that are done: their counts, manifest rows and failures, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from instep.domain.jobs import JobPart, SliceState
from instep.domain.waves import SliceOutcome
from instep.errors import Fenced
from instep.ledger import leases, manifest
from instep.ledger.dialects.dialect import CompleteRequest
from instep.ledger.slice_retries import demand_balance
from instep.ledger.slices import is_in, lock
from instep.ledger.transaction import Transaction


class PartlyDone(Exception):
    """Not every slice could be completed: roll back and look why."""


def writes_rows(outcome: SliceOutcome) -> bool:
    """Whether there is more to write than the slice itself."""
    return bool(outcome.entries or outcome.removed or outcome.failures)


def complete(tx: Transaction, part: JobPart, worker_id: str, outcomes: Sequence[SliceOutcome], job_id: str) -> None:
    """Raises `PartlyDone` when not all of them are still this worker's; the transaction must not be committed."""
    if not outcomes:
        leases.demand_epoch_unlocked(tx, job_id, part)
        return
    for outcome in outcomes:
        demand_balance(outcome)
    request = CompleteRequest(job_id, str(part.ref), part.epoch, worker_id, outcomes)
    if tx.dialect.complete(tx.connection, request) != len(outcomes):
        raise PartlyDone
    if rows := [each.storable() for each in outcomes if writes_rows(each)]:
        manifest.write(tx, part.instance, rows)
        manifest.write_failures(tx, (str(part.ref), part.generation), job_id, rows)


def absorb(tx: Transaction, part: JobPart, outcomes: Sequence[SliceOutcome], job_id: str) -> None:
    """The lease is locked: nothing is written to an instance that its next holder has looked at."""
    leases.demand_epoch(tx, job_id, part)
    rows = [each.storable() for each in outcomes]
    manifest.write(tx, part.instance, rows)
    manifest.write_failures(tx, (str(part.ref), part.generation), job_id, rows)


def complete_rest(
    tx: Transaction, part: JobPart, worker_id: str, outcomes: Sequence[SliceOutcome], job_id: str
) -> None:
    """The same, leaving out what was completed under this very claim: a reply was lost, the effect was not."""
    found = lock(tx, (each.slice_id for each in outcomes))
    rest = [
        each for each in outcomes if not is_in(SliceState.COMPLETED, found.get(each.slice_id), each.fence, worker_id)
    ]
    if not rest:
        return
    leases.demand_epoch_unlocked(tx, job_id, part)
    for outcome in rest:
        row = found.get(outcome.slice_id)
        if row is None or row.job_id != job_id or not is_in(SliceState.PROCESSING, row, outcome.fence, worker_id):
            raise Fenced(f"slice {outcome.slice_id} was taken over")
    try:
        complete(tx, part, worker_id, rest, job_id)
    except PartlyDone:
        raise Fenced(f"the lease of {part.ref} (epoch {part.epoch}) was lost") from None
