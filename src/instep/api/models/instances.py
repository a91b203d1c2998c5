"""Instances, where they come from, and how partitions are."""

from __future__ import annotations

from pydantic import Field

from instep.api.models.base import Answer
from instep.api.models.jobs import Counts
from instep.domain.instances import InstanceState, Reason
from instep.domain.jobs import JobState
from instep.domain.lineage import Link
from instep.domain.status import IndexState


class Window(Answer):
    """Changes after `floor` (0: everything) up to `target`, in ms."""

    floor: int
    target: int


class Instance(Answer):
    """One build of a partition."""

    uuid: str
    ref: str
    generation: str
    sequence: int
    previous: str | None
    reason: Reason
    state: InstanceState
    canonical: bool
    by: str
    job: str | None
    refreshed_by: str | None
    refreshes: int
    window: Window | None
    watermark: int | None
    fingerprint: dict[str, str] | None
    revision: str
    inputs: list[str]
    physical: str | None
    counts: Counts | None
    created_at: int
    started_at: int | None
    live_at: int | None
    ended_at: int | None
    ended: str | None
    error: str | None


class Node(Answer):
    """`instance` is null when it was forgotten."""

    uuid: str
    instance: Instance | None


class Edge(Answer):
    from_: str = Field(alias="from")
    to: str
    link: Link


class Lineage(Answer):
    """What an instance was made from, and `users`: what was made from it."""

    at: int | None
    instance: str
    nodes: list[Node]
    edges: list[Edge]
    users: list[Instance]


class LatestJob(Answer):
    id: str
    state: JobState
    created_at: int
    finished_at: int | None
    error: str | None
    counts: Counts
    slices: dict[str, int]


class Partition(Answer):
    """How a partition is, in the generation that is served. `documents` is null for a table, `rows` (of the target)
    when they cannot be read.
    """

    ref: str
    generation: str
    promoted: bool
    state: IndexState
    documents: int | None
    rows: int | None
    bytes: int
    failures: int
    skipped: int
    instance: str | None
    physical: str | None
    watermark: int | None
    job: LatestJob | None
    notes: list[str]
