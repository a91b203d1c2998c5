"""Scores from a cross-encoder that runs in this process, through the sentence-transformers library."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from instep.errors import UserError
from instep.pipeline.documents.rerank.reranker import checked_scores


@dataclass(frozen=True)
class CrossEncoderReranker:
    """`model` is a name or a folder; it is loaded once per process, at the first query."""

    model: str

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        made = _model(self.model).predict([(query, each) for each in texts], show_progress_bar=False)
        return checked_scores(made, len(texts), f"the reranker {self.model}")


@functools.lru_cache(maxsize=2)
def _model(name: str) -> Any:
    try:
        from sentence_transformers import CrossEncoder
    except ImportError:
        raise UserError(
            "the package sentence-transformers is not installed",
            where="search.rerank",
            hint="Run: pip install 'instep[sentence-transformers]'",
        ) from None
    try:
        return CrossEncoder(name)
    except (OSError, ValueError) as error:
        raise UserError(
            f"model {name!r} cannot be loaded: {type(error).__name__}",
            where="search.rerank",
            hint="Check `model` under `search.rerank`.",
        ) from error
