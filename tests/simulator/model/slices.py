"""Slices: claimed, given back, completed, split, and ending badly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from instep.domain.jobs import Claim, JobPart, JobState, SlicePlan, SliceState, SliceStatus
from instep.domain.manifest import encode_changes
from instep.domain.refs import PartitionRef
from instep.domain.retries import (
    ATTEMPTS_OF_HALVES,
    LONGEST_DELAY,
    Poisoned,
    SliceWork,
    Stuck,
    demand_balance,
    halves,
    take_apart,
)
from instep.domain.waves import SliceOutcome
from instep.errors import Fenced
from tests.simulator.model import documents
from tests.simulator.model.leases import demand_epoch, is_held_for
from tests.simulator.model.tables import PartRow, SliceRow, Tables


def insert(tables: Tables, row: SliceRow) -> None:
    """A new PENDING slice, with what it has to do by value."""
    if row.plan.columns is not None:
        row.plan = replace(row.plan, payload=encode_changes(list(row.plan.changes)), columns=None)
    part = tables.part_of(row)
    tables.slices[row.id] = row
    part.slices[SliceState.PENDING] += 1
    part.units += row.plan.units
    part.pending.add(row)


def claim(
    tables: Tables,
    job_id: str,
    ref: PartitionRef,
    worker_id: str,
    *,
    work: int,
    limit: int,
    after: int,
    together: bool,
) -> list[Claim]:
    job, worker = tables.jobs.get(job_id), tables.workers.get(worker_id)
    if job is None or worker is None or job.state is not JobState.RUNNING or not is_held_for(tables, ref, job_id):
        return []
    part = job.parts.get(ref)
    if part is None:
        return []
    now = tables.now()
    rows = part.pending.take(now, work=work, limit=limit, after=after, together=together)
    for row in rows:
        row.state, row.worker_id, row.fence, row.claimed_at = SliceState.PROCESSING, worker_id, row.fence + 1, now
        part.processing[row.id] = worker.slices[row.id] = row
    part.slices[SliceState.PENDING] -= len(rows)
    part.slices[SliceState.PROCESSING] += len(rows)
    return list(map(_claim, rows))


def _claim(row: SliceRow) -> Claim:
    plan = row.plan
    return Claim(
        slice_id=row.id,
        job_id=row.job_id,
        ref=row.ref,
        index=plan.index,
        bucket=plan.bucket,
        units=plan.units,
        work=plan.work,
        attempts=row.attempts,
        fence=row.fence,
        rank=row.rank,
        payload=plan.payload,
    )


def forget_work(tables: Tables, job_id: str, ref: PartitionRef) -> None:
    job = tables.jobs.get(job_id)
    if job is None or ref not in job.parts or job.parts[ref].state is None:
        return
    for row in tables.slices.values():
        if (row.job_id, row.ref) == (job_id, ref):
            row.plan = replace(row.plan, payload=b"")


def of_part(tables: Tables, job_id: str, ref: PartitionRef, limit: int) -> list[SliceStatus]:
    here = (row for row in tables.slices.values() if (row.job_id, row.ref) == (job_id, ref))
    return [_status(row) for row in sorted(here, key=lambda row: (row.plan.index, row.id))[:limit]]


def _status(row: SliceRow) -> SliceStatus:
    plan = row.plan
    return SliceStatus(plan.index, row.state, plan.units, row.attempts, row.error, plan.payload)


def held(tables: Tables, slice_id: str, fence: int, worker_id: str) -> SliceRow | None:
    row = tables.slices.get(slice_id)
    return row if row is not None and row.held(fence, worker_id) else None


def complete(tables: Tables, part: JobPart, worker_id: str, outcomes: Sequence[SliceOutcome], *, job_id: str) -> None:
    new = [outcome for outcome in outcomes if not _is_replay(tables, outcome, worker_id)]
    if outcomes and not new:
        return
    demand_epoch(tables, part, job_id)
    rows = []
    for outcome in new:
        demand_balance(outcome)
        row = held(tables, outcome.slice_id, outcome.fence, worker_id)
        if row is None or (row.job_id, row.ref) != (job_id, part.ref):
            raise Fenced(f"slice {outcome.slice_id} was taken over")
        rows.append(row)
    for row, outcome in zip(rows, new, strict=True):
        _leave_work(tables, row, SliceState.COMPLETED)
        row.error, row.finished_at = None, tables.now()
        whole = tables.part_of(row)
        whole.counts += outcome.counts
        whole.completed.add(row.finished_at, row.claimed_at, outcome.counts.read)
    documents.record(tables, part, job_id, new)


def absorb(tables: Tables, part: JobPart, outcomes: Sequence[SliceOutcome], *, job_id: str) -> None:
    demand_epoch(tables, part, job_id)
    documents.record(tables, part, job_id, outcomes)


def _is_replay(tables: Tables, outcome: SliceOutcome, worker_id: str) -> bool:
    row = tables.slices.get(outcome.slice_id)
    return row is not None and row.completed(outcome.fence, worker_id)


def give_back(
    tables: Tables, claims: Sequence[Claim], worker_id: str, *, error: str | None, spent: bool, delay: int
) -> dict[tuple[str, PartitionRef], str]:
    """Returns the parts of jobs that have to stop, and why."""
    stop: dict[tuple[str, PartitionRef], str] = {}
    for each in claims:
        row = held(tables, each.slice_id, each.fence, worker_id)
        if row is None:
            continue
        if spent:
            row.error = error or row.error
        if spent and row.worn_out:
            stuck = _take_apart(tables, row, delay=delay)
            if stuck is not None:
                stop.setdefault((row.job_id, row.ref), stuck.reason)
            continue
        row.attempts += spent
        to_pending(tables, row, delay=delay)
    return stop


def reset_attempts(tables: Tables, part: JobPart, *, job_id: str) -> None:
    demand_epoch(tables, part, job_id)
    _reset_attempts(tables.job(job_id).parts[part.ref])


def split(tables: Tables, claimed: Claim, worker_id: str) -> bool:
    row = held(tables, claimed.slice_id, claimed.fence, worker_id)
    if row is None:
        return False
    cut = halves(_whole(row))
    if cut is None:
        return False
    _replace_by(tables, row, cut, attempts=row.attempts, claimable_at=tables.now())
    return True


def to_pending(tables: Tables, row: SliceRow, *, delay: int = 0) -> None:
    """Back to where it can be claimed. Attempts are the caller's business."""
    _leave_work(tables, row, SliceState.PENDING)
    row.worker_id, row.claimable_at = None, tables.now() + min(delay, LONGEST_DELAY)
    tables.part_of(row).pending.add(row)


