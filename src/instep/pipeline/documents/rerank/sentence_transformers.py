"""Scores from a cross-encoder that runs in this process, through the sentence-transformers library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from instep.pipeline.documents.rerank.reranker import checked_scores
from instep.pipeline.documents.sentence_models import load


@dataclass(frozen=True)
class CrossEncoderReranker:
    """Reranks by a cross-encoder. `model` is a name or a folder; it is loaded once per process, at the first query."""

    model: str

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        model = load("CrossEncoder", self.model, "search.rerank")
        made = model.predict([(query, each) for each in texts], show_progress_bar=False)
        return checked_scores(made, len(texts), f"the reranker {self.model}")
