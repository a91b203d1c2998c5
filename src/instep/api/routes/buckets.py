"""`/api/buckets`."""

from __future__ import annotations

from fastapi import APIRouter

from instep.api.models.base import Page
from instep.api.models.buckets import Buckets
from instep.api.problems import responses
from instep.api.server import Ours

router = APIRouter(prefix="/buckets", tags=["partitions"])


@router.get("/{entity}", responses=responses(404, 409))
def read_buckets(instep: Ours, entity: str) -> Page[Buckets]:
    """What each bucket of an entity of documents holds, and how it keeps up."""
    return Page(items=[Buckets.model_validate(each.as_dict()) for each in instep.buckets([entity])])
