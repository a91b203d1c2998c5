"""`/api/partitions`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query

from instep.api.models.base import Limit, Page
from instep.api.models.instances import Instance, Lineage, Partition
from instep.api.paging import After
from instep.api.problems import responses
from instep.api.server import Ours
from instep.entities.instances import instance_dict

router = APIRouter(prefix="/partitions", tags=["partitions"])

Entities = Annotated[list[str] | None, Query(description="Only of this entity; may be repeated.", max_length=1_000)]


@router.get("", responses=responses(404, 409))
def list_partitions(instep: Ours, entity: Entities = None, after: After = None, limit: Limit = 100) -> Page[Partition]:
    """How those are that the project declares, by name."""
    found = instep.partition_page(entity, after=after, limit=limit + 1)
    items = [Partition.model_validate(each.as_dict()) for each in found[:limit]]
    return Page(items=items, next=items[-1].ref if len(found) > limit else None)


@router.get("/{ref:path}/history", responses=responses(404, 409))
def read_history(instep: Ours, ref: str, limit: Limit = 100) -> Page[Instance]:
    """Every instance of a partition, newest first."""
    return Page(items=[Instance.model_validate(instance_dict(each)) for each in instep.history(ref, limit=limit)])


@router.get("/{ref:path}/lineage", responses=responses(404, 409))
def read_lineage(
    instep: Ours,
    ref: str,
    at: Annotated[int | None, Query(ge=0, le=10**13, description="As it was known at this time, in ms.")] = None,
) -> Lineage:
    """What the canonical instance of a partition was made from, and what was made from it. An older instance is named
    by its UUID.
    """
    when = None if at is None else datetime.fromtimestamp(at / 1000, UTC)
    return Lineage.model_validate(instep.lineage(ref, at=when).as_dict())
