"""Searches by text, by vector and by both: what an index is asked for, and the fusion of its two lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from instep.domain.document_columns import DocumentColumn
from instep.domain.filters import Condition
from instep.domain.words import TextQuery
from instep.errors import UserError
from instep.targets.document_target import EQUAL, FusionWeights, Hit, ScoreKind, SearchMode
from instep.targets.stored_values import restored

if TYPE_CHECKING:
    import numpy as np

Query: TypeAlias = "np.ndarray[Any, np.dtype[np.float32]]"

#: Most results of one search, which bounds its cost.
MAX_LIMIT = 1_000

#: Constant of reciprocal rank fusion (Cormack, Clarke, Büttcher 2009).
_RRF_K = 60

#: So many of each list make the first so many of a hybrid answer, whatever page of it is asked for.
_RRF_DEPTH = 100

#: Where the last hit of an answer has the score of the next one, so many times as many are asked for.
_MORE = 4


#: What of a row is in every hit, in its order.
HIT_COLUMNS = ("document_id", "chunk_id", "chunk_index", "source_uri", "title", "text")


@dataclass(frozen=True, slots=True)
class Search:
    """One search of one index, as it was asked for."""

    entity: str
    text: TextQuery
    vector: Sequence[float] | None
    mode: SearchMode
    limit: int
    where: Condition | None = None
    weights: FusionWeights = EQUAL
    columns: Sequence[DocumentColumn] = ()

    @property
    def fields(self) -> list[str]:
        """The columns of a row that make its hit."""
        return [*HIT_COLUMNS, *(each.name for each in self.columns)]

    def hits(
        self,
        dimensions: int,
        by_text: Callable[[TextQuery, int], list[Hit]],
        by_vector: Callable[[Query, int], list[Hit]],
    ) -> list[Hit]:
        """The answer, of two lists of an index: so many rows by words, and so many near to a vector. Neither is asked
        for where there is nothing to look for: a vector of zeros has no direction. A longer answer begins with the
        shorter one, so that pages fit together.
        """
        limit = min(self.limit, MAX_LIMIT)
        if limit < 1:
            return []
        if self.mode != "text" and self.vector is None:
            raise UserError(f"a {self.mode} search needs a vector", hint="Search with --mode text, or set an embedder.")
        many = limit
        if self.mode == "hybrid":
            many = _RRF_DEPTH if limit <= _RRF_DEPTH else MAX_LIMIT
        lists = []
        if self.mode != "vector":
            lists.append(_best(partial(by_text, self.text), many) if self.text.words else [])
        if self.mode != "text":
            query = _checked(() if self.vector is None else self.vector, dimensions)
            lists.append(_best(partial(by_vector, query), many) if query.any() else [])
        return (_fused(lists, self.weights) if self.mode == "hybrid" else lists[0])[:limit]

    def ranked(self, rows: Iterable[tuple[float, Mapping[str, Any]]], kind: ScoreKind) -> list[Hit]:
        """Hits of scores and rows: best first, in one order however they came."""

        def hit(score: float, row: Mapping[str, Any]) -> Hit:
            always: dict[str, Any] = {name: row.get(name) for name in HIT_COLUMNS}
            columns = {each.name: restored(each, row.get(each.name)) for each in self.columns}
            return Hit(self.entity, float(score), **always, score_kind=kind, columns=columns)

        return _in_order(hit(*each) for each in rows)


def _checked(vector: Sequence[float], dimensions: int) -> Query:
    """The vector to search for; raises `UserError` for one that is near to nothing."""
    import numpy as np

    query = np.asarray(vector, dtype=np.float32)
    if query.shape != (dimensions,):
        raise UserError(f"the query vector has {query.size} dimensions, the index {dimensions}")
    if not np.isfinite(query).all():
        raise UserError("the query vector holds NaN or infinity")
    return query


def _best(fetch: Callable[[int], list[Hit]], many: int) -> list[Hit]:
    """The first so many. A store cuts among rows of one score in an order of its own: those are all asked for, up to
    `MAX_LIMIT` hits, and cut in ours.
    """
    asked = min(many + 1, MAX_LIMIT)
    found = fetch(asked)
    while len(found) >= asked < MAX_LIMIT and found[-1].score == found[many - 1].score:
        asked = min(asked * _MORE, MAX_LIMIT)
        found = fetch(asked)
    return found[:many]


def _in_order(hits: Iterable[Hit]) -> list[Hit]:
    return sorted(hits, key=lambda hit: (-hit.score, hit.chunk_id))


def _fused(lists: Sequence[Sequence[Hit]], weights: FusionWeights) -> list[Hit]:
    """Reciprocal rank fusion: the score of a row is the sum over the lists of weight / (60 + rank). A list that counts
    for nothing finds nothing. What the beginnings of the lists make comes first, and what else is in them after it.
    """
    first = _sums([hits[:_RRF_DEPTH] for hits in lists], weights)[:_RRF_DEPTH]
    named = {hit.chunk_id for hit in first}
    rest = [hit for hit in _sums(lists, weights) if hit.chunk_id not in named]
    return first + [replace(hit, score=min(hit.score, first[-1].score)) for hit in rest]


def _sums(lists: Sequence[Sequence[Hit]], weights: FusionWeights) -> list[Hit]:
    found: dict[str, Hit] = {}
    for weight, hits in zip(weights, lists, strict=True):
        for rank, hit in enumerate(hits if weight else (), start=1):
            before = found.get(hit.chunk_id)
            score = (before.score if before else 0.0) + weight * _rank_score(rank)
            found[hit.chunk_id] = replace(hit, score=score, score_kind="rrf")
    return _in_order(found.values())


def alternating(answers: Sequence[Sequence[Hit]]) -> list[Hit]:
    """Answers of different indexes as one, by reciprocal rank: their scores say nothing about each other (BM25 of two
    corpora, cosines, sums of ranks). The best of each come first, in the order of the indexes; what is found in two
    indexes is two hits. A single answer keeps its scores.
    """
    if len(answers) == 1:
        return list(answers[0])
    found = [
        replace(hit, score=_rank_score(rank), score_kind="rrf")
        for hits in answers
        for rank, hit in enumerate(hits, start=1)
    ]
    return sorted(found, key=lambda hit: -hit.score)


def _rank_score(rank: int) -> float:
    return 1.0 / (_RRF_K + rank)
