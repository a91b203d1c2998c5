"""Paging: the end of a page as a text, with which the next page is requested."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Generic, TypeVar, get_type_hints

from fastapi import Query
from pydantic import BaseModel

from instep.errors import Missing

Item = TypeVar("Item")
Place = TypeVar("Place", bound=tuple[Any, ...])

#: What databases keep of a whole number.
_LARGEST: Final = 2**63 - 1


class Page(BaseModel, Generic[Item]):
    """One page of a list. Give `next` as `after` to get the next page; it is null on the last."""

    items: list[Item]
    next: str | None = None


Limit = Annotated[int, Query(ge=1, le=1_000, description="Maximum number of items on a page.")]
After = Annotated[str | None, Query(max_length=2_000, description="The `next` of the previous page.")]


def page(items: Sequence[Item], limit: int, place: Callable[[Item], tuple[Any, ...]]) -> Page[Item]:
    """`items` are one more than fit on it, if there are more; `place` is that of an item among all."""
    more = len(items) > limit
    return Page(items=list(items[:limit]), next=_text(place(items[limit - 1])) if more else None)


def location_of(kind: type[Place], after: str | None) -> Place | None:
    """The end of the page before. Raises `Missing` for a text that is no end of a page."""
    if after is None:
        return None
    try:
        values = json.loads(base64.urlsafe_b64decode(after.encode() + b"=" * (-len(after) % 4)))
        found = kind(*values)
    except (TypeError, ValueError, RecursionError, binascii.Error) as error:
        raise unknown_place() from error
    for wanted, value in zip(get_type_hints(kind).values(), found, strict=True):
        is_number = type(value) is int and 0 <= value <= _LARGEST
        is_text = isinstance(value, str) and value.isprintable()
        if not (is_number if wanted is int else is_text):
            raise unknown_place()
    return found


def unknown_place() -> Missing:
    return Missing(
        "`after` is not the end of a page", hint="Give the `next` of the page before as `after`, or leave it out."
    )


def _text(place: tuple[Any, ...]) -> str:
    return base64.urlsafe_b64encode(json.dumps(place).encode()).decode().rstrip("=")
