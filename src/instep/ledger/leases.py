"""Leases: one row per partition, for ever, because its epoch must grow for ever."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Row, exists, func, insert, or_, select, update

from instep.domain.events import Event
from instep.domain.jobs import JobPart
from instep.domain.refs import PartitionRef, entity_in, own_name
from instep.domain.requests import Group
from instep.errors import Conflict, Fenced
from instep.ledger import event_log, job_transitions, workers
from instep.ledger.job_transitions import NOTHING_PLANNED
from instep.ledger.tables import bus_groups, job_parts, job_workers, leases
from instep.ledger.transaction import Store, Transaction, reads, writes
from instep.ledger.workers import WorkerInfo


@dataclass(frozen=True, slots=True)
class Lease:
    """A partition held for a job. `epoch` grows with every acquisition, for ever.

    It is the job's, not a worker's: every worker that takes part in the job may renew it, and it is
    free as soon as none takes part any more, or when it has not been renewed for its time to live.
    """

    ref: PartitionRef
    job_id: str
    epoch: int
    expires_at: int


@dataclass(frozen=True, slots=True)
class Holder:
    """The job that holds a lease, and its workers."""

    ref: PartitionRef
    job_id: str
    epoch: int
    since: int
    expires_at: int
    workers: tuple[WorkerInfo, ...]


class Leases(Store):
    """The leases: one per partition in work, for all its generations."""

    @writes
    def acquire(
        self, tx: Transaction, ref: PartitionRef, job_id: str, worker_id: str, group: Group | None = None
    ) -> Lease | Holder:
        """Take the lease for a job if it is free; else say who holds it. The worker takes part in the job. In a `group`
        that is full it is not free either: then the job is that of the group's oldest lease.

        It is free when no job has it, when it has expired (`now >= expires_at`), or when no worker takes
        part in its job any more. A job's own live lease is not free either: join the job instead. Raises
        `Fenced` for a worker that is not registered, `Conflict` for a job that does not exist.
        """
        state = job_transitions.demand(tx, job_id)
        if state.ended and not tx.connection.scalar(select(exists().where(job_parts.c.job_id == job_id))):
            raise Conflict(NOTHING_PLANNED.format(job=job_id))
        row = _lock(tx, ref)
        workers.demand_registered(tx, worker_id)
        now = tx.now()
        if row is not None and _is_held(tx, row, now):
            return Holder(ref, row.job_id, row.epoch, row.since, row.expires_at, workers.of_job(tx, row.job_id))
        full = None if group is None else _in_the_way(tx, ref, group, now)
        if full is not None:
            return Holder(ref, full.job_id, full.epoch, full.since, full.expires_at, workers.of_job(tx, full.job_id))
        lease = Lease(ref, job_id, _last_epoch(tx, ref) + 1, now + tx.timing.lease)
        values = {"job_id": job_id, "epoch": lease.epoch, "since": now, "expires_at": lease.expires_at}
        if row is None:
            tx.connection.execute(insert(leases).values(ref=str(ref), **values))
        else:
            tx.connection.execute(update(leases).where(leases.c.ref == str(ref)).values(values))
        workers.take_part(tx, job_id, worker_id)
        return lease

    @writes
    def renew(self, tx: Transaction, lease: Lease) -> Lease:
        """Extend by the time to live. Raises `Fenced` when it was taken over or has expired."""
        return _extended(tx, lease)

    @writes
    def record(self, tx: Transaction, lease: Lease, events: Sequence[Event]) -> None:
        """Append events under a lease, and extend it. Raises `Fenced` when it was taken over or has expired: nothing is
        appended then.
        """
        _extended(tx, lease)
        event_log.demand(tx, events)

    @writes
    def release(self, tx: Transaction, lease: Lease) -> None:
        """Free it. A lease that was taken over is left alone."""
        release(tx, lease)

    @writes
    def transfer(self, tx: Transaction, lease: Lease, job_id: str, *, above: int = 0) -> Lease:
        """Hand a lease to another job (or the same) under a new epoch, in one statement; it is never free in
        between. `above`: an epoch that was seen elsewhere, and is to be exceeded too. Raises `Fenced` when it was taken
        over or has expired, `Conflict` for a job that does not exist.
        """
        job_transitions.demand(tx, job_id)
        now = tx.now()
        after = Lease(lease.ref, job_id, max(lease.epoch, above) + 1, now + tx.timing.lease)
        values = {"job_id": job_id, "epoch": after.epoch, "since": now, "expires_at": after.expires_at}
        handed = tx.connection.execute(update(leases).where(*_of(lease), leases.c.expires_at > now).values(values))
        if handed.rowcount != 1:
            raise _lost(lease)
        return after

    @reads
    def last_epoch(self, tx: Transaction, ref: PartitionRef) -> int:
        """The last epoch that was given for a partition; 0 if none was."""
        return _last_epoch(tx, ref)


def release(tx: Transaction, lease: Lease) -> None:
    tx.connection.execute(update(leases).where(*_of(lease)).values(job_id=None))


def free_all(tx: Transaction, job_id: str) -> None:
    """Free all leases of a job that has ended."""
    tx.connection.execute(update(leases).where(leases.c.job_id == job_id).values(job_id=None))


def demand(tx: Transaction, lease: Lease) -> None:
    """Check that the lease is still the job's under this epoch, and lock it. Raises `Fenced` if not."""
    if tx.connection.execute(select(leases.c.epoch).where(*_of(lease)).with_for_update()).one_or_none() is None:
        raise _lost(lease)


