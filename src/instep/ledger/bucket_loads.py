"""Loads of buckets: the documents of an instance and the backlog of slices, by bucket."""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import and_, case, func, literal_column, or_, select

from instep.domain.buckets import BucketLoad
from instep.domain.jobs import SliceState
from instep.domain.refs import PartitionRef
from instep.ledger.tables import documents, job_parts, jobs, slices
from instep.ledger.transaction import Transaction

_DURABLE: Final = slices.c.state == literal_column(f"'{SliceState.COMPLETED}'")
_OPEN: Final = and_(
    job_parts.c.state.is_(None), slices.c.state.in_([SliceState.PENDING.value, SliceState.PROCESSING.value])
)


def read(tx: Transaction, ref: PartitionRef, generation: str, instance: str) -> list[BucketLoad]:
    """See `Documents.bucket_loads`."""
    found: dict[int, BucketLoad] = {}
    held = (
        select(documents.c.bucket, func.count(), func.sum(documents.c.chunks), func.sum(documents.c.size))
        .where(documents.c.instance == instance)
        .group_by(documents.c.bucket)
    )
    for bucket, *sums in tx.connection.execute(held):
        found[bucket] = BucketLoad(bucket, *map(int, sums))
    for row in tx.connection.execute(_kept_up(ref, generation, instance)):
        before = found.get(row.bucket, BucketLoad(row.bucket))
        found[row.bucket] = before._replace(
            slices=int(row.durable or 0),
            latency=_mean(row.latency, row.durable),
            longest=_whole(row.longest),
            working=_mean(row.working, row.durable),
            pending=int(row.pending or 0),
            pending_since=_whole(row.pending_since),
        )
    return [found[bucket] for bucket in sorted(found)]


def _kept_up(ref: PartitionRef, generation: str, instance: str) -> Any:
    """The slices of jobs on the instance, and of jobs that are open. They are planned as soon as they are created."""
    latency = slices.c.finished_at - jobs.c.created_at
    return (
        select(
            slices.c.bucket,
            func.sum(case((_DURABLE, 1))).label("durable"),
            func.sum(case((_DURABLE, latency))).label("latency"),
            func.max(case((_DURABLE, latency))).label("longest"),
            func.sum(case((_DURABLE, slices.c.finished_at - slices.c.claimed_at))).label("working"),
            func.sum(case((_OPEN, slices.c.units))).label("pending"),
            func.min(case((_OPEN, jobs.c.created_at))).label("pending_since"),
        )
        .join(job_parts, and_(job_parts.c.job_id == slices.c.job_id, job_parts.c.ref == slices.c.ref))
        .join(jobs, jobs.c.id == slices.c.job_id)
        .where(
            job_parts.c.ref == str(ref),
            job_parts.c.generation == generation,
            or_(job_parts.c.instance == instance, job_parts.c.state.is_(None)),
        )
        .group_by(slices.c.bucket)
    )


def _mean(total: Any, number: Any) -> int | None:
    """A sum as an integer: databases sum as integers or decimals."""
    return round(int(total) / int(number)) if number else None


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)
