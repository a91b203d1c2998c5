"""`/api/jobs`: jobs, their slices and statistics; ask, stop, resume, retry."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from instep.answers.job_log import LogLine
from instep.answers.job_statistics import Statistics, job_statistics
from instep.answers.jobs import Job
from instep.answers.slices import Grid, Slice
from instep.api.dependencies import BY, ProjectInstep, ServerWorker
from instep.api.paging import After, Limit, Page, location_of, page
from instep.api.problems import responses
from instep.api.requests import Asked, JobRequest, asked, asked_again, names
from instep.domain.jobs import JobState, SliceState
from instep.domain.settings import JobSettings
from instep.ledger.jobs import JobPlace
from instep.ledger.slices import SlicePlace

router = APIRouter(tags=["jobs"])

States = Annotated[list[JobState] | None, Query(description="Only jobs in this state; may be repeated.", max_length=8)]
Entities = Annotated[
    list[str] | None, Query(description="Only jobs on this entity, or partition; may be repeated.", max_length=100)
]
EntityOfJob = Annotated[str | None, Query(description="An entity of the job, or one partition of it.", max_length=400)]


@router.get("/jobs", responses=responses(404))
def list_jobs(
    instep: ProjectInstep, *, state: States = None, entity: Entities = None, after: After = None, limit: Limit = 20
) -> Page[Job]:
    """Jobs on all servers of the ledger, newest first."""
    found = instep.job_page(state or (), entities=entity, after=location_of(JobPlace, after), limit=limit + 1)
    return page(found, limit, _place_of_job)


@router.post("/jobs", status_code=202, responses=responses(404, 409))
def ask_for_job(instep: ProjectInstep, worker: ServerWorker, request: JobRequest) -> Asked:
    """Ask for a job that brings entities in step with their sources as they are now. A worker plans and does it."""
    settings = JobSettings(
        request.sliceRows,
        request.payLoadSize,
        request.maxConcurrentRequests,
        request.batchSize,
        allow_empty=request.allowEmpty,
    )
    found = instep.ask(request.entities, rebuild=request.recreateIndex, settings=settings, by=BY)
    return asked(instep, found, None if request.useDistributedIndexing else worker, threads=request.consumerThreads)


@router.get("/jobs/{job}", responses=responses(404, 409))
def read_job(instep: ProjectInstep, job: str) -> Job:
    """One job. The beginning of its id is enough, at least 4 characters."""
    return instep.job(job)


@router.get("/jobs/{job}/statistics", responses=responses(404, 409))
def read_statistics(instep: ProjectInstep, job: str) -> Statistics:
    """Numbers of a job for each entity, and together."""
    return job_statistics(instep.job(job))


@router.post("/jobs/{job}/stop", status_code=202, responses=responses(404, 409))
def stop_job(instep: ProjectInstep, job: str) -> Job:
    """Stop a job: slices in work may end, the rest waits for a resume. A job that has ended stays as it is."""
    return instep.stop_job(job, reason="stopped by the API")


@router.post("/jobs/{job}/resume", status_code=202, responses=responses(404, 409))
def resume_job(instep: ProjectInstep, worker: ServerWorker, job: str) -> Job:
    """Resume a stopped job: any worker goes on with it, or one that this server starts."""
    found = instep.resume_job(job)
    worker.start(names(instep, found.refs), threads=None)
    return found


@router.post("/jobs/{job}/retry", status_code=202, responses=responses(404, 409))
def retry_job(instep: ProjectInstep, worker: ServerWorker, job: str) -> Asked:
    """Ask for a new job for the entities in which something of this one failed. It tries all that failed in them."""
    return asked_again(instep, instep.ask_again(job, by=BY), worker)


@router.get("/jobs/{job}/log", responses=responses(404, 409))
def read_log(
    instep: ProjectInstep,
    job: str,
    before: Annotated[int | None, Query(ge=1, le=2**31 - 1, description="Only lines with a smaller number.")] = None,
    limit: Limit = 100,
) -> Page[LogLine]:
    """Messages of the workers of a job, and its phases, newest first. Give `next` as `before` for the next page."""
    found = instep.job_log(job, before=before, limit=limit + 1)
    return Page(items=found[:limit], next=str(found[limit - 1].number) if len(found) > limit else None)


@router.get("/jobs/{job}/slices", responses=responses(404, 409))
def list_slices(
    instep: ProjectInstep,
    job: str,
    *,
    entity: EntityOfJob = None,
    state: SliceState | None = None,
    after: After = None,
    limit: Limit = 100,
) -> Page[Slice]:
    """Slices of a job, by partition and number. `after` may also be a number: those behind it follow, if `entity` is
    one partition.
    """
    place = _location(entity, after)
    found = instep.slice_page(job, entity, state=state, after=place, limit=limit + 1)
    return page(found, limit, _place_of_slice)


@router.get("/jobs/{job}/slices/grid", responses=responses(404, 409))
def read_grid(instep: ProjectInstep, job: str) -> Grid:
    """The states of all slices, however many they are."""
    return instep.slice_grid(job)


def _location(entity: str | None, after: str | None) -> SlicePlace | None:
    if entity and after and after.isascii() and after.isdecimal() and len(after) < 10:
        return SlicePlace(entity, int(after), "~")  # Behind all ids.
    return location_of(SlicePlace, after)


def _place_of_job(job: Job) -> JobPlace:
    return JobPlace(job.created_at, job.id)


def _place_of_slice(each: Slice) -> SlicePlace:
    return each.place
