"""The reranker of an entity, made of its declaration."""

from __future__ import annotations

from instep.pipeline.documents.rerank.reranker import Reranking
from instep.project.search import HttpRerank, Rerank, SentenceTransformersRerank


def reranking_of(declared: Rerank | None) -> Reranking | None:
    """Make the declared reranker. Raises `UserError` if what it needs is not installed."""
    if declared is None:
        return None
    if isinstance(declared, HttpRerank):
        from instep.pipeline.documents.rerank.http import HttpReranker, demand_installed

        demand_installed()
        key = declared.api_key.get_secret_value() if declared.api_key else None
        made = HttpReranker(declared.url, declared.model, declared.protocol, key, declared.timeout / 1000)
        return Reranking(made, declared.top)
    if isinstance(declared, SentenceTransformersRerank):
        from instep.pipeline.documents.rerank.sentence_transformers import CrossEncoderReranker

        return Reranking(CrossEncoderReranker(declared.model), declared.top)
    from instep.pipeline.documents.functions import OwnFunction
    from instep.pipeline.documents.rerank.function import FunctionReranker

    return Reranking(FunctionReranker(OwnFunction.of(declared.function, "search.rerank.function")), declared.top)
