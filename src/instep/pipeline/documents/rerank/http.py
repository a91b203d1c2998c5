"""Scores from an endpoint that reranks: as Cohere, Jina, vLLM and others speak it, or Hugging Face's TEI."""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from instep.domain.texts import cleaned, without
from instep.errors import Transient, UserError
from instep.pipeline.documents.rerank.reranker import checked_scores
from instep.servers.http import Answer, TooLarge, ask, headers

if TYPE_CHECKING:
    import httpx

_CHECK = "Check `url`, `model`, `protocol` and `api_key` under `search.rerank`."
#: Characters of a text that are sent: no reranker reads more.
_LONGEST = 20_000
#: Bytes of an answer: some send back the texts, 200 at most (`top`), each letter in up to 8 bytes.
_LARGEST = 200 * 8 * _LONGEST


@dataclass(frozen=True)
class HttpReranker:
    """Asks `url` once, for `timeout` seconds at most: a person waits for the answer.

    `protocol`: `cohere` sends `query`, `documents` and `top_n`, and reads `results` with `index` and `relevance_score`
    (https://docs.cohere.com/reference/rerank); `tei` sends `query` and `texts`, and reads a list with `index` and
    `score` (https://huggingface.github.io/text-embeddings-inference).
    """

    url: str
    model: str | None = None
    protocol: Literal["cohere", "tei"] = "cohere"
    api_key: str | None = field(default=None, repr=False)
    timeout: float = 5.0

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        import httpx

        sent = [each[:_LONGEST] for each in texts]
        body: dict[str, Any] = {"query": query, "texts": sent, "truncate": True}
        if self.protocol == "cohere":
            body = {"query": query, "documents": sent, "top_n": len(sent)}
        if self.model:
            body["model"] = self.model
        client = _client(self.url, self.api_key, self.timeout)
        try:
            response = ask(client, "POST", self.url, seconds=self.timeout, most=_LARGEST, json=body)
        except (TimeoutError, httpx.TimeoutException):
            raise Transient(f"the reranker gave no answer within {self.timeout:g} s") from None
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, httpx.LocalProtocolError):
            raise UserError("no request can be made of the reranker's `url` and `api_key`", hint=_CHECK) from None
        except TooLarge as error:
            raise Transient(f"the reranker cannot be used now: {error}") from None
        except httpx.RequestError as error:
            raise Transient(f"the reranker is out of reach: {type(error).__name__}") from None
        if response.is_passing:
            raise Transient(f"the reranker answered {response.status}")
        if not response.is_success:
            raise UserError(f"the reranker refuses it ({response.status}): {self._complaint(response)}", hint=_CHECK)
        return self._read(response, len(sent))

    def _read(self, response: Answer, count: int) -> list[float]:
        """The scores in the order of the texts."""
        try:
            answer = response.json()
            items = answer if isinstance(answer, list) else answer["results"]
            found = {each["index"]: each.get("relevance_score", each.get("score")) for each in items}
            scores = [found[at] for at in range(count)]
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise UserError("the reranker's answer has no score for each text", hint=_CHECK) from None
        return checked_scores(scores, count, "the reranker")

    def _complaint(self, response: Answer) -> str:
        text = response.text[:1_000]
        return cleaned(without(text, self.api_key))


@functools.lru_cache(maxsize=8)
def _client(url: str, api_key: str | None, timeout: float) -> httpx.Client:
    """One client for each endpoint of a process: connections are kept open."""
    import httpx

    try:
        return httpx.Client(headers=headers(api_key), timeout=timeout)
    except UnicodeError:
        raise UserError("no request can be made with the reranker's `api_key`", hint=_CHECK) from None


# A forked process opens connections of its own.
os.register_at_fork(after_in_child=_client.cache_clear)


def demand_installed() -> None:
    """Check that requests can be made. Raises `UserError` if not."""
    try:
        import httpx  # noqa: F401
    except ImportError:
        raise UserError("a reranker by HTTP needs httpx", hint="Run: pip install 'instep[openai]'") from None
