"""Documents and rows that could not be indexed."""

from __future__ import annotations

from instep.answers.answer import Answer, Ref


class Failure(Answer):
    """A document, or a row by its key, at what stage it failed, and why."""

    ref: Ref
    document_id: str
    uri: str
    version: str
    stage: str
    reason: str
    attempts: int
    job_id: str
    failed_at: int
    generation: str
