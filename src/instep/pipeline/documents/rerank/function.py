"""Scores from a function of the project."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from instep.errors import UserError
from instep.pipeline.documents.functions import FunctionFailed, OwnFunction
from instep.pipeline.documents.rerank.reranker import checked_scores


class RerankFunction(Protocol):
    """A query and texts → how well each text answers it: higher is better."""

    def __call__(self, query: str, texts: list[str], /) -> Sequence[float]: ...


@dataclass(frozen=True)
class FunctionReranker:
    own: OwnFunction

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        try:
            made = self.own.call(query, list(texts), counted=False)
        except FunctionFailed as error:
            raise UserError(f"it cannot rerank: {error}", where=self.own.name) from error
        return checked_scores(made, len(texts), self.own.name)
