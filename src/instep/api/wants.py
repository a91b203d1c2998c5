"""`/api/wants`: list, make and cancel wants."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from instep.answers.wants import Want
from instep.api.dependencies import BY, ProjectInstep
from instep.api.paging import After, Limit, Page
from instep.api.problems import responses
from instep.api.requests import WHOLE, Body

router = APIRouter(prefix="/wants", tags=["wants"])


_Duration = Annotated[int, Field(ge=0, le=10**13), WHOLE]
#: Up to the end of the year 9999.
_Moment = Annotated[int, Field(ge=0, lt=253_402_300_800_000), WHOLE]


class NewWant(Body):
    """Partitions that are wanted (`Document`, `MergeRequest@42/9970`): complete up to a time (ms since 1970), not older
    than so many ms, or of any age.
    """

    refs: list[str] = Field(min_length=1, max_length=1_000)
    generation: str | None = None
    fresh_within: _Duration | None = None
    as_of: _Moment | None = None


@router.get("", responses=responses(404, 409))
def list_wants(
    instep: ProjectInstep,
    ref: Annotated[str | None, Query(description="Only on this partition.", max_length=400)] = None,
    *,
    ended: Annotated[bool, Query(description="List ended wants, too.")] = False,
    after: After = None,
    limit: Limit = 100,
) -> Page[Want]:
    """Open wants, newest first; with `ended`, all."""
    found = instep.wants(ref, ended=ended, after=after, limit=limit + 1)
    return Page(items=found[:limit], next=found[limit - 1].id if len(found) > limit else None)


@router.post("", status_code=202, responses=responses(404, 409))
def make_want(instep: ProjectInstep, request: NewWant) -> Want:
    """Ask for partitions. The next run or worker builds those that are missing or too old."""
    return instep.want(
        request.refs,
        fresh_within=None if request.fresh_within is None else timedelta(milliseconds=request.fresh_within),
        as_of=None if request.as_of is None else datetime.fromtimestamp(request.as_of / 1000, UTC),
        generation=request.generation,
        by=BY,
    )


@router.post("/{want}/cancel", responses=responses(404, 409))
def cancel_want(instep: ProjectInstep, want: str) -> Want:
    """Cancel a want. The beginning of its id is enough, at least 4 characters."""
    return instep.cancel_want(want, by=BY)
