"""Base classes and types of all models of the API."""

from __future__ import annotations

from typing import Annotated, Generic, TypeVar

from fastapi import Query
from pydantic import BaseModel, BeforeValidator, ConfigDict

Item = TypeVar("Item")


class Answer(BaseModel):
    """Nothing is answered that is not declared."""

    model_config = ConfigDict(extra="forbid")


class Body(BaseModel):
    """What is asked. A name that is not known is refused, and so is `"7"` where a number is to be."""

    model_config = ConfigDict(extra="forbid", strict=True)


def _whole(value: object) -> object:
    """JSON knows one kind of numbers: 7.0 is a whole one."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


#: Behind the bounds of a number.
WHOLE = BeforeValidator(_whole)


class Page(BaseModel, Generic[Item]):
    """One page of a list; `next` is given as `after` to have the next one, and null on the last."""

    items: list[Item]
    next: str | None = None


Limit = Annotated[int, Query(ge=1, le=1_000, description="Items on a page at most.")]
