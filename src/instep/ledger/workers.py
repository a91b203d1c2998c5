"""Workers: one row each, which every heartbeat updates, and in which jobs they take part."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, bindparam, delete, exists, func, insert, select, update

from instep.domain.jobs import SliceState
from instep.domain.refs import PartitionRef
from instep.errors import Fenced
from instep.ledger import slice_rows
from instep.ledger.tables import job_workers, slices, workers
from instep.ledger.transaction import Store, Transaction, reads, writes

DIED: Final = "its worker died"

_BEAT = update(workers).where(workers.c.id == bindparam("b_worker")).values(heartbeat_at=bindparam("b_now"))

# What it has had for longer than the reply to a claim can be on its way, and does not know of.
_HAS_BUT_DOES_NOT_RUN = (
    update(slices)
    .where(
        slices.c.worker_id == bindparam("b_worker"),
        slice_rows.PROCESSING,
        # By a clock that was set back since, too.
        ~slices.c.claimed_at.between(bindparam("b_since"), bindparam("b_until")),
        slices.c.id.not_in(bindparam("b_running", expanding=True)),
    )
    .values(state=SliceState.PENDING.value, worker_id=None)
)


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker and what it does: `slices` of `job_id` that it has in work, the oldest since `busy_since`."""

    id: str
    kind: str
    host: str
    pid: int
    started_at: int
    heartbeat_at: int
    job_ids: tuple[str, ...] = ()
    refs: tuple[PartitionRef, ...] = ()
    slices: int = 0
    busy_since: int | None = None


class Workers(Store):
    """The registered workers: one heartbeat row each, never one per claimed slice."""

    @writes
    def register(self, tx: Transaction, worker_id: str, *, kind: str, host: str, pid: int) -> None:
        """Register a worker. `kind` says which command it is: `run` or `worker`."""
        now = tx.now()
        tx.connection.execute(delete(workers).where(workers.c.id == worker_id))
        tx.connection.execute(
            insert(workers).values(id=worker_id, kind=kind, host=host, pid=pid, started_at=now, heartbeat_at=now)
        )

    @writes
    def heartbeat(self, tx: Transaction, worker_id: str, running: Collection[str]) -> int:
        """The worker lives, and really runs the slices in `running`. What it holds besides, and has held
        for longer than a heartbeat's interval (a claim's reply may be on its way), goes back to PENDING
        without a spent attempt; returns how many those were. Raises `Fenced` for a worker that is
        not registered (any more).
        """
        now = tx.now()
        if tx.connection.execute(_BEAT, {"b_worker": worker_id, "b_now": now}).rowcount != 1:
            raise _not_registered(worker_id)
        about = tx.timing.heartbeat
        forgotten = {"b_worker": worker_id, "b_since": now - about, "b_until": now + about, "b_running": list(running)}
        return tx.connection.execute(_HAS_BUT_DOES_NOT_RUN, forgotten).rowcount

    @reads
    def all(self, tx: Transaction) -> list[WorkerInfo]:
        """Read all registered workers, the oldest first."""
        return _described(tx, tx.connection.execute(select(workers).order_by(workers.c.started_at, workers.c.id)).all())

    @writes
    def retire(self, tx: Transaction, worker_id: str) -> None:
        """Retire a worker that ends in good order. Its slices go back to PENDING without a spent attempt; it takes part
        in no job any more.
        """
        _forget(tx, worker_id)
        slice_rows.give_back_all(tx, slices.c.worker_id == worker_id)

    @writes
    def evict(self, tx: Transaction, worker_id: str) -> int:
        """Evict a worker that was proved dead: its slices have ended badly, and it takes part in no job any more.
        Returns the number of its slices.

        What ends badly goes back to PENDING with attempts + 1, or as it is when it was worn out
        (`Claim.worn_out`) before: it may be in the target already, so it is neither FAILED nor split here.
        """
        return evict(tx, worker_id)


def evict(tx: Transaction, worker_id: str) -> int:
    """The number of slices that it had in work."""
    # First the row, so that nothing is claimed in its name any more; then what it claimed.
    _forget(tx, worker_id)
    return slice_rows.end_badly(tx, slice_rows.lock_processing(tx, slices.c.worker_id == worker_id), DIED)


