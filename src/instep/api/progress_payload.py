"""Payload of the channel `searchIndexJobStatus` for a job. Pure."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, Final

import msgspec

from instep.answers.jobs import JobView
from instep.domain.counts import Counts
from instep.domain.jobs import SliceState

CHANNEL: Final = "searchIndexJobStatus"


def message_text(seq: int, at: int, job_id: str | None, data: dict[str, Any] | None, **more: Any) -> str:
    """A message of the channel as it is sent."""
    message = {"channel": CHANNEL, "seq": seq, "at": at, "job": job_id, "data": data, **more}
    return msgspec.json.encode(message).decode()


def status_data(job: JobView) -> dict[str, Any]:
    """How far a job is. Unknown numbers are null: how many records there are before it is planned, for one."""
    return {
        "status": str(job.state),
        "stats": {
            "jobStats": _records(job.units if job.parts else None, job.counts),
            "entityStats": _entities(job),
        },
        "rate": None if job.rate is None else round(job.rate, 2),
        "secondsLeft": None if job.left is None else round(job.left),
        "slices": {str(state): job.slices.get(state, 0) for state in SliceState},
    }


def _entities(job: JobView) -> dict[str, dict[str, int | None]]:
    """An entity's partitions together."""
    totals: defaultdict[str, int | None] = defaultdict(int)
    counts: defaultdict[str, Counts] = defaultdict(Counts)
    for part in job.parts:
        name = part.ref.entity
        before = totals[name]
        totals[name] = None if before is None or part.units is None else before + part.units
        counts[name] += part.counts
    return {name: _records(total, counts[name]) for name, total in totals.items()}


def _records(total: int | None, counts: Counts) -> dict[str, int | None]:
    return {"totalRecords": total, "successRecords": counts.read - counts.failed, "failedRecords": counts.failed}
