"""Leases: a partition held for a job under an epoch that only grows."""

from __future__ import annotations

from dataclasses import replace

from instep.domain.jobs import JobPart
from instep.domain.refs import PartitionRef, own_name
from instep.domain.requests import Group
from instep.errors import Conflict, Fenced
from instep.ledger.job_transitions import NOTHING_PLANNED
from instep.ledger.leases import Holder, Lease
from tests.simulator.model import workers
from tests.simulator.model.tables import LeaseRow, Tables


def acquire(
    tables: Tables, ref: PartitionRef, job_id: str, worker_id: str, group: Group | None = None
) -> Lease | Holder:
    job = tables.job(job_id)
    if job.state.ended and not job.parts:
        raise Conflict(NOTHING_PLANNED.format(job=job_id))
    tables.worker(worker_id)
    row = tables.leases.get(ref, LeaseRow())
    if row.job_id is not None and is_kept(tables, row):
        return Holder(
            ref, row.job_id, row.epoch, row.since, row.expires_at, workers.of_job(tables, tables.jobs[row.job_id])
        )
    others = sorted(
        (each.since, other)
        for other, each in tables.leases.items()
        if group is not None and group.has(other) and other != ref and is_kept(tables, each)
    )
    if group is not None and len(others) >= group.limit:
        full = tables.leases[others[0][1]]
        assert full.job_id is not None, "it is held"
        by = workers.of_job(tables, tables.jobs[full.job_id])
        return Holder(ref, full.job_id, full.epoch, full.since, full.expires_at, by)
    tables.leases[ref] = row
    row.epoch = last_epoch(tables, ref)
    workers.take_part(tables, tables.jobs[job_id], worker_id)
    return _grant(tables, ref, row, job_id)


def is_kept(tables: Tables, row: LeaseRow) -> bool:
    """Whether a job has it, its time is not up, and a worker takes part in the job."""
    job = tables.jobs.get(row.job_id) if row.job_id is not None else None
    return job is not None and bool(job.workers) and tables.now() < row.expires_at


def is_held_for(tables: Tables, ref: PartitionRef, job_id: str) -> bool:
    row = tables.leases.get(ref)
    return row is not None and row.job_id == job_id


def renew(tables: Tables, lease: Lease) -> Lease:
    row = _demand_live(tables, lease)
    row.expires_at = tables.now() + tables.timing.lease
    return replace(lease, expires_at=row.expires_at)


def last_epoch(tables: Tables, ref: PartitionRef) -> int:
    return max((each.epoch for other, each in tables.leases.items() if _are_alike(ref, other)), default=0)


def release(tables: Tables, lease: Lease) -> None:
    row = held(tables, lease)
    if row is not None:
        row.job_id = None


def transfer(tables: Tables, lease: Lease, job_id: str, above: int = 0) -> Lease:
    tables.job(job_id)
    return _grant(tables, lease.ref, _demand_live(tables, lease), job_id, above)


def free_all_of(tables: Tables, job_id: str) -> None:
    """An ended job keeps no lease."""
    for row in tables.leases.values():
        if row.job_id == job_id:
            row.job_id = None


def free_of(tables: Tables, ref: PartitionRef, job_id: str) -> None:
    row = tables.leases.get(ref)
    if row is not None and row.job_id == job_id:
        row.job_id = None


def held(tables: Tables, lease: Lease) -> LeaseRow | None:
    """The row, if the lease was not taken over; it may have expired."""
    row = tables.leases.get(lease.ref)
    return row if row is not None and row.epoch == lease.epoch and row.job_id == lease.job_id else None


def demand_epoch(tables: Tables, part: JobPart, job_id: str) -> None:
    row = tables.leases.get(part.ref)
    if row is None or row.epoch != part.epoch or row.job_id != job_id:
        raise Fenced(f"the lease of {part.ref} (epoch {part.epoch}) was lost")


def _are_alike(ref: PartitionRef, other: PartitionRef) -> bool:
    """The same, or of one entity with several targets: those share an alias, so their epochs grow together."""
    return other == ref or (ref.scope.is_global and other.scope.is_global and _own(other) == _own(ref))


def _own(ref: PartitionRef) -> str:
    return own_name(ref.entity)


def _demand_live(tables: Tables, lease: Lease) -> LeaseRow:
    row = held(tables, lease)
    if row is None or tables.now() >= row.expires_at:
        raise Fenced(f"the lease of {lease.ref} was lost")
    return row


def _grant(tables: Tables, ref: PartitionRef, row: LeaseRow, job_id: str, above: int = 0) -> Lease:
    now = tables.now()
    row.epoch = max(row.epoch, above) + 1
    row.job_id, row.since, row.expires_at = job_id, now, now + tables.timing.lease
    return Lease(ref, job_id, row.epoch, row.expires_at)