def bad_end(tables: Tables, row: SliceRow, error: str) -> None:
    """Its holder is gone: back to PENDING. What is worn out it only looked up, and did not run."""
    if not row.worn_out:
        row.attempts, row.error = row.attempts + 1, error
    to_pending(tables, row)


def _take_apart(tables: Tables, row: SliceRow, *, delay: int) -> Stuck | None:
    result = take_apart(_whole(row), row.ref, row.attempts, row.error)
    if isinstance(result, Stuck):
        to_pending(tables, row, delay=delay)
        _reset_attempts(tables.part_of(row))
        return result
    if isinstance(result, Poisoned):
        _leave_work(tables, row, SliceState.FAILED)
        row.error = result.error
        tables.part_of(row).counts += result.counts
        documents.record_failures(tables, tables.part_of(row).key, row.job_id, result.failures)
        return None
    _replace_by(tables, row, result, attempts=ATTEMPTS_OF_HALVES, claimable_at=tables.now() + min(delay, LONGEST_DELAY))
    return None


def _reset_attempts(part: PartRow) -> None:
    """Whatever is PENDING in the part."""
    for row in part.pending.clear():
        row.attempts = 0
        part.pending.add(row)


def cancel_open(tables: Tables, job_id: str, ref: PartitionRef) -> None:
    part = tables.jobs[job_id].parts[ref]
    for row in list(part.processing.values()):
        _leave_work(tables, row, SliceState.CANCELLED)
        row.worker_id = None
    for row in part.pending.clear():
        row.state = SliceState.CANCELLED
        part.slices[SliceState.PENDING] -= 1
        part.slices[SliceState.CANCELLED] += 1


def _leave_work(tables: Tables, row: SliceRow, state: SliceState) -> None:
    """From PROCESSING to another state, out of the indexes of what is in work."""
    part = tables.part_of(row)
    assert row.worker_id is not None
    del tables.workers[row.worker_id].slices[row.id]
    del part.processing[row.id]
    part.slices[SliceState.PROCESSING] -= 1
    part.slices[state] += 1
    row.state = state


def _whole(row: SliceRow) -> SliceWork:
    plan = row.plan
    return SliceWork(row.id, plan.units, plan.work, plan.lower, plan.upper, plan.payload)


def _replace_by(
    tables: Tables, whole: SliceRow, pieces: Sequence[SliceWork], *, attempts: int, claimable_at: int
) -> None:
    """The whole goes and its halves come at once, so that totals stay right."""
    part = tables.part_of(whole)
    _leave_work(tables, whole, SliceState.PENDING)
    part.slices[SliceState.PENDING] -= 1
    part.units -= whole.plan.units
    del tables.slices[whole.id]
    for half in pieces:
        row = SliceRow(
            half.id,
            whole.job_id,
            whole.ref,
            _plan_of(whole.plan, half),
            whole.rank,
            claimable_at,
            attempts=attempts,
            fence=whole.fence,
            error=whole.error,
        )
        insert(tables, row)


def _plan_of(whole: SlicePlan, half: SliceWork) -> SlicePlan:
    return replace(whole, lower=half.lower, upper=half.upper, units=half.units, work=half.work, payload=half.payload)
