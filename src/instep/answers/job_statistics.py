"""Numbers of a job for each of its entities, and together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from instep.answers.answer import Answer
from instep.answers.jobs import Job, Part, Slices
from instep.domain.jobs import JobState, SliceState
from instep.domain.refs import own_name
from instep.domain.speed import NOTHING_LATELY, seconds_left


class Numbers(Answer):
    """Counts of documents or rows. `total` is the number planned, null until they are counted; `read` is the sum of
    written, skipped, deleted and failed. `per_second` and `seconds_left` are of the last five minutes; they are null
    unless the job runs and something was done in this time.
    """

    total: int | None
    read: int
    written: int
    skipped: int
    deleted: int
    failed: int
    slices: Slices
    per_second: float | None
    seconds_left: float | None


class Statistics(Answer):
    """`entities` are by name; an entity's namespaces are summed up."""

    id: str
    state: JobState
    totals: Numbers
    entities: dict[str, Numbers]
    duration_seconds: float | None
    seen_at: int


def job_statistics(job: Job) -> Statistics:
    """Namespaces, and targets, of an entity are summed up."""
    entities: dict[str, list[Part]] = {}
    for part in job.parts:
        entities.setdefault(own_name(part.ref.entity), []).append(part)
    return Statistics(
        id=job.id,
        state=job.state,
        totals=_numbers(job.parts, job.seen_at),
        entities={name: _numbers(parts, job.seen_at) for name, parts in entities.items()},
        duration_seconds=job.duration_seconds,
        seen_at=job.seen_at,
    )


def _numbers(parts: Sequence[Part], now: int) -> Numbers:
    known = [each.units for each in parts if each.units is not None]
    total = sum(known) if len(known) == len(parts) else None
    slices = Counter[SliceState]()
    for part in parts:
        slices.update({state: part.slices.in_state(state) for state in SliceState})
    rate = sum((each.lately for each in parts), NOTHING_LATELY).rate(now)
    read = sum(each.counts.read for each in parts)
    return Numbers(
        total=total,
        read=read,
        written=sum(each.counts.written for each in parts),
        skipped=sum(each.counts.skipped for each in parts),
        deleted=sum(each.counts.deleted for each in parts),
        failed=sum(each.counts.failed for each in parts),
        slices=Slices.of(slices),
        per_second=rate,
        seconds_left=seconds_left(total, read, rate),
    )
