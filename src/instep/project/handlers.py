"""Retry and group settings of request handlers."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from instep.domain.refs import is_entity_name
from instep.domain.request_rules import Policy
from instep.domain.texts import duration_text
from instep.project.fields import Duration, Model, Pause, Whole, problem

_DEFAULT = Policy()


class Handler(Model):
    """How often a handler tries a request, and how many are in work at once."""

    max_attempts: Whole = Field(default=_DEFAULT.max_attempts, ge=1)
    """Attempts before a request is given up as a dead letter."""
    backoff: tuple[Pause, ...] = Field(
        default=_DEFAULT.backoff, min_length=1, json_schema_extra={"default": [*map(duration_text, _DEFAULT.backoff)]}
    )
    """Pauses after the first attempt, the second and so on; the last one is made again and again."""
    ack_wait: Duration = Field(
        default=_DEFAULT.ack_wait, json_schema_extra={"default": duration_text(_DEFAULT.ack_wait)}
    )
    """A worker that says nothing for so long is taken for dead, and its request is tried again."""
    group: str | None = None
    """Name of a group of handlers that share `limit`."""
    limit: Whole | None = Field(default=None, ge=1)
    """Requests of the group that are in work at once, on all servers together."""

    @model_validator(mode="after")
    def _group_and_limit(self) -> Self:
        if self.group is not None and not is_entity_name(self.group):
            message = "the name of a group is letters, digits and underscores, starting with a letter, at most 100"
            raise problem("group", message, path=("group",))
        if (self.group is None) != (self.limit is None):
            missing = "limit" if self.limit is None else "group"
            raise problem("required", "is missing: `group` and `limit` go together", path=(missing,))
        return self
