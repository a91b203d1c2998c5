"""`/api/jobs`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from instep.answers.job_statistics import job_statistics
from instep.api.job_requests import asked, asked_again, names
from instep.api.models.base import Limit, Page
from instep.api.models.jobs import Job
from instep.api.models.requests import Asked, JobRequest
from instep.api.models.statistics import Statistics
from instep.api.paging import After, location_of, page
from instep.api.problems import responses
from instep.api.server import BY, Ours, Own
from instep.domain.jobs import JobState
from instep.domain.settings import JobSettings
from instep.ledger.paging import JobPlace

router = APIRouter(prefix="/jobs", tags=["jobs"])

States = Annotated[list[JobState] | None, Query(description="Only jobs in this state; may be repeated.", max_length=8)]


@router.get("", responses=responses(404))
def list_jobs(instep: Ours, state: States = None, after: After = None, limit: Limit = 20) -> Page[Job]:
    """What ran and runs, on all servers of the ledger, newest first."""
    found = instep.job_page(state or (), after=location_of(JobPlace, after), limit=limit + 1)
    items = [Job.model_validate(each.as_dict()) for each in found]
    return page(items, limit, lambda at: JobPlace(found[at].created_at, found[at].id))


@router.post("", status_code=202, responses=responses(404, 409))
def ask_for_job(instep: Ours, worker: Own, request: JobRequest) -> Asked:
    """Ask for entities as they are now in their sources. A worker makes and does the job."""
    settings = JobSettings(
        request.batchSize, request.payLoadSize, request.maxConcurrentRequests, allow_empty=request.allowEmpty
    )
    found = instep.ask(request.entities, rebuild=request.recreateIndex, settings=settings, by=BY)
    return asked(instep, found, None if request.useDistributedIndexing else worker, threads=request.consumerThreads)


@router.get("/{job}", responses=responses(404, 409))
def read_job(instep: Ours, job: str) -> Job:
    """One job. The beginning of its id is enough, at least 4 characters."""
    return Job.model_validate(instep.job(job).as_dict())


@router.get("/{job}/statistics", responses=responses(404, 409))
def read_statistics(instep: Ours, job: str) -> Statistics:
    """Its numbers for each entity, and together."""
    return Statistics.model_validate(job_statistics(instep.job(job)))


@router.post("/{job}/stop", status_code=202, responses=responses(404, 409))
def stop_job(instep: Ours, job: str) -> Job:
    """What is in work may end, the rest stays for a resume. A job that has ended stays as it is."""
    return Job.model_validate(instep.stop_job(job, reason="stopped by the API").as_dict())


@router.post("/{job}/resume", status_code=202, responses=responses(404, 409))
def resume_job(instep: Ours, worker: Own, job: str) -> Job:
    """A stopped job runs again: by any worker, or by one that this server starts."""
    found = instep.resume_job(job)
    worker.start(names(instep, found.refs), threads=None)
    return Job.model_validate(found.as_dict())


@router.post("/{job}/retry", status_code=202, responses=responses(404, 409))
def retry_job(instep: Ours, worker: Own, job: str) -> Asked:
    """Ask again for the entities in which something of it failed, with all that failed in them."""
    return asked_again(instep, instep.ask_again(job, by=BY), worker)
