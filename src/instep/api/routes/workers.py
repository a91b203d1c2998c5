"""`/api/workers`."""

from __future__ import annotations

from fastapi import APIRouter

from instep.api.models.base import Page
from instep.api.models.workers import Worker
from instep.api.server import Ours

router = APIRouter(prefix="/workers", tags=["workers"])


@router.get("")
def list_workers(instep: Ours) -> Page[Worker]:
    """Who is registered in the ledger, and does what, the oldest first."""
    return Page(items=[Worker.model_validate(each.as_dict()) for each in instep.workers()])
