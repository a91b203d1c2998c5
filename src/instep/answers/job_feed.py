"""Changes in the jobs of a ledger since the last poll, for displays of running jobs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from instep.answers import jobs
from instep.domain.jobs import Job, JobState
from instep.ledger.jobs import JobMark
from instep.ledger.ledger import Ledger

#: Of how many jobs, the newest and the newest that have not ended, changes are seen.
NEWEST: Final = 50

_RUNS: Final = frozenset({JobState.RUNNING, JobState.STOPPING})


@dataclass(frozen=True, slots=True)
class Look:
    """Result of a poll: jobs as they are now, the changed ones first, and ids of jobs that were forgotten because there
    was nothing to do.
    """

    seen: tuple[jobs.Job, ...]
    gone: tuple[str, ...]
    at: int


class JobWatch:
    """Polls the jobs of a ledger, and keeps it open between polls. Polls may come from any thread.

    Statistics of a job are a sum over all its slices: they are read when the job has changed, and with `progress` while
    it runs. Otherwise a poll costs one small statement.
    """

    def __init__(self, open_ledger: Callable[[], Ledger], tables: Collection[str] = ()) -> None:
        """`tables` are the entities that are indexed from tables."""
        self._open = open_ledger
        self._tables = tables
        self._ledger: Ledger | None = None
        self._marks: Sequence[JobMark] = ()
        self._lock = threading.Lock()

    def look(self, *, progress: bool) -> Look:
        """Jobs that have changed since the last poll; with `progress`, also those that run."""
        with self._lock:
            ledger = self._opened()
            marks = ledger.jobs.marks(NEWEST)
            found = {job_id: ledger.jobs.get(job_id) for job_id in to_read(self._marks, marks, progress=progress)}
            now = ledger.now()
            # Not before they were read: a look that fails is made up for by the next.
            self._marks = marks
            if progress and not marks:
                # A ledger that is not there yet is an empty one in memory: next time it may be there.
                self._closed()
        return Look(
            seen=tuple(self._view(ledger, job, now) for job in found.values() if job),
            gone=tuple(job_id for job_id, job in found.items() if job is None),
            at=now,
        )

    def one(self, job_id: str) -> jobs.Job | None:
        """One job, however old."""
        with self._lock:
            ledger = self._opened()
        job, now = ledger.jobs.get(job_id), ledger.now()
        return self._view(ledger, job, now) if job else None

    def close(self) -> None:
        """Close the ledger. The next poll opens it again, and goes on from the last one."""
        with self._lock:
            self._closed()

    def _view(self, ledger: Ledger, job: Job, now: int) -> jobs.Job:
        return jobs.job_answer(job, (), now, self._tables, ledger.spending.of_jobs([job.id]).get(job.id))

    def _opened(self) -> Ledger:
        if self._ledger is None:
            self._ledger = self._open()
        return self._ledger

    def _closed(self) -> None:
        if self._ledger is not None:
            self._ledger.close()
            self._ledger = None


def to_read(before: Sequence[JobMark], marks: Sequence[JobMark], *, progress: bool) -> list[str]:
    """The jobs to read, by their marks at the last poll and now, both newest first.

    At the first poll those that are under way, or else the newest: what ended long ago is no news.
    """
    if not before:
        return [mark.id for mark in marks if not mark.state.ended] or [mark.id for mark in marks[:1]]
    known = {mark.id: mark for mark in before}
    now = {mark.id for mark in marks}
    left = [mark.id for mark in before if mark.id not in now and not mark.state.ended]
    running = [mark.id for mark in marks if progress and mark.state in _RUNS]
    return list(dict.fromkeys([*_changed(known, marks), *left, *running]))


def _changed(known: Mapping[str, JobMark], marks: Sequence[JobMark]) -> list[str]:
    """The ids of jobs whose marks changed. A job that is unknown, older than known ones and has ended is only seen
    because a newer one was forgotten.
    """
    found, among_known = [], False
    for mark in marks:
        before = known.get(mark.id)
        among_known = among_known or before is not None
        if mark != before and (before is not None or not among_known or not mark.state.ended):
            found.append(mark.id)
    return found
