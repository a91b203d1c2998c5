"""The port of rerankers, and the order that they make of hits."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from instep.errors import UserError
from instep.targets.document_target import Hit


class Reranker(Protocol):
    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """Score each text by how well it answers the query: higher is better, within one call. Raises `Transient` when
        it is out of reach, `UserError` when it cannot work at all.
        """


@dataclass(frozen=True)
class Reranking:
    """A reranker, and how many of the first hits it looks at."""

    reranker: Reranker
    top: int

    def ordered(self, query: str, hits: Sequence[Hit]) -> list[Hit]:
        """The first hits in the order of their new scores, those with the same in the one that they had, and the others
        behind them as they were.
        """
        first = hits[: self.top]
        if len(first) < 2:
            return list(hits)
        scores = self.reranker.scores(query, [_text(hit) for hit in first])
        scored = [replace(hit, score=score, score_kind="rerank") for hit, score in zip(first, scores, strict=True)]
        return [*sorted(scored, key=lambda hit: -hit.score), *hits[self.top :]]


def _text(hit: Hit) -> str:
    return f"{hit.title}\n\n{hit.text}" if hit.title else hit.text


def checked_scores(scores: Any, count: int, who: str) -> list[float]:
    """Scores as numbers, one for each text. Raises `UserError` saying what `who` gave instead."""
    try:
        found = [_number(each) for each in scores]
    except (TypeError, ValueError, OverflowError):
        raise UserError(f"{who} gave something other than a number for each text") from None
    if len(found) != count or not all(map(math.isfinite, found)):
        raise UserError(f"{who} gave {len(found)} scores for {count} texts, or some that are not numbers")
    return found


def _number(score: Any) -> float:
    """The score, if it is a number: one in quotes is none."""
    if isinstance(score, str | bytes):
        raise TypeError
    return float(score)
