"""Order hits: keep the best chunk of each document, rerank the first ones, and mark the weak ones."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from instep.domain.document_columns import DocumentColumn, DocumentColumnType
from instep.domain.filters import Condition, OneOf, every
from instep.entities.documents.setup import DocumentSetup
from instep.errors import Transient
from instep.pipeline.documents.rerank.reranker import Reranking
from instep.targets.document_target import Hit
from instep.telemetry.progress import Progress

#: Chunks that one search of an index gives, at most.
MAX_LIMIT: Final = 1000
#: So many times the documents are asked for in chunks, and again as many if those are too few.
_CHUNKS: Final = 4
#: Searches for documents, of `MAX_LIMIT` chunks at most.
_SEARCHES: Final = 20
_DOCUMENT: Final = DocumentColumn("document_id", DocumentColumnType.STRING)


def chosen_by(ask: Callable[..., list[Hit]], required: Sequence[Condition], limit: int, *more: Condition) -> list[Hit]:
    """The best chunks of those that meet all conditions."""
    conditions = [*required, *more]
    return ask(limit=limit, where=every(conditions) if conditions else None)


def of_documents(ask: Callable[..., list[Hit]], count: int) -> list[Hit]:
    """The best chunks of so many documents: of more and more chunks, since a document may have any number. Where as
    many chunks as one search gives are of too few documents, the next one leaves these out.
    """
    many = count
    best: dict[str, Hit] = {}
    for _ in range(_SEARCHES):
        many = min(MAX_LIMIT, many * _CHUNKS)
        found = ask(many, *([OneOf(_DOCUMENT, tuple(best), negated=True)] if best else []))
        first = {hit.document_id: hit for hit in reversed(found)}
        fresh = [hit for hit in found if first[hit.document_id] is hit]
        ended = len(found) < many or len(best) + len(fresh) >= count
        if not ended and many < MAX_LIMIT:
            continue
        # Ranks of a later search begin anew.
        least = min((hit.score for hit in best.values()), default=math.inf)
        best |= {hit.document_id: replace(hit, score=min(hit.score, least)) for hit in fresh}
        if ended:
            break
    return list(best.values())[:count]


def reranked(
    setup: DocumentSetup,
    reranking: Reranking,
    query: str,
    hits: Sequence[Hit],
    progress: Progress,
) -> list[Hit]:
    """Hits in the order of a reranker; in their own if it is out of reach."""
    try:
        return reranking.ordered(query, hits)
    except Transient as error:
        progress.say(setup.ref.label, f"not reranked: {error}")
        return list(hits)


def weak_hits(entities: Mapping[str, bool], query: str, hits: Sequence[Hit]) -> dict[tuple[str, str], bool]:
    """Whether a chunk of one of these entities means something else than the query, by its entity and its id: several
    entities may have the same documents. Those of which titles and headings are embedded with the chunks are looked at
    with the title: the headings are not stored.
    """
    asked = {
        (hit.entity, hit.chunk_id): f"{hit.title}\n\n{hit.text}" if hit.title and entities[hit.entity] else hit.text
        for hit in hits
        if hit.entity in entities
    }
    if not asked:
        return {}
    from instep.pipeline.documents.embed.static import WEAK, StaticEmbedder

    wanted, *found = StaticEmbedder().embed([query, *asked.values()])
    return {chunk: float(vector @ wanted) < WEAK for chunk, vector in zip(asked, found, strict=True)}
