"""`/api/jobs`."""

from __future__ import annotations

from fastapi import APIRouter

from instep.api.models.base import Limit, Page
from instep.api.models.jobs import Job
from instep.api.problems import responses
from instep.api.server import Ours

router = APIRouter(prefix="/jobs", tags=["jobs"])


@router.get("")
def list_jobs(instep: Ours, limit: Limit = 20) -> Page[Job]:
    """What ran and runs, on all servers of the ledger, newest first."""
    return Page(items=[Job.model_validate(each.as_dict()) for each in instep.jobs(limit=limit)])


@router.get("/{job}", responses=responses(404))
def read_job(instep: Ours, job: str) -> Job:
    """One job. The beginning of its id is enough, at least 4 characters."""
    return Job.model_validate(instep.job(job).as_dict())
