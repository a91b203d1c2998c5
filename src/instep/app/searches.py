"""The part of the Python API that searches what is served."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from instep.app.in_thread import in_thread
from instep.app.open_project import OpenProject
from instep.domain.texts import names_in
from instep.entities.generations import checked_generation
from instep.telemetry.progress import Progress, Silent

if TYPE_CHECKING:
    from instep.answers.hits import Hits
    from instep.answers.search import FacetCount
    from instep.targets.document_target import SearchMode


class Searches:
    """The methods of `app.Instep` that search, and complete a search that is being written."""

    _open: OpenProject

    def search(
        self,
        query: str,
        *,
        mode: SearchMode | None = None,
        limit: int = 10,
        where: str | None = None,
        offset: int = 0,
        group: bool = False,
        entities: Iterable[str] | None = None,
        principals: Iterable[str] = (),
        generation: str | None = None,
        target: str | None = None,
        progress: Progress | None = None,
    ) -> Hits:
        """Search what is served; the best hits come first. Words in double quotes are a phrase.

        `mode`: `text`, `vector` or `hybrid` (reciprocal rank fusion of both); by default that of the entity: `hybrid`,
        or `text` with an embedder that knows no meaning.
        `where`: a filter on columns, such as `team = 'ops' AND year >= 2024` (docs/search.md).
        `offset`: the number of better hits to skip. `group`: only the best chunk of each document.
        `generation`: the generation to search, instead of the promoted one.
        `target`: the target to search, for entities that have several; by default the first.
        `principals`: the readers for whom to search, such as `alice` and `group:ops`; by default only public documents
        are found, if an entity has readers.
        """
        from instep.answers.hits import Hits
        from instep.answers.readers import as_principals
        from instep.answers.search import checked_mode, in_one_target, search

        found = self._open.ask(
            lambda opened, looks: search(
                in_one_target(opened.documents(entities), target),
                looks,
                query,
                mode=checked_mode(mode),
                limit=limit,
                principals=as_principals(principals),
                where=where,
                offset=offset,
                group=group,
                generation=checked_generation(generation),
                progress=progress or Silent(),
            )
        )
        return Hits(found)

    #: `search`, to be awaited.
    asearch = in_thread(search)

    def facets(
        self,
        query: str,
        columns: Iterable[str],
        *,
        mode: SearchMode | None = None,
        limit: int = 10,
        where: str | None = None,
        entities: Iterable[str] | None = None,
        principals: Iterable[str] = (),
        generation: str | None = None,
        target: str | None = None,
    ) -> dict[str, list[FacetCount]]:
        """Count values of these columns: the `limit` most frequent ones of each, with the number of chunks that have
        them, among the chunks that a search would look through (docs/search.md). Other parameters are those of
        `search`.
        """
        from instep.answers.readers import as_principals
        from instep.answers.search import checked_mode, facets, in_one_target

        return self._open.ask(
            lambda opened, looks: facets(
                in_one_target(opened.documents(entities), target),
                looks,
                query,
                names_in(columns),
                mode=checked_mode(mode),
                limit=limit,
                principals=as_principals(principals),
                where=where,
                generation=checked_generation(generation),
            )
        )

    def values(
        self,
        column: str,
        *,
        begin: str = "",
        limit: int = 10,
        entities: Iterable[str] | None = None,
        principals: Iterable[str] = (),
    ) -> list[FacetCount]:
        """The most frequent values of a column that begin with `begin`, among documents that the principals may find:
        to complete a filter that is being written.
        """
        from instep.answers.readers import as_principals
        from instep.answers.search import in_one_target, values

        return self._open.ask(
            lambda opened, looks: values(
                in_one_target(opened.documents(entities), None),
                looks,
                column,
                begin=begin,
                principals=as_principals(principals),
                limit=limit,
            )
        )
