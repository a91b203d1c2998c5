"""`/api/status`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from instep.answers.matrix import matrix_dict
from instep.api.models.status import Matrix
from instep.api.problems import responses
from instep.api.server import Ours

router = APIRouter(prefix="/status", tags=["partitions"])


@router.get("/matrix", responses=responses(404, 409))
def read_matrix(
    instep: Ours,
    namespace: Annotated[list[str] | None, Query(description="Only this namespace; may be repeated.")] = None,
    entity: Annotated[list[str] | None, Query(description="Only this entity; may be repeated.")] = None,
) -> Matrix:
    """How far namespaced entities are in each namespace."""
    return Matrix.model_validate(matrix_dict(instep.matrix(namespace or (), entity)))
