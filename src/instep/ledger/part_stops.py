"""Parts that stop by themselves: an error of one partition stops its share of a job, and that of no other."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import exists, select, update

from instep.domain.jobs import JOB_TRANSITIONS, JobState
from instep.domain.refs import PartitionRef
from instep.ledger import job_transitions, slice_rows
from instep.ledger import jobs as job_rows
from instep.ledger.slice_rows import PROCESSING
from instep.ledger.tables import job_parts, job_workers, leases, slices
from instep.ledger.transaction import Transaction


def stop(
    tx: Transaction, job_id: str, ref: PartitionRef, reason: str, *, by: str | None, alone: Collection[str]
) -> bool:
    """See `Parts.stop`."""
    state = job_transitions.demand(tx, job_id)
    if by is not None:
        slice_rows.give_back_all(tx, slices.c.worker_id == by, slices.c.job_id == job_id, slices.c.ref == str(ref))
    here = (job_parts.c.job_id == job_id, job_parts.c.ref == str(ref), job_parts.c.state.is_(None))
    row = tx.connection.execute(select(job_parts.c.error).where(*here).with_for_update()).one_or_none()
    if row is None:
        return False
    if row.error is None:
        if JobState.STOPPING not in JOB_TRANSITIONS[state] or (alone and _has_others(tx, job_id, alone)):
            return False
        tx.connection.execute(update(job_parts).where(*here).values(error=reason, finished_at=tx.now()))
    apply(tx, job_id, state)
    return True


def apply(tx: Transaction, job_id: str, state: JobState) -> JobState:
    """Apply stops to a job with open parts: those that have stopped are free once nothing of them is in work, and a
    job of which nothing else is left begins to stop. Returns its state.
    """
    still = select(job_parts.c.ref, job_parts.c.error).where(job_parts.c.job_id == job_id, job_parts.c.state.is_(None))
    rows = tx.connection.execute(still.order_by(job_parts.c.position)).all()
    to_stop = state is JobState.STOPPING or JobState.STOPPING in JOB_TRANSITIONS[state]
    if to_stop and all(row.error is not None for row in rows):
        return job_rows.request_stop(tx, job_id, rows[0].error)
    job_transitions.touch(tx, job_id)
    stopped = [row.ref for row in rows if row.error is not None]
    if stopped:
        in_work = exists().where(slices.c.job_id == leases.c.job_id, slices.c.ref == leases.c.ref, PROCESSING)
        free = update(leases).where(leases.c.job_id == job_id, leases.c.ref.in_(stopped), ~in_work)
        tx.connection.execute(free.values(job_id=None))
    return state


def _has_others(tx: Transaction, job_id: str, than: Collection[str]) -> bool:
    others = exists().where(job_workers.c.job_id == job_id, job_workers.c.worker_id.not_in(sorted(than)))
    return bool(tx.connection.scalar(select(others)))
