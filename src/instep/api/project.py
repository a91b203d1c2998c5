"""`/api/project` and `/api/workers`."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from instep import __version__
from instep.answers.answer import Answer
from instep.answers.configuration import Setting
from instep.answers.jobs import Worker
from instep.api.dependencies import ProjectInstep
from instep.api.paging import Limit, Page
from instep.api.queues import Queue
from instep.domain.document_columns import BUILT_IN, DocumentColumnType
from instep.project.columns import declared_columns
from instep.project.documents import DocumentEntity
from instep.targets.facets import COUNTED

router = APIRouter()


class Column(Answer):
    """A column that a filter may name. `counted`: searches can count its values and complete them."""

    name: str
    type: DocumentColumnType
    counted: bool


class Entity(Answer):
    """`ref` names its only partition; null for one that is indexed by namespaces. Of documents, `search_mode` is the
    mode of a search that names none, `meaning` says whether their vectors know what words mean, and `columns` are the
    declared ones and those that all documents have.
    """

    name: str
    kind: str
    ref: str | None
    namespaced: bool
    target: str
    priority: int
    depends_on: list[str]
    search_mode: str | None
    meaning: bool | None
    columns: list[Column]


class Target(Answer):
    name: str
    type: str


class Project(Answer):
    """The project as `instep.yaml` declares it. Addresses are left out: they may hold passwords."""

    name: str
    version: str
    entities: list[Entity]
    namespaces: list[str]
    targets: list[Target]
    queues: list[Queue]


@router.get("/project", tags=["project"])
def read_project(instep: ProjectInstep) -> Project:
    """The declared project: entities, targets and queues."""
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
                search_mode=each.search_mode if isinstance(each, DocumentEntity) else None,
                meaning=each.embed.meaning if isinstance(each, DocumentEntity) else None,
                columns=_columns(each) if isinstance(each, DocumentEntity) else [],
            )
            for name, each in project.entities.items()
        ],
        namespaces=list(project.namespaces),
        targets=[Target(name=name, type=each.type) for name, each in project.targets.items()],
        queues=[Queue(name=name, engine=each.engine) for name, each in project.queues.items()],
    )


def _columns(entity: DocumentEntity) -> list[Column]:
    declared = [each.column for each in declared_columns(entity) if each.name != entity.readers]
    return [
        *(Column(name=each.name, type=each.type, counted=each.type in COUNTED) for each in declared),
        *(Column(name=each.name, type=each.type, counted=False) for each in BUILT_IN),
    ]


@router.get("/configuration", tags=["project"])
def read_configuration(
    instep: ProjectInstep,
    after: Annotated[int, Query(ge=0, le=10_000_000, description="The `next` of the previous page.")] = 0,
    limit: Limit = 500,
) -> Page[Setting]:
    """All settings, defaults included, without secrets: what came from the environment is shown as `${NAME}`."""
    found = instep.configuration()
    return Page(items=found[after : after + limit], next=str(after + limit) if len(found) > after + limit else None)


@router.get("/workers", tags=["workers"])
def list_workers(instep: ProjectInstep) -> Page[Worker]:
    """Workers that are registered in the ledger, with their work; the oldest first."""
    return Page(items=instep.workers())
