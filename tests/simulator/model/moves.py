"""How a job gets from state to state."""

from __future__ import annotations

from instep.domain.jobs import JOB_TRANSITIONS, JobState, by_people
from tests.simulator.model import leases, slices, workers
from tests.simulator.model.tables import JobRow, Tables


def request_stop(tables: Tables, job: JobRow, reason: str | None) -> None:
    if JobState.STOPPING in JOB_TRANSITIONS[job.state]:
        move(tables, job, JobState.STOPPING)
        job.stopping_at, job.error = job.updated_at, reason
    elif job.state in (JobState.STOPPING, JobState.STOPPED) and by_people(reason) and not by_people(job.error):
        job.updated_at, job.error = tables.now(), reason
    if job.state is JobState.STOPPING and not job.processing:
        stop(tables, job)


def stop(tables: Tables, job: JobRow) -> None:
    """STOPPING → STOPPED; what is still in work can be claimed again."""
    for part in job.parts.values():
        for row in list(part.processing.values()):
            slices.to_pending(tables, row)
    end(tables, job, JobState.STOPPED, error=job.error)


def move(tables: Tables, job: JobRow, state: JobState) -> None:
    job.state, job.updated_at = state, tables.now()


def end(tables: Tables, job: JobRow, state: JobState, *, error: str | None) -> None:
    move(tables, job, state)
    job.finished_at, job.error = job.updated_at, error
    leases.free_all_of(tables, job.id)
    for worker_id in list(job.workers):
        workers.leave(tables, job, worker_id)
