"""What all models of the API have in common."""

from __future__ import annotations

from typing import Annotated, Generic, TypeVar

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field

Item = TypeVar("Item")

#: Milliseconds since 1970-01-01 UTC, by the ledger's clock.
Milliseconds = Annotated[int, Field(ge=0)]


class Answer(BaseModel):
    """Nothing is answered that is not declared."""

    model_config = ConfigDict(extra="forbid")


class Page(BaseModel, Generic[Item]):
    """One page of a list; `next` is given as `after` to have the next one, and null on the last."""

    items: list[Item]
    next: str | None = None


Limit = Annotated[int, Query(ge=1, le=1_000, description="Items on a page at most.")]
