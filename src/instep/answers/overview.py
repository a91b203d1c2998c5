"""The overview of a project at one moment: jobs, workers, and the last failures."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from instep.answers.answer import HIDDEN, Answer, Ref
from instep.answers.jobs import Job, Worker, job_answer, worker_answer
from instep.domain.clock import TIMING, Timing
from instep.ledger.jobs import JobMark
from instep.ledger.ledger import Ledger


class Failure(Answer):
    """A document, or a row by its key, at what stage it failed, and why."""

    ref: Ref
    document_id: str
    uri: str
    version: str
    stage: str
    reason: str
    attempts: int
    job_id: str
    failed_at: int
    generation: str


class FailureGroup(Answer):
    """The number of documents or rows of a partition that failed at one stage for one reason; the newest at
    `failed_at`.
    """

    ref: Ref
    generation: str
    stage: str
    reason: str
    number: int
    failed_at: int


#: How many jobs are shown, the newest and the newest that have not ended, and how many failures.
JOBS: Final = 8
FAILURES: Final = 5


class Overview(Answer):
    """Jobs newest first, workers oldest first, failures newest first; `marks` are those of the jobs."""

    jobs: tuple[Job, ...]
    workers: tuple[Worker, ...]
    failures: tuple[Failure, ...]
    marks: Mapping[str, Any] = HIDDEN
    seen_at: int


def overview(
    ledger: Ledger, before: Overview | None = None, *, timing: Timing = TIMING, tables: Collection[str] = ()
) -> Overview:
    """The state of the project now. Jobs that had ended in `before`, and failures while none was added, are not read
    again: reading them costs most.
    """
    marks: dict[str, JobMark] = {mark.id: mark for mark in ledger.jobs.marks(JOBS)}
    known = {job.id: job for job in before.jobs if before.marks[job.id] == marks.get(job.id)} if before else {}
    now = ledger.now()
    workers = tuple(worker_answer(each, now, timing) for each in ledger.workers.all())
    jobs: list[Job] = []
    for mark in marks.values():
        if mark.state.ended and mark.id in known:
            jobs.append(known[mark.id].model_copy(update={"seen_at": now}))
        elif job := ledger.jobs.get(mark.id):
            jobs.append(job_answer(job, workers, now, tables, ledger.spending.of_jobs([job.id]).get(job.id)))
    if before is not None and _failed(before.jobs) == _failed(jobs):
        failures = before.failures
    else:
        failures = tuple(map(Failure.model_validate, ledger.failures.newest(limit=FAILURES)))
    return Overview(jobs=tuple(jobs), workers=workers, failures=failures, marks=marks, seen_at=now)


def _failed(jobs: Collection[Job]) -> list[tuple[str, str, int]]:
    """While this is the same, so are the failures."""
    return [(job.id, job.state, job.counts.failed) for job in jobs]
