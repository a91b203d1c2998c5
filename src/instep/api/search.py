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
    """Hits, and the most frequent values of each column that was asked for."""

    facets: dict[str, list[FacetCount]]


@router.get("/search", responses=responses(400, 404, 409))
def search(  # noqa: PLR0917 - parameters of a query
    instep: ProjectInstep,
    principals: AskingPrincipals,
    q: Annotated[
        str,
        Query(
            description="The text to search for.",
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
    k: Annotated[int, Query(ge=1, le=MAX_LIMIT, description="Maximum number of hits.")] = 10,
    offset: Annotated[
        int, Query(ge=0, lt=MAX_LIMIT, description="Better hits to skip; together with `k` at most 1,000.")
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
    group: Annotated[bool, Query(description="Return only the best chunk of each document.")] = False,
    facet: Annotated[
        list[str],
        Query(
            description="Count the values of this column among the chunks found; may be repeated.",
            max_length=MAX_FACETS,
            openapi_examples={"a column": {"value": ["team"]}},
        ),
    ] = [],  # noqa: B006 - never changed
    facet_values: Annotated[
        int, Query(ge=1, le=MAX_VALUES, description="Maximum number of values of each facet.")
    ] = 10,
) -> Found:
    """Search the served documents that the principals of the token may read, and public ones; best hits first. The
    answer to a wrong filter is a 400 with the `position` of the character where it is wrong.
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
        str,
        Query(
            min_length=1, max_length=200, openapi_examples={"a column": {"value": "team"}}, description="The column."
        ),
    ],
    begin: Annotated[
        str,
        Query(
            max_length=200,
            openapi_examples={"two letters": {"value": "op"}},
            description="The beginning of the values.",
        ),
    ] = "",
    entity: Annotated[list[str] | None, Query(description="Only in this entity; may be repeated.")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_VALUES, description="Maximum number of values.")] = 10,
) -> Page[FacetCount]:
    """The most frequent values of a column, to complete a filter, with the number of chunks that have each. Only chunks
    that the principals of the token may find, and public ones, are counted.
    """
    found = instep.values(column, begin=begin, limit=limit, entities=entity, principals=principals)
    return Page(items=found)


@router.get("/why", responses=responses(404, 409))
def read_why(
    instep: ProjectInstep,
    principals: AskingPrincipals,
    ref: Annotated[str, Query(description="An entity, or a target of documents.", max_length=400)],
    id: Annotated[
        str,
        Query(description="A chunk_id, document_id, URI or path of a file; for a table, the key.", max_length=8_000),
    ],
) -> Provenance:
    """Origin of a served row: instance, job, wants, and its document or slice."""
    return instep.why(ref.removesuffix("@global"), id, principals=principals, explain=False)
