"""`/api/why`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from instep.api.models.provenance import Provenance
from instep.api.problems import responses
from instep.api.server import Ours

router = APIRouter(tags=["search"])


@router.get("/why", responses=responses(404, 409))
def read_why(
    instep: Ours,
    ref: Annotated[str, Query(description="An entity, or a target of documents.", max_length=400)],
    id: Annotated[
        str, Query(description="A chunk_id, document_id, URI or path of a file; of a table the key.", max_length=8_000)
    ],
) -> Provenance:
    """Where a row that is served comes from: instance, job, wants, and its document or slice."""
    return Provenance.model_validate(instep.why(ref.removesuffix("@global"), id).as_dict())
