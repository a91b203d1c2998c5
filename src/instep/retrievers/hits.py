"""Search a project and turn its hits into what retrievers return."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypedDict

from instep.answers.search import Hit, checked_mode
from instep.app import Instep, load
from instep.errors import UserError
from instep.targets.document_target import SearchMode

#: A project that is open already, its file or its folder.
Place = Instep | str | os.PathLike[str]


class Options(TypedDict, total=False):
    """Options of `Instep.search` that retrievers take."""

    mode: SearchMode | None
    limit: int
    where: str | None
    group: bool
    entities: Iterable[str] | None
    principals: Iterable[str]
    generation: str | None
    target: str | None


#: The text is the document's or the node's own; what is shown of it to people is left out.
_TEXTS: Final = frozenset(("text", "snippet", "marks"))


def opened(project: Place) -> Instep:
    """The project itself, or the one in this file or folder."""
    return project if isinstance(project, Instep) else load(project)


def demand_options(given: Mapping[str, Any], *, also: Iterable[str] = ()) -> None:
    """Raises `UserError` for what is no option of a search: passed over, a filter by another name would be none."""
    allowed = [*Options.__annotations__, *also]
    if unknown := [name for name in given if name not in allowed]:
        raise UserError(
            f"a search has no option {unknown[0]!r}", hint=f"Allowed: {', '.join(Options.__annotations__)}."
        )
    checked_mode(given.get("mode"))


def metadata_of(hit: Hit) -> dict[str, Any]:
    """All of a hit but its text, by the names that JSON has."""
    return hit.model_dump(mode="json", exclude=set(_TEXTS))
