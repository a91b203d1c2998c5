"""Hits of a project, as retrievers hand them on."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Final, TypedDict

from instep.answers.search import Hit
from instep.app import Instep, load
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


def metadata_of(hit: Hit) -> dict[str, Any]:
    """All of a hit but its text, by the names that JSON has."""
    return hit.model_dump(mode="json", exclude=set(_TEXTS))