def _forget(tx: Transaction, worker_id: str) -> None:
    tx.connection.execute(delete(workers).where(workers.c.id == worker_id))
    tx.connection.execute(delete(job_workers).where(job_workers.c.worker_id == worker_id))


# Taking part in jobs.


def demand_registered(tx: Transaction, worker_id: str) -> None:
    """Lock a worker's row until the end of the transaction, and raise if it is not registered: a sweep that evicts it
    waits, and then finds what was done in its name. Call this after waiting for other locks, which may take long.
    """
    known = select(workers.c.id).where(workers.c.id == worker_id).with_for_update(read=True)
    if tx.connection.scalar(known) is None:
        raise _not_registered(worker_id)


def take_part(tx: Transaction, job_id: str, worker_id: str) -> None:
    if not takes_part(tx, job_id, worker_id):
        tx.connection.execute(insert(job_workers).values(job_id=job_id, worker_id=worker_id))


def takes_part(tx: Transaction, job_id: str, worker_id: str) -> bool:
    known = exists().where(workers.c.id == job_workers.c.worker_id)
    return bool(tx.connection.scalar(select(exists().where(*_membership(job_id, worker_id), known))))


def clear_away(tx: Transaction) -> None:
    """Delete memberships without a worker, which no other call would end and which count in a job."""
    unknown = ~exists().where(workers.c.id == job_workers.c.worker_id)
    for row in tx.connection.execute(select(job_workers).where(unknown)).all():
        tx.connection.execute(delete(job_workers).where(*_membership(row.job_id, row.worker_id), unknown))


def leave(tx: Transaction, job_id: str, worker_id: str) -> None:
    tx.connection.execute(delete(job_workers).where(*_membership(job_id, worker_id)))
    slice_rows.give_back_all(tx, slices.c.worker_id == worker_id, slices.c.job_id == job_id)


def count(tx: Transaction, job_id: str) -> int:
    """The number of workers of a job."""
    number = select(func.count()).select_from(job_workers).where(job_workers.c.job_id == job_id)
    return int(tx.connection.scalar(number) or 0)


def _membership(job_id: str, worker_id: str) -> tuple[ColumnElement[bool], ...]:
    return (job_workers.c.job_id == job_id, job_workers.c.worker_id == worker_id)


# What they do.


def of_job(tx: Transaction, job_id: str) -> tuple[WorkerInfo, ...]:
    members = select(job_workers.c.worker_id).where(job_workers.c.job_id == job_id)
    of_it = select(workers).where(workers.c.id.in_(members)).order_by(workers.c.started_at, workers.c.id)
    return tuple(_described(tx, tx.connection.execute(of_it).all()))


def _described(tx: Transaction, rows: Sequence[Row[Any]]) -> list[WorkerInfo]:
    jobs_of: dict[str, list[str]] = defaultdict(list)
    for row in tx.connection.execute(select(job_workers).order_by(job_workers.c.job_id)):
        jobs_of[row.worker_id].append(row.job_id)
    in_work: dict[str, list[Row[Any]]] = defaultdict(list)
    busy = (
        select(
            slices.c.worker_id,
            slices.c.ref,
            func.count().label("number"),
            func.min(slices.c.claimed_at).label("since"),
        )
        .where(slice_rows.PROCESSING)
        .group_by(slices.c.worker_id, slices.c.ref)
        .order_by(slices.c.worker_id, slices.c.ref)
    )
    for row in tx.connection.execute(busy):
        in_work[row.worker_id].append(row)
    return [
        WorkerInfo(
            id=row.id,
            kind=row.kind,
            host=row.host,
            pid=row.pid,
            started_at=row.started_at,
            heartbeat_at=row.heartbeat_at,
            job_ids=tuple(jobs_of[row.id]),
            refs=tuple(PartitionRef.parse(each.ref) for each in in_work[row.id]),
            slices=sum(each.number for each in in_work[row.id]),
            busy_since=min((each.since for each in in_work[row.id]), default=None),
        )
        for row in rows
    ]


def _not_registered(worker_id: str) -> Fenced:
    return Fenced(f"worker {worker_id} is not registered")
