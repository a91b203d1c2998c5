"""All that goes on in a project at one moment: jobs, workers, and what failed last."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from instep.answers.jobs import JobView, WorkerView, job_view, worker_view
from instep.domain.clock import TIMING, Timing
from instep.ledger.ledger import FailureRecord, JobMark, Ledger

#: How many jobs are shown, the newest and the newest that have not ended, and how many failures.
JOBS: Final = 8
FAILURES: Final = 5


@dataclass(frozen=True, slots=True)
class Overview:
    """Jobs newest first, workers oldest first, failures newest first; `marks` are those of the jobs."""

    jobs: tuple[JobView, ...]
    workers: tuple[WorkerView, ...]
    failures: tuple[FailureRecord, ...]
    marks: Mapping[str, JobMark]
    seen_at: int

    def as_dict(self) -> dict[str, Any]:
        return {
            "jobs": [each.as_dict() for each in self.jobs],
            "workers": [each.as_dict() for each in self.workers],
            "failures": [{**each._asdict(), "ref": str(each.ref)} for each in self.failures],
            "seen_at": self.seen_at,
        }


def overview(
    ledger: Ledger, before: Overview | None = None, *, timing: Timing = TIMING, tables: Collection[str] = ()
) -> Overview:
    """How things stand. What `before` shows of jobs that had ended, and of failures while none was added, is not read
    again: it costs most.
    """
    marks = {mark.id: mark for mark in ledger.job_marks(JOBS)}
    known = {job.id: job for job in before.jobs if before.marks[job.id] == marks.get(job.id)} if before else {}
    now = ledger.now()
    workers = tuple(worker_view(each, now, timing) for each in ledger.workers())
    jobs = []
    for mark in marks.values():
        if mark.state.ended and mark.id in known:
            jobs.append(replace(known[mark.id], seen_at=now))
        elif job := ledger.job(mark.id):
            jobs.append(job_view(job, workers, now, tables))
    same = before is not None and _failed(before.jobs) == _failed(jobs)
    failures = before.failures if before and same else tuple(ledger.failures(limit=FAILURES))
    return Overview(tuple(jobs), workers, failures, marks, now)


def _failed(jobs: Collection[JobView]) -> list[tuple[str, str, int]]:
    """What failures come and go with."""
    return [(job.id, job.state, job.counts.failed) for job in jobs]
