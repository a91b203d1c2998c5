"""`/api/search`, and `/api/why`: origin of a hit or another row."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Query

from instep.answers.hit_order import MAX_LIMIT
from instep.answers.search import MAX_FACETS, FacetCount, Hit
from instep.answers.why import Provenance
from instep.api.dependencies import AskingPrincipals, ProjectInstep
from instep.api.paging import Page
from instep.api.problems import responses
from instep.domain.filter_language import MAX_LENGTH
from instep.targets.facets import MAX_VALUES

router = APIRouter(tags=["search"])

Mode = Literal["text", "vector", "hybrid"]


class Found(Page[Hit]):
    """Hits, and of each column that was asked for its most frequent values."""

    facets: dict[str, list[FacetCount]]


@router.get("/search", responses=responses(400, 404, 409))
def search(  # noqa: PLR0917 - parameters of a query
    instep: ProjectInstep,
    principals: AskingPrincipals,
    q: Annotated[
        str,
        Query(
            description="What to look for.",
            min_length=1,
            max_length=2_000,
            openapi_examples={"words": {"value": "printer on fire"}},
        ),
    ],
    entity: Annotated[list[str] | None, Query(description="Only in this entity; may be repeated.")] = None,
    mode: Annotated[
        Mode | None,
        Query(
            description="By words, by vectors, or by both, fused by rank; by default the `search_mode` of each entity."
        ),
    ] = None,
    k: Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Hits at most.")] = 10,
    offset: Annotated[
        int, Query(ge=0, lt=MAX_LIMIT, description="Hits to pass over: together with `k` at most 1,000.")
    ] = 0,
    where: Annotated[
        str | None,
        Query(
            description="Only documents whose columns meet this condition, a small subset of SQL's WHERE.",
            max_length=MAX_LENGTH,
            openapi_examples={
                "of a team": {"value": "team = 'ops' AND year >= 2024"},
                "with a tag": {"value": "tags CONTAINS 'urgent' AND closed_at IS NULL"},
                "of this year": {"value": "modified >= '2026-01-01' AND title LIKE 'Re: %'"},
            },
        ),
    ] = None,
    group: Annotated[bool, Query(description="Of each document only its best chunk.")] = False,
    facet: Annotated[
        list[str],
        Query(
            description="Count the values of this column in what is found; may be repeated.",
            max_length=MAX_FACETS,
            openapi_examples={"a column": {"value": ["team"]}},
        ),
    ] = [],  # noqa: B006 - never changed
    facet_values: Annotated[int, Query(ge=1, le=MAX_VALUES, description="Values of each facet at most.")] = 10,
) -> Found:
    """Documents that are served, best first: those that the principals of the token may read, and public ones. A
    filter that means nothing is answered with 400, and the `position` of the character where it is wrong.
    """
    counts: dict[str, list[FacetCount]] = {}
    if facet:
        counts = instep.facets(
            q, facet, mode=mode, limit=facet_values, entities=entity, where=where, principals=principals
        )
    found = instep.search(
        q, mode=mode, limit=k, entities=entity, where=where, offset=offset, group=group, principals=principals
    )
    return Found(items=found, facets=counts)


@router.get("/values", responses=responses(400, 404, 409))
def read_values(  # noqa: PLR0917 - parameters of a query
    instep: ProjectInstep,
    principals: AskingPrincipals,
    column: Annotated[
        str, Query(min_length=1, max_length=200, openapi_examples={"a column": {"value": "team"}}, description="Which.")
    ],
    begin: Annotated[
        str,
        Query(max_length=200, openapi_examples={"two letters": {"value": "op"}}, description="How the values begin."),
    ] = "",
    entity: Annotated[list[str] | None, Query(description="Only in this entity; may be repeated.")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_VALUES, description="Values at most.")] = 10,
) -> Page[FacetCount]:
    """The most frequent values of a column, to complete a filter: of chunks that the principals of the token may find,
    and public ones, and so many chunks have each.
    """
    found = instep.values(column, begin=begin, limit=limit, entities=entity, principals=principals)
    return Page(items=found)


@router.get("/why", responses=responses(404, 409))
def read_why(
    instep: ProjectInstep,
    principals: AskingPrincipals,
    ref: Annotated[str, Query(description="An entity, or a target of documents.", max_length=400)],
    id: Annotated[
        str, Query(description="A chunk_id, document_id, URI or path of a file; of a table the key.", max_length=8_000)
    ],
) -> Provenance:
    """Origin of a served row: instance, job, wants, and its document or slice."""
    return instep.why(ref.removesuffix("@global"), id, principals=principals, explain=False)
