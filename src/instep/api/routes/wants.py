"""`/api/wants`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query

from instep.api.models.base import Limit, Page
from instep.api.models.wants import NewWant, Want
from instep.api.paging import After
from instep.api.problems import responses
from instep.api.server import BY, Ours

router = APIRouter(prefix="/wants", tags=["wants"])


@router.get("", responses=responses(404, 409))
def list_wants(
    instep: Ours,
    ref: Annotated[str | None, Query(description="Only on this partition.", max_length=400)] = None,
    *,
    ended: Annotated[bool, Query(description="Those that have ended too.")] = False,
    after: After = None,
    limit: Limit = 100,
) -> Page[Want]:
    """What is waited for, newest first."""
    found = instep.wants(ref, ended=ended, after=after, limit=limit + 1)
    items = [Want.model_validate(each.as_dict()) for each in found[:limit]]
    return Page(items=items, next=items[-1].id if len(found) > limit else None)


@router.post("", status_code=202, responses=responses(404, 409))
def make_want(instep: Ours, request: NewWant) -> Want:
    """Ask for partitions. The next run or worker builds what is not there."""
    found = instep.want(
        request.refs,
        fresh_within=None if request.fresh_within is None else timedelta(milliseconds=request.fresh_within),
        as_of=None if request.as_of is None else datetime.fromtimestamp(request.as_of / 1000, UTC),
        generation=request.generation,
        by=BY,
    )
    return Want.model_validate(found.as_dict())


@router.post("/{want}/cancel", responses=responses(404, 409))
def cancel_want(instep: Ours, want: str) -> Want:
    """Wait for it no more. The beginning of its id is enough, at least 4 characters."""
    return Want.model_validate(instep.cancel_want(want, by=BY).as_dict())
