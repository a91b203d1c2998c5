"""The embedder of an entity, made of its declaration, and its trial before anything is embedded."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from typing import Final

from instep.domain.money import Tariff
from instep.error_transport import missing
from instep.errors import Away, Transient
from instep.pipeline.documents.embed.embedder import Embedder, probe
from instep.project import (
    CohereEmbed,
    Embed,
    FastembedEmbed,
    HashingEmbed,
    OpenAIEmbed,
    PythonEmbed,
    StaticEmbed,
    VoyageEmbed,
)
from instep.project.embedders import ApiEmbed

#: Time of a row with the static model, in times of one with hashing: measured, 30,000 texts of 700 characters took 9 s
#: more than with hashing, which is taken to do 36,000 rows a second on two cores. The same is believed of a function
#: whose vectors are not worth keeping.
_QUICK: Final = 10.0
#: The same of a larger model, or one behind a network: 180 texts a second and core.
_SLOW: Final = 100.0
#: The package that an embedder of a type needs.
_PACKAGES: Final = {
    "static": "wordllama",
    "fastembed": "fastembed",
    "sentence-transformers": "sentence_transformers",
    **dict.fromkeys(("openai", "cohere", "voyage"), "httpx"),
}
#: Seconds to wait for one text before a job is made, and after which the wait is reported.
_ANSWER_SECONDS: Final = 60.0
_LATE_SECONDS: Final = 5.0


def embedder_of(declared: Embed, *, queries: bool = False) -> Embedder:
    """Make the declared embedder: of chunks, or of queries, before which some models want other words."""
    if isinstance(declared, HashingEmbed):
        from instep.pipeline.documents.embed.hashing import HashingEmbedder

        return HashingEmbedder(declared.dimensions)
    if isinstance(declared, StaticEmbed):
        from instep.pipeline.documents.embed.static import StaticEmbedder

        return StaticEmbedder(declared.dimensions)
    if isinstance(declared, PythonEmbed):
        from instep.pipeline.documents.functions import FunctionEmbedder, OwnFunction

        name = (declared.query_function if queries else None) or declared.function
        own = OwnFunction.of(name, "embed.function")
        return FunctionEmbedder(own, declared.dimensions, declared.batch, declared.cache)
    if isinstance(declared, OpenAIEmbed | CohereEmbed | VoyageEmbed):
        return _of_api(declared, queries)
    prompt = (declared.query_prompt if queries else declared.document_prompt) or ""
    if isinstance(declared, FastembedEmbed):
        from instep.pipeline.documents.embed.fastembed import FastembedEmbedder

        return FastembedEmbedder(declared.model, declared.dimensions, prompt=prompt, pooling=declared.pooling)
    from instep.pipeline.documents.embed.sentence_transformers import SentenceTransformersEmbedder

    return SentenceTransformersEmbedder(declared.model, declared.dimensions, prompt=prompt)


def _of_api(declared: OpenAIEmbed | CohereEmbed | VoyageEmbed, queries: bool) -> Embedder:
    from instep.pipeline.documents.embed import protocols
    from instep.pipeline.documents.embed.http import HttpEmbedder

    prompt, header = "", None
    protocol: protocols.EmbeddingProtocol
    if isinstance(declared, OpenAIEmbed):
        prompt = (declared.query_prompt if queries else declared.document_prompt) or ""
        header = declared.api_key_header
        protocol = protocols.OpenAIProtocol()
    elif isinstance(declared, CohereEmbed):
        protocol = protocols.CohereProtocol("search_query" if queries else "search_document")
    else:
        protocol = protocols.VoyageProtocol("query" if queries else "document")
    return HttpEmbedder(
        url=declared.url,
        model=declared.model,
        dimensions=declared.dimensions,
        prompt=prompt,
        shorten=declared.shorten,
        api_key=declared.api_key.get_secret_value() if declared.api_key else None,
        api_key_header=header,
        batch=declared.batch,
        requests_per_minute=declared.requests_per_minute,
        requests_at_once=declared.requests_at_once,
        protocol=protocol,
    )


def demand_package(declared: Embed) -> None:
    """Raises `UserError` if the package that the embedder needs is not installed."""
    name = _PACKAGES.get(declared.type)
    if name is not None and find_spec(name) is None:
        raise missing(ModuleNotFoundError(name=name))


def tariff_of(declared: Embed) -> Tariff | None:
    """The price and the budget of an embedder; None if it costs nothing."""
    if not isinstance(declared, ApiEmbed):
        return None
    return Tariff(declared.model, declared.price, declared.budget, _batched(declared))


def _batched(declared: Embed) -> bool:
    return isinstance(declared, OpenAIEmbed) and declared.batch_api


def embedding_time_of(declared: Embed) -> float:
    """Time of a row before any was measured, in times of one with the hashing embedder."""
    if isinstance(declared, HashingEmbed) or _batched(declared):
        return 1.0  # What a batch API embeds is there when rows are made.
    quick = isinstance(declared, StaticEmbed) or (isinstance(declared, PythonEmbed) and not declared.cache)
    return _QUICK if quick else _SLOW


def trial_of(declared: Embed, cache: str) -> Callable[[Callable[[str], None]], None] | None:
    """The trial of the embedder with one text, which tells when that takes long; None if it cannot fail. It raises
    `UserError` for an embedder that cannot embed any text, and `Away` for one that does not answer.
    """
    return None if isinstance(declared, HashingEmbed) else partial(_try, declared, cache)


def _try(declared: Embed, cache: str, say: Callable[[str], None]) -> None:
    from instep.pipeline.documents.embed.http import HttpEmbedder
    from instep.pipeline.documents.vectors import EmbeddingCache

    made = embedder_of(declared)
    # An embedder that has worked before is not tried here: all vectors may be cached.
    if made.cached and EmbeddingCache(cache, made.fingerprint, made.dimensions).exists:
        return
    if isinstance(made, HttpEmbedder):
        made = replace(made, attempts=1, timeout=_ANSWER_SECONDS)
    began = time.monotonic()
    late = threading.Timer(_LATE_SECONDS, say, ["the embedder has not answered yet"])
    late.start()
    try:
        probe(made)
    except Transient as error:
        # Another outage is retried when vectors are needed; this one has been waited for.
        if time.monotonic() - began >= _ANSWER_SECONDS:
            raise Away(str(error), hint="Is its model still being loaded? Run again when it answers.") from error
    finally:
        late.cancel()
