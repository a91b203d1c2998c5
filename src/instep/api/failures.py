"""`/api/failures`: documents and rows that could not be indexed, and their retry."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from instep.answers.overview import Failure, FailureGroup
from instep.api.dependencies import BY, ProjectInstep, ServerWorker
from instep.api.paging import After, Limit, Page, location_of, page
from instep.api.problems import responses
from instep.api.requests import Asked, Body, asked
from instep.domain.settings import JobSettings
from instep.ledger.failures import FailurePlace

router = APIRouter(prefix="/failures", tags=["failures"])

Entities = Annotated[
    list[str] | None, Query(description="Only this entity, or partition; may be repeated.", max_length=100)
]


OfJob = Annotated[str | None, Query(description="Only failures that this job met last.", max_length=100)]


class RetryFailures(Body):
    """Entities, or partitions of them; if none is named, all entities."""

    entities: list[str] = Field(default=[], max_length=1_000)


class DismissFailures(Body):
    """Documents by their URIs, in these entities or all. A `*` at the end of a URI matches any ending."""

    uris: list[str] = Field(min_length=1, max_length=1_000)
    entities: list[str] = Field(default=[], max_length=1_000)


@router.get("", responses=responses(404, 409))
def list_failures(
    instep: ProjectInstep,
    *,
    entity: Entities = None,
    job: OfJob = None,
    stage: Annotated[str | None, Query(description="Only failures at this stage.", max_length=100)] = None,
    reason: Annotated[
        str | None, Query(description="Only failures with this reason, as a group gives it.", max_length=1_000)
    ] = None,
    after: After = None,
    limit: Limit = 100,
) -> Page[Failure]:
    """Documents and rows that could not be indexed, newest first."""
    place = location_of(FailurePlace, after)
    found = instep.failure_page(entity, job=job, stage=stage, reason=reason, after=place, limit=limit + 1)
    return page(found, limit, _place)


@router.get("/groups", responses=responses(404, 409))
def list_groups(
    instep: ProjectInstep,
    *,
    entity: Entities = None,
    job: OfJob = None,
    after: Annotated[int, Query(ge=0, le=100_000, description="The `next` of the previous page.")] = 0,
    limit: Limit = 100,
) -> Page[FailureGroup]:
    """Failures, grouped by partition, stage and reason, with the number of each: the largest groups first."""
    found = instep.failure_groups(entity, job=job, offset=after, limit=limit + 1)
    return Page(items=found[:limit], next=str(after + limit) if len(found) > limit else None)


@router.post("/retry", status_code=202, responses=responses(404, 409))
def retry_failures(instep: ProjectInstep, worker: ServerWorker, request: RetryFailures) -> Asked:
    """Ask for a job that tries everything again that failed in these entities, changed or not."""
    found = instep.ask(request.entities, settings=JobSettings(retry_failures=True), by=BY)
    return asked(instep, found, worker)


@router.post("/dismiss", responses=responses(404, 409))
def dismiss_failures(instep: ProjectInstep, request: DismissFailures) -> list[Failure]:
    """Forget failures that nobody is going to mend, and return them. A document that fails again is listed again."""
    return list(instep.dismiss_failures(request.uris, request.entities or None))


def _place(last: Failure) -> FailurePlace:
    return FailurePlace(last.failed_at, str(last.ref), last.generation, last.document_id)
