"""The protocols of embedding APIs: OpenAI's, which most speak, Cohere's and Voyage's own."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, Protocol


@dataclass(frozen=True)
class Request:
    """A request for vectors of the model; `dimensions` are sent where it shortens them."""

    model: str
    texts: Sequence[str]
    dimensions: int | None = None


class EmbeddingProtocol(Protocol):
    """One way to ask for vectors, and to read the answer."""

    #: Its name in fingerprints; and what is added to the base URL.
    name: ClassVar[str]
    path: ClassVar[str]
    #: The most texts of a request, and the most bytes of them together, unless one alone has more.
    most_texts: ClassVar[int]
    most_bytes: ClassVar[int | None]

    @property
    def kind(self) -> tuple[str, ...]:
        """The kind of texts, where the vectors depend on it."""

    def body(self, asked: Request) -> dict[str, Any]: ...

    def items(self, answer: Any) -> Any:
        """The list of an answer's vectors, each a dictionary with `embedding` and maybe `index`; anything else if it
        has none.
        """

    def billed_tokens(self, answer: Any) -> int | None:
        """The tokens that an answer says are billed; None if it does not say."""

    def complaint(self, answer: dict[str, Any]) -> str: ...


#: More tokens than any request has.
_TOKENS: Final = 10**12


def _number_in(answer: Any, *path: str) -> int | None:
    """The amount at this place of an answer, also one such as 7.0, rounded up; None if there is none."""
    for name in path:
        answer = answer.get(name) if isinstance(answer, dict) else None
    if isinstance(answer, bool) or not isinstance(answer, int | float) or not 0 <= answer <= _TOKENS:
        return None
    return math.ceil(answer)


@dataclass(frozen=True)
class OpenAIProtocol:
    """https://platform.openai.com/docs/api-reference/embeddings, and who follows it: Azure, vLLM, TEI, Ollama, …"""

    name: ClassVar[str] = "openai"
    path: ClassVar[str] = "embeddings"
    most_texts: ClassVar[int] = 2_048
    most_bytes: ClassVar[int | None] = None
    kind: ClassVar[tuple[str, ...]] = ()

    def body(self, asked: Request) -> dict[str, Any]:
        made: dict[str, Any] = {"model": asked.model, "input": list(asked.texts), "encoding_format": "float"}
        return made | ({"dimensions": asked.dimensions} if asked.dimensions else {})

    def items(self, answer: Any) -> Any:
        return answer.get("data") if isinstance(answer, dict) else None

    def billed_tokens(self, answer: Any) -> int | None:
        told = _number_in(answer, "usage", "total_tokens")
        return _number_in(answer, "usage", "prompt_tokens") if told is None else told

    def complaint(self, answer: dict[str, Any]) -> str:
        error = answer.get("error", answer)  # TEI has the message outside.
        return str(error.get("message", "")) if isinstance(error, dict) else str(error)


@dataclass(frozen=True)
class CohereProtocol:
    """https://docs.cohere.com/reference/embed. Texts that are too long are refused, not cut."""

    input_type: Literal["search_document", "search_query"] = "search_document"
    name: ClassVar[str] = "cohere"
    path: ClassVar[str] = "embed"
    most_texts: ClassVar[int] = 96
    most_bytes: ClassVar[int | None] = None

    @property
    def kind(self) -> tuple[str, ...]:
        return (self.input_type,)

    def body(self, asked: Request) -> dict[str, Any]:
        made: dict[str, Any] = {"model": asked.model, "texts": list(asked.texts), "input_type": self.input_type}
        made |= {"embedding_types": ["float"], "truncate": "NONE"}
        return made | ({"output_dimension": asked.dimensions} if asked.dimensions else {})

    def items(self, answer: Any) -> Any:
        found = answer.get("embeddings") if isinstance(answer, dict) else None
        vectors = found.get("float") if isinstance(found, dict) else None
        return [{"embedding": each} for each in vectors] if isinstance(vectors, list) else None

    def billed_tokens(self, answer: Any) -> int | None:
        return _number_in(answer, "meta", "billed_units", "input_tokens")

    def complaint(self, answer: dict[str, Any]) -> str:
        return str(answer.get("message", ""))


@dataclass(frozen=True)
class VoyageProtocol:
    """https://docs.voyageai.com/reference/embeddings-api. Texts that are too long are refused, not cut."""

    input_type: Literal["document", "query"] = "document"
    name: ClassVar[str] = "voyage"
    path: ClassVar[str] = "embeddings"
    most_texts: ClassVar[int] = 1_000
    #: The most tokens of a request, whatever the model: a token stands for a byte at least.
    most_bytes: ClassVar[int | None] = 120_000

    @property
    def kind(self) -> tuple[str, ...]:
        return (self.input_type,)

    def body(self, asked: Request) -> dict[str, Any]:
        made: dict[str, Any] = {"model": asked.model, "input": list(asked.texts), "input_type": self.input_type}
        made |= {"truncation": False}
        return made | ({"output_dimension": asked.dimensions} if asked.dimensions else {})

    def items(self, answer: Any) -> Any:
        return answer.get("data") if isinstance(answer, dict) else None

    def billed_tokens(self, answer: Any) -> int | None:
        return _number_in(answer, "usage", "total_tokens")

    def complaint(self, answer: dict[str, Any]) -> str:
        return str(answer.get("detail", ""))


def requests(protocol: EmbeddingProtocol, texts: Sequence[str], batch: int) -> Iterator[Sequence[str]]:
    """The texts in their order, in as many requests as `batch` and the protocol's limits ask for."""
    most = min(batch, protocol.most_texts)
    start, size = 0, 0
    for at, text in enumerate(texts):
        length = len(text.encode()) if protocol.most_bytes is not None else 0
        full = protocol.most_bytes is not None and size + length > protocol.most_bytes
        if at > start and (at - start == most or full):
            yield texts[start:at]
            start, size = at, 0
        size += length
    if start < len(texts):
        yield texts[start:]