def demand_epoch(tx: Transaction, job_id: str, part: JobPart) -> None:
    """Check that the part was planned or adopted under the lease that its job has now, and lock that."""
    demand(tx, _lease_of(part, job_id))


def demand_epoch_unlocked(tx: Transaction, job_id: str, part: JobPart) -> None:
    """Check the lease's epoch without a lock, for calls that must not make others wait: their writes are guarded by the
    epoch.
    """
    lease = _lease_of(part, job_id)
    if not tx.connection.scalar(select(exists().where(*_of(lease)))):
        raise _lost(lease)


def _lease_of(part: JobPart, job_id: str) -> Lease:
    return Lease(part.ref, job_id, part.epoch, 0)


def _extended(tx: Transaction, lease: Lease) -> Lease:
    now = tx.now()
    renewed = tx.connection.execute(
        update(leases).where(*_of(lease), leases.c.expires_at > now).values(expires_at=now + tx.timing.lease)
    )
    if renewed.rowcount != 1:
        raise _lost(lease)
    return Lease(lease.ref, lease.job_id, lease.epoch, now + tx.timing.lease)


def _lost(lease: Lease) -> Fenced:
    return Fenced(f"the lease of {lease.ref} (epoch {lease.epoch}) was lost")


def _lock(tx: Transaction, ref: PartitionRef) -> Row[Any] | None:
    return tx.connection.execute(select(leases).where(leases.c.ref == str(ref)).with_for_update()).one_or_none()


def _last_epoch(tx: Transaction, ref: PartitionRef) -> int:
    """The last epoch of a partition; 0 for one that never had a lease. Those of an entity with several targets share an
    alias, and one of them may be declared where another was: so their epochs grow together.
    """
    alike = leases.c.ref == str(ref)
    if ref.scope.is_global:
        name = own_name(ref.entity)
        alike = or_(alike, leases.c.ref == str(PartitionRef(name)), _begins_with(entity_in(name, "")))
    return int(tx.connection.scalar(select(func.max(leases.c.epoch)).where(alike)) or 0)


def _begins_with(text: str) -> ColumnElement[bool]:
    """The prefix of a text. Not LIKE, which ignores case in SQLite."""
    return func.substr(leases.c.ref, 1, len(text)) == text


def _is_held(tx: Transaction, row: Row[Any], now: int) -> bool:
    return row.job_id is not None and now < row.expires_at and workers.count(tx, row.job_id) > 0


def _in_the_way(tx: Transaction, ref: PartitionRef, group: Group, now: int) -> Row[Any] | None:
    """The oldest lease of a group that is full. Locks the group, so that no other lease is taken in it."""
    locked = select(bus_groups.c.name).where(bus_groups.c.name == group.name).with_for_update()
    if tx.connection.scalar(locked) is None:
        tx.connection.execute(insert(bus_groups).values(name=group.name))
    worked_on = exists().where(job_workers.c.job_id == leases.c.job_id)
    held = select(leases).where(
        leases.c.job_id.is_not(None), leases.c.expires_at > now, leases.c.ref != str(ref), worked_on
    )
    rows = tx.connection.execute(held.order_by(leases.c.since, leases.c.ref)).all()
    inside = [row for row in rows if group.has(PartitionRef.parse(row.ref))]
    return inside[0] if len(inside) >= group.limit else None


def _of(lease: Lease) -> tuple[ColumnElement[bool], ...]:
    return (leases.c.ref == str(lease.ref), leases.c.epoch == lease.epoch, leases.c.job_id == lease.job_id)
