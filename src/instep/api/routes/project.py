"""`/api/project`."""

from __future__ import annotations

from fastapi import APIRouter

from instep import __version__
from instep.api.models.project import Entity, Project, Queue, Target
from instep.api.server import Ours
from instep.project.documents import DocumentEntity

router = APIRouter(tags=["project"])


@router.get("/project")
def read_project(instep: Ours) -> Project:
    """What is declared."""
    project = instep.project
    return Project(
        name=project.name,
        version=__version__,
        entities=[
            Entity(
                name=name,
                kind="documents" if isinstance(each, DocumentEntity) else "table",
                ref=None if each.namespaced else f"{name}@global",
                namespaced=each.namespaced,
                target=project.target_of(name),
                priority=each.priority,
                depends_on=list(each.depends_on),
            )
            for name, each in project.entities.items()
        ],
        namespaces=list(project.namespaces),
        targets=[Target(name=name, type=each.type) for name, each in project.targets.items()],
        queues=[Queue(name=name, engine=each.engine) for name, each in project.queues.items()],
    )
