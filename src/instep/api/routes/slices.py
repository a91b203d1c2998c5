"""`/api/jobs/{job}/slices`."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query

from instep.api.models.base import Limit, Page
from instep.api.models.slices import Grid, GridPart, Slice
from instep.api.paging import After, location_of, page
from instep.api.problems import responses
from instep.api.server import Ours
from instep.domain.jobs import SliceState
from instep.ledger.paging import SlicePlace, SliceView

router = APIRouter(prefix="/jobs/{job}/slices", tags=["jobs"])

EntityOfJob = Annotated[str | None, Query(description="An entity of the job, or one partition of it.", max_length=400)]

_LETTERS: Final = {
    SliceState.PENDING: ".",
    SliceState.PROCESSING: "P",
    SliceState.COMPLETED: "C",
    SliceState.FAILED: "F",
    SliceState.CANCELLED: "X",
}


@router.get("", responses=responses(404, 409))
def list_slices(
    instep: Ours,
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
    place = _place(entity, after)
    found = instep.slice_page(job, entity, state=state, after=place, limit=limit + 1)
    return page([_slice(each) for each in found], limit, lambda at: found[at].place)


@router.get("/grid", responses=responses(404, 409))
def read_grid(instep: Ours, job: str) -> Grid:
    """The states of all slices, however many they are."""
    parts = [
        GridPart(ref=str(ref), generation=generation, states="".join(_LETTERS[each] for each in states))
        for (ref, generation), states in instep.slice_states(job).items()
    ]
    return Grid(states={letter: state for state, letter in _LETTERS.items()}, parts=parts)


def _place(entity: str | None, after: str | None) -> SlicePlace | None:
    if entity and after and after.isascii() and after.isdecimal() and len(after) < 10:
        return SlicePlace(entity, int(after), "~")  # Behind all ids.
    return location_of(SlicePlace, after)


def _slice(each: SliceView) -> Slice:
    return Slice(
        ref=str(each.ref),
        index=each.number,
        id=each.id,
        bucket=each.bucket,
        state=each.state,
        units=each.units,
        work=each.work,
        attempts=each.attempts,
        worker=each.worker_id,
        claimed_at=each.claimed_at,
        finished_at=each.finished_at,
        error=each.error,
    )
