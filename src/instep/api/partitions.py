"""`/api/partitions`, `/api/status` and `/api/buckets`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query

from instep.answers.buckets import Buckets
from instep.answers.instances import Instance
from instep.answers.lineage import Lineage
from instep.answers.status import Matrix, Partition
from instep.api.dependencies import ProjectInstep
from instep.api.paging import After, Limit, Page
from instep.api.problems import responses

router = APIRouter(tags=["partitions"])

Entities = Annotated[list[str] | None, Query(description="Only of this entity; may be repeated.", max_length=1_000)]


@router.get("/partitions", responses=responses(404, 409))
def list_partitions(
    instep: ProjectInstep, entity: Entities = None, after: After = None, limit: Limit = 100
) -> Page[Partition]:
    """Status of the declared partitions, by name."""
    found = instep.partition_page(entity, after=after, limit=limit + 1)
    return Page(items=found[:limit], next=str(found[limit - 1].ref) if len(found) > limit else None)


@router.get("/partitions/{ref:path}/history", responses=responses(404, 409))
def read_history(instep: ProjectInstep, ref: str, limit: Limit = 100) -> Page[Instance]:
    """Every instance of a partition, newest first."""
    return Page(items=instep.history(ref, limit=limit))


@router.get("/partitions/{ref:path}/lineage", responses=responses(404, 409))
def read_lineage(
    instep: ProjectInstep,
    ref: str,
    at: Annotated[
        int | None, Query(ge=0, le=10**13, description="As it was known at this time (ms since 1970).")
    ] = None,
) -> Lineage:
    """Inputs of the canonical instance of a partition, and the instances made from it. Name an older instance by
    its UUID.
    """
    when = None if at is None else datetime.fromtimestamp(at / 1000, UTC)
    return instep.lineage(ref, at=when)


@router.get("/status/matrix", responses=responses(404, 409))
def read_matrix(
    instep: ProjectInstep,
    namespace: Annotated[list[str] | None, Query(description="Only this namespace; may be repeated.")] = None,
    entity: Annotated[list[str] | None, Query(description="Only this entity; may be repeated.")] = None,
) -> Matrix:
    """States of the entities that are indexed by namespaces, in each namespace."""
    return instep.matrix(namespace or (), entity)


@router.get("/buckets/{entity}", responses=responses(404, 409))
def read_buckets(instep: ProjectInstep, entity: str) -> Page[Buckets]:
    """Content of each bucket of an entity of documents, and the latency of its changes."""
    return Page(items=instep.buckets([entity]))
