"""Forgetting jobs that ended long ago, a little at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, and_, delete, exists, func, insert, or_, select, update

from instep.domain.refs import PartitionRef
from instep.ledger.tables import checkpoints, forgotten, job_parts, job_workers, jobs, slice_work, slices
from instep.ledger.transaction import Store, Transaction, batches, reads, writes

#: Slices that go in one transaction: deleting them takes some tens of milliseconds.
LIMIT: Final = 2_000
#: Jobs of few slices that go in one transaction.
_JOBS: Final = 50


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The part of a partition's history that is forgotten: jobs that ended at `at` or before, but for those that are
    still needed. They wrote under epochs up to this one, and brought in what was there up to `target`.
    """

    at: int
    epoch: int
    target: int

    def hides_epoch(self, epoch: int, found: int) -> bool:
        """Whether what was written under this epoch may be a forgotten job's, if the next one kept has that epoch. The
        epochs of one job are next to each other.
        """
        return epoch <= self.epoch and found > self.epoch

    def hides_watermark(self, watermark: int, found: int, *, fresh: bool) -> bool:
        """Whether a forgotten job may have brought in what has this watermark, if the first one kept that may have has
        that epoch. One that builds an instance is the first of it.
        """
        return watermark <= self.target and not fresh and found > self.epoch


@dataclass(frozen=True, slots=True)
class Gone:
    """Jobs and slices that were forgotten; `more`: others may follow."""

    jobs: int = 0
    slices: int = 0
    more: bool = False


class Retention(Store):
    """The jobs that may be forgotten: those that have ended, but for what is still needed. That is the newest job of
    each partition and generation, the one that each checkpoint names, and the one that built the instance served there.
    """

    @reads
    def forgettable(self, tx: Transaction, before: int) -> Gone:
        """Count what may go of jobs that ended before this time."""
        old = _old(before).subquery("old")
        of_them = select(func.count()).select_from(slices).where(slices.c.job_id.in_(select(old.c.id)))
        number = tx.connection.scalar(select(func.count()).select_from(old))
        return Gone(int(number or 0), int(tx.connection.scalar(of_them) or 0))

    @writes
    def forget(self, tx: Transaction, before: int, limit: int = LIMIT) -> Gone:
        """Forget some jobs that ended before this time, the oldest first, with parts, slices and their work: so many
        slices at most. Of a job with more of them, slices go first, and the job with the last ones. The cost does not
        depend on what is kept, but for the jobs of partitions that have not run since.
        """
        left, gone = limit, 0
        old = tx.connection.scalars(_old(before).order_by(jobs.c.created_at, jobs.c.id).limit(_JOBS)).all()
        for job_id in old:
            mine = select(jobs.c.id).where(jobs.c.id == job_id).with_for_update(skip_locked=True)
            if tx.connection.scalar(mine) is None:
                continue  # Another worker forgets it.
            some = tx.connection.scalars(select(slices.c.id).where(slices.c.job_id == job_id).limit(left)).all()
            for each in batches(some):
                tx.connection.execute(delete(slice_work).where(slice_work.c.slice_id.in_(each)))
                tx.connection.execute(delete(slices).where(slices.c.id.in_(each)))
            left -= len(some)
            if left == 0:
                return Gone(gone, limit, more=True)
            _drop(tx, job_id)
            gone += 1
        return Gone(gone, limit - left, more=len(old) == _JOBS)

    @reads
    def oldest(self, tx: Transaction, before: int) -> int:
        """The time at which the oldest of the jobs was made that have not ended before this time, else the time itself.
        What happened before is no job's doing that is not old.
        """
        young = select(jobs.c.created_at).where(or_(jobs.c.finished_at.is_(None), jobs.c.finished_at >= before))
        found = tx.connection.scalar(young.order_by(jobs.c.created_at, jobs.c.id).limit(1))
        return before if found is None else min(before, int(found))

    @reads
    def of(self, tx: Transaction, ref: PartitionRef) -> Forgotten | None:
        """The forgotten history of a partition; None if nothing was."""
        return read(tx, ref)

    @writes
    def due(self, tx: Transaction, every: int) -> bool:
        """Whether so long ago (ms), or never, a worker was told to look through instances and wants: this one is told
        to now. For that all of them are read.
        """
        row = tx.connection.execute(select(forgotten.c.at).where(forgotten.c.ref == _LOOKED).with_for_update())
        last = row.scalar_one_or_none()
        if last is not None and tx.now() - every < last <= tx.now():
            return False
        _note(tx, _LOOKED, at=tx.now(), epoch=0, target=0, known=last is not None)
        return True


#: No partition is called that.
_LOOKED: Final = ""


def read(tx: Transaction, ref: PartitionRef) -> Forgotten | None:
    row = tx.connection.execute(select(forgotten).where(forgotten.c.ref == str(ref))).one_or_none()
    return None if row is None else Forgotten(row.at, row.epoch, row.target)


def _old(before: int) -> Select[Any]:
    # A job that goes on has no end: to ask for states, too, would lead SQLite through all jobs that ever ended.
    return select(jobs.c.id).where(jobs.c.created_at < before, jobs.c.finished_at < before, ~_needed())


def _needed() -> ColumnElement[bool]:
    later = job_parts.alias("later")
    here = (later.c.ref == job_parts.c.ref, later.c.epoch > job_parts.c.epoch)
    has_later = exists().where(*here, later.c.generation == job_parts.c.generation)
    of_it = and_(checkpoints.c.ref == job_parts.c.ref, checkpoints.c.generation == job_parts.c.generation)
    built = and_(job_parts.c.fresh, checkpoints.c.instance == job_parts.c.instance)
    is_served = exists().where(of_it, or_(checkpoints.c.job_id == job_parts.c.job_id, built))
    return exists().where(job_parts.c.job_id == jobs.c.id, or_(job_parts.c.state.is_(None), ~has_later, is_served))


def _drop(tx: Transaction, job_id: str) -> None:
    ended = tx.connection.execute(select(jobs.c.finished_at).where(jobs.c.id == job_id)).scalar_one()
    parts = select(job_parts.c.ref, job_parts.c.epoch, job_parts.c.target).where(job_parts.c.job_id == job_id)
    for part in tx.connection.execute(parts.order_by(job_parts.c.ref)).all():
        known = read(tx, PartitionRef.parse(part.ref))
        _note(
            tx,
            part.ref,
            at=max(ended, known.at if known else 0),
            epoch=max(part.epoch, known.epoch if known else 0),
            target=max(part.target or 0, known.target if known else 0),
            known=known is not None,
        )
    tx.connection.execute(delete(job_workers).where(job_workers.c.job_id == job_id))
    tx.connection.execute(delete(job_parts).where(job_parts.c.job_id == job_id))
    tx.connection.execute(delete(jobs).where(jobs.c.id == job_id))


def _note(tx: Transaction, ref: str, *, at: int, epoch: int, target: int, known: bool) -> None:
    values = {"at": at, "epoch": epoch, "target": target}
    if known:
        tx.connection.execute(update(forgotten).where(forgotten.c.ref == ref).values(values))
    else:
        tx.connection.execute(insert(forgotten).values(ref=ref, **values))
