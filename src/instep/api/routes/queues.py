"""`/api/queues`."""

from __future__ import annotations

from fastapi import APIRouter

from instep.api.models.base import Page
from instep.api.models.project import Queue
from instep.api.models.queues import QueueStatus
from instep.api.problems import responses
from instep.api.server import Ours

router = APIRouter(prefix="/queues", tags=["queues"])


@router.get("")
def list_queues(instep: Ours) -> Page[Queue]:
    """Those that the project declares."""
    return Page(items=[Queue(name=name, engine=each.engine) for name, each in instep.project.queues.items()])


@router.get("/{name}", responses=responses(404, 409))
def read_queue(instep: Ours, name: str) -> QueueStatus:
    """How far it is on its way, and what is in it."""
    with instep.queue(name) as queue:
        return QueueStatus.model_validate(queue.status().as_dict())
