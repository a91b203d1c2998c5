"""`/api/search`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from instep.api.models.base import Page
from instep.api.models.search import Hit, Mode
from instep.api.problems import responses
from instep.api.server import Ours

router = APIRouter(tags=["search"])


@router.get("/search", responses=responses(404, 409))
def search(
    instep: Ours,
    q: Annotated[str, Query(description="What to look for.", min_length=1, max_length=2_000)],
    entity: Annotated[list[str] | None, Query(description="Only in this entity; may be repeated.")] = None,
    mode: Annotated[Mode, Query(description="By text, by vector, or both, fused by rank.")] = "hybrid",
    k: Annotated[int, Query(ge=1, le=100, description="Hits at most.")] = 10,
) -> Page[Hit]:
    """Documents that are served, best first."""
    found = instep.search(q, mode=mode, limit=k, entities=entity)
    return Page(items=[Hit.model_validate(each.as_dict()) for each in found])
