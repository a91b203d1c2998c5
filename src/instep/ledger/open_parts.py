"""Open parts of jobs, as a worker that looks for work sees them."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from sqlalchemy import BigInteger, BindParameter, Row, Select, and_, bindparam, exists, func, or_, select, true

from instep.domain.jobs import JobState, OpenPart
from instep.domain.refs import PartitionRef
from instep.domain.retries import SUSPECT_ATTEMPTS
from instep.ledger import event_log
from instep.ledger import jobs as job_rows
from instep.ledger.dialects.dialect import may_be_claimed
from instep.ledger.slice_rows import PENDING, PROCESSING
from instep.ledger.tables import job_parts, job_workers, jobs, leases, slices, want_refs, wants
from instep.ledger.transaction import Store, Transaction, batches, reads

_ACTIVE: Final = [state.value for state in (JobState.READY, JobState.RUNNING, JobState.STOPPING)]


def _number(*conditions: Any) -> Any:
    return select(func.count()).where(*conditions).scalar_subquery()


def _open_parts() -> Select[Any]:
    here = (slices.c.job_id == job_parts.c.job_id, slices.c.ref == job_parts.c.ref)
    now: BindParameter[int] = bindparam("b_now", type_=BigInteger)
    pending = select(slices.c.work).where(*here, PENDING).limit(1)
    claimable = pending.where(may_be_claimed(slices.c.claimable_at, now)).order_by(slices.c.rank, slices.c.id)
    # What is claimed next: by rank, then suspects, then what still has to wait.
    head = func.coalesce(
        claimable.where(slices.c.attempts < SUSPECT_ATTEMPTS).scalar_subquery(),
        claimable.where(slices.c.attempts == SUSPECT_ATTEMPTS).scalar_subquery(),
        claimable.scalar_subquery(),
        pending.order_by(slices.c.claimable_at, slices.c.rank, slices.c.id).scalar_subquery(),
        0,
    )
    return (
        select(
            job_parts,
            jobs.c.state.label("job_state"),
            leases.c.expires_at,
            head.label("head"),
            _number(*here, PENDING).label("pending"),
            _number(*here, PROCESSING).label("processing"),
            _number(job_workers.c.job_id == job_parts.c.job_id).label("workers"),
        )
        .join(jobs, jobs.c.id == job_parts.c.job_id)
        .outerjoin(leases, and_(leases.c.ref == job_parts.c.ref, leases.c.job_id == job_parts.c.job_id))
        .where(
            job_parts.c.ref.in_(bindparam("b_refs", expanding=True)),
            job_parts.c.state.is_(None),
            jobs.c.state.in_(_ACTIVE),
        )
    )


_OPEN_PARTS = _open_parts()
_WANTED_STOPPED = (
    select(job_parts.c.ref, job_parts.c.generation)
    .join(jobs, jobs.c.id == job_parts.c.job_id)
    .where(
        or_(
            jobs.c.state == JobState.STOPPED.value,
            and_(job_parts.c.error.is_not(None), jobs.c.state == JobState.RUNNING.value),
        ),
        job_parts.c.state.is_(None),
        job_parts.c.ref.in_(bindparam("b_refs", expanding=True)),
        exists().where(
            want_refs.c.ref == job_parts.c.ref,
            want_refs.c.open == true(),
            want_refs.c.generation == job_parts.c.generation,
            want_refs.c.want_id == wants.c.id,
            or_(wants.c.needed.is_(None), wants.c.needed <= bindparam("b_now")),
        ),
    )
)


class OpenParts(Store):
    """Parts that have not ended, on given partitions."""

    @reads
    def on(self, tx: Transaction, refs: Collection[PartitionRef]) -> list[OpenPart]:
        """Open parts on these partitions of jobs that are READY, RUNNING or STOPPING: those of higher
        priority first, then those with the larger head.
        """
        rows: list[Row[Any]] = []
        for some in batches(sorted(map(str, set(refs)))):
            rows += tx.connection.execute(_OPEN_PARTS, {"b_refs": some, "b_now": tx.now()}).all()
        rows.sort(key=lambda row: (-row.priority, -row.head, row.ref, row.job_id))
        return [
            OpenPart(
                job_id=row.job_id,
                job_state=JobState(row.job_state),
                part=job_rows.part_of(row),
                priority=row.priority,
                head=row.head,
                pending=row.pending,
                processing=row.processing,
                held=row.expires_at is not None and tx.now() < row.expires_at and row.workers > 0,
                workers=row.workers,
                error=row.error,
            )
            for row in rows
        ]

    @reads
    def wanted_stopped(self, tx: Transaction, refs: Collection[PartitionRef]) -> list[tuple[PartitionRef, str]]:
        """Find those of these partitions, with the generation, that a want waits for while the job on them is STOPPED,
        or their part of it has stopped by itself; by name. (Such a want is Building still.) Not those of which all
        wants pause after a failed attempt.
        """
        now = event_log.present(tx)
        found = {
            (PartitionRef.parse(row.ref), row.generation)
            for some in batches(sorted(map(str, set(refs))))
            for row in tx.connection.execute(_WANTED_STOPPED, {"b_refs": some, "b_now": now})
        }
        return sorted(found)
