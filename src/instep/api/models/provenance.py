"""Origin of a row: instance, job, wants."""

from __future__ import annotations

from typing import Any

from instep.api.models.base import Answer
from instep.api.models.instances import Instance, Node, Window
from instep.api.models.jobs import Counts
from instep.domain.jobs import JobState
from instep.domain.wants import WantState


class WrittenBy(Answer):
    """The job that wrote the row."""

    id: str
    state: JobState
    created_at: int
    finished_at: int | None
    counts: Counts
    fingerprint: dict[str, str]
    revision: str


class SatisfiedWant(Answer):
    id: str
    refs: list[str]
    state: WantState
    by: str
    needed: int | None
    created_at: int
    ended_at: int | None


class Provenance(Answer):
    """`row` has the columns that say where it comes from; of documents, `document` is what is recorded of its document
    now, and of tables, `slice` is the one that it was in. What is null is not known any more.
    """

    row: dict[str, Any]
    document: dict[str, Any] | None = None
    slice: dict[str, Any] | None = None
    target: str
    physical: str
    instance: Instance | None
    job: WrittenBy | None
    window: Window | None
    wants: list[SatisfiedWant]
    inputs: list[Node]
