"""The project."""

from __future__ import annotations

from instep.api.models.base import Answer


class Entity(Answer):
    """`ref` names its only partition; null for one that is indexed by namespaces."""

    name: str
    kind: str
    ref: str | None
    namespaced: bool
    target: str
    priority: int
    depends_on: list[str]


class Target(Answer):
    name: str
    type: str


class Queue(Answer):
    name: str
    engine: str


class Project(Answer):
    """What is declared in `instep.yaml`. Addresses are left out: they may hold passwords."""

    name: str
    version: str
    entities: list[Entity]
    namespaces: list[str]
    targets: list[Target]
    queues: list[Queue]
