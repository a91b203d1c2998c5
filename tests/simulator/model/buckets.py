"""What each bucket of a partition holds, and how it keeps up."""

from __future__ import annotations

from collections import defaultdict

from instep.domain.buckets import BucketLoad
from instep.domain.jobs import SliceState
from instep.domain.refs import PartitionRef
from tests.simulator.model.tables import SliceRow, Tables


def loads(tables: Tables, ref: PartitionRef, generation: str, instance: str) -> list[BucketLoad]:
    found: dict[int, BucketLoad] = {}
    for entry in tables.documents.get(instance, {}).values():
        before = found.get(entry.bucket, BucketLoad(entry.bucket))
        found[entry.bucket] = before._replace(
            documents=before.documents + 1, rows=before.rows + entry.chunks, bytes=before.bytes + entry.size
        )
    by_bucket = defaultdict[int, list[SliceRow]](list)
    for row in tables.slices.values():
        part = tables.part_of(row)
        if row.ref == ref and part.part.generation == generation and (part.part.instance == instance or not part.state):
            by_bucket[row.plan.bucket].append(row)
    for bucket, rows in by_bucket.items():
        found[bucket] = _kept_up(tables, found.get(bucket, BucketLoad(bucket)), rows)
    return [found[bucket] for bucket in sorted(found)]


def _kept_up(tables: Tables, load: BucketLoad, rows: list[SliceRow]) -> BucketLoad:
    durable = [row for row in rows if row.state is SliceState.COMPLETED]
    open_ = [
        row
        for row in rows
        if row.state in (SliceState.PENDING, SliceState.PROCESSING) and tables.part_of(row).state is None
    ]
    latencies = [row.finished_at - tables.jobs[row.job_id].created_at for row in durable]
    working = [row.finished_at - row.claimed_at for row in durable]
    return load._replace(
        slices=len(durable),
        latency=round(sum(latencies) / len(durable)) if durable else None,
        longest=max(latencies, default=None),
        working=round(sum(working) / len(durable)) if durable else None,
        pending=sum(row.plan.units for row in open_),
        pending_since=min((tables.jobs[row.job_id].created_at for row in open_), default=None),
    )
