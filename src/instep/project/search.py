"""The words by which an entity's documents are searched, and how much each counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Protocol, TypeAlias

from pydantic import Field

from instep.domain.document_columns import DocumentColumnType
from instep.domain.words import LANGUAGES, SEARCHED_BY_DEFAULT, Searched
from instep.project.columns import Column
from instep.project.fields import Whole, problem

Boosts: TypeAlias = dict[str, Annotated[Whole, Field(ge=0, le=10)]]

_DEFAULT: Final[Mapping[str, int]] = dict(SEARCHED_BY_DEFAULT.weights)


def checked_language(value: str) -> str:
    """Raises a validation error for a language without stems."""
    if value not in LANGUAGES:
        raise problem("language", "is not one of the allowed values", allowed=list(LANGUAGES))
    return value


class DeclaredSearch(Protocol):
    """The declaration, as far as words depend on it."""

    @property
    def language(self) -> str: ...
    @property
    def boosts(self) -> Mapping[str, int]: ...


class WithSearch(Protocol):
    """An entity of documents, as far as its search depends on it."""

    @property
    def columns(self) -> Mapping[str, Column]: ...
    @property
    def search(self) -> DeclaredSearch: ...
    @property
    def readers(self) -> str | None: ...


def check_search(entity: WithSearch) -> None:
    """Check that all that is searched has texts, and is no secret: words of readers would find documents by who else
    may read them. Raises a validation error.
    """
    texts = {DocumentColumnType.STRING, DocumentColumnType.STRINGS}
    allowed = [*_DEFAULT, *(name for name, column in entity.columns.items() if column.type in texts)]
    if entity.readers in allowed:
        allowed.remove(entity.readers)
    for name in entity.search.boosts:
        if name not in allowed:
            message = "is neither title nor text, nor a declared column of strings"
            if name == entity.readers:
                message = "says who may read documents: it is not searched"
            raise problem("boosts", message, path=("search", "boosts", name), allowed=allowed)
    if not searched_of(entity).weights:
        raise problem("boosts", "leave nothing to be searched", path=("search", "boosts"))


def searched_of(entity: WithSearch) -> Searched:
    """In one order, however it is declared."""
    boosts = {**_DEFAULT, **dict(sorted(entity.search.boosts.items()))}
    return Searched(entity.search.language, tuple((name, count) for name, count in boosts.items() if count))
