"""Documents and rows that could not be indexed."""

from __future__ import annotations

from pydantic import Field

from instep.api.models.base import Answer, Body


class Failure(Answer):
    """A document, or a row by its key, at what stage it failed, and why."""

    ref: str
    document_id: str
    uri: str
    version: str
    stage: str
    reason: str
    attempts: int
    job_id: str
    failed_at: int
    generation: str


class RetryFailures(Body):
    """Entities, or partitions of them; of all entities if none is named."""

    entities: list[str] = Field(default=[], max_length=1_000)
