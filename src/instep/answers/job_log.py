"""Lines of a job's log, as answers."""

from __future__ import annotations

from pydantic import Field

from instep.answers.answer import Answer


class LogLine(Answer):
    """A line of a job's log."""

    number: int = Field(description="Lines of a job are numbered from 1; old ones go.")
    at: int
    ref: str = Field(description="The partition; empty in what concerns the whole job.")
    worker_id: str
    kind: str = Field(description="`said`, `spark` (the address of Spark's own page), or a phase.")
    text: str
