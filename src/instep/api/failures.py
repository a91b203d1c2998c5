"""`/api/failures`: documents and rows that could not be indexed, and their retry."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from instep.answers.overview import Failure
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


class RetryFailures(Body):
    """Entities, or partitions of them; of all entities if none is named."""

    entities: list[str] = Field(default=[], max_length=1_000)


@router.get("", responses=responses(404, 409))
def list_failures(
    instep: ProjectInstep, entity: Entities = None, after: After = None, limit: Limit = 100
) -> Page[Failure]:
    """Documents and rows that could not be indexed, newest first."""
    found = instep.failure_page(entity, after=location_of(FailurePlace, after), limit=limit + 1)
    return page(found, limit, _place)


@router.post("/retry", status_code=202, responses=responses(404, 409))
def retry_failures(instep: ProjectInstep, worker: ServerWorker, request: RetryFailures) -> Asked:
    """Ask for entities with all that has failed in them, changed or not."""
    found = instep.ask(request.entities, settings=JobSettings(retry_failures=True), by=BY)
    return asked(instep, found, worker)


def _place(last: Failure) -> FailurePlace:
    return FailurePlace(last.failed_at, str(last.ref), last.generation, last.document_id)
