"""The way in which an entity's documents are searched: mode, words and how much each counts, reranker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal, Protocol, Self, TypeAlias

from pydantic import Field, SecretStr, field_validator, model_validator

from instep.domain.document_columns import DocumentColumnType
from instep.domain.words import LANGUAGES, SEARCHED_BY_DEFAULT, Searched
from instep.project.columns import Column
from instep.project.fields import Duration, FunctionName, Model, Real, Text, Variant, Whole, http_url, problem, typed

Boosts: TypeAlias = dict[str, Annotated[Whole, Field(ge=0, le=10)]]

_DEFAULT: Final[Mapping[str, int]] = dict(SEARCHED_BY_DEFAULT.weights)


def checked_language(value: str) -> str:
    """Raises a validation error for a language without stems."""
    if value not in LANGUAGES:
        raise problem("language", "is not one of the allowed values", allowed=list(LANGUAGES))
    return value


#: Hits that a reranker looks at, at most.
MAX_RERANKED: Final = 200


class Weights(Model):
    """Weights of the two lists of a hybrid search. The score of a hit is the sum of weight / (60 + rank) over both
    lists."""

    text: Real = Field(default=1.0, ge=0, le=1000, allow_inf_nan=False)
    """Weight of the list found by words."""
    vector: Real | None = Field(default=None, ge=0, le=1000, allow_inf_nan=False)
    """Weight of the list found by vectors. If left out: 1, or 0.5 with the embedder `static`."""

    @model_validator(mode="after")
    def _something_counts(self) -> Self:
        if self.text == self.vector == 0:
            raise problem("weights", "are both 0: nothing would be found")
        return self


class HttpRerank(Variant):
    """An endpoint that reranks hits."""

    type: Literal["http"] = "http"
    """`http`."""
    url: Text
    """Address of the endpoint, such as `https://api.cohere.com/v2/rerank` or `http://host:8080/rerank`."""
    model: Text | None = None
    """Name of the model, if the endpoint has several."""
    protocol: Literal["cohere", "tei"] = "cohere"
    """Protocol: `cohere` (also Jina, vLLM, Infinity, LiteLLM), or `tei` (Hugging Face's text-embeddings-inference)."""
    api_key: SecretStr | None = None
    """Key, sent as a bearer token. Write `${COHERE_API_KEY}`, never the key itself."""
    top: Whole = Field(default=50, ge=2, le=MAX_RERANKED)
    """Number of first hits to rerank, from 2 to 200."""
    timeout: Duration = Field(default=5_000, json_schema_extra={"default": "5s"})
    """Maximum time to wait for an answer, such as `2s`. After that, the hits keep their order."""

    @field_validator("url")
    @classmethod
    def _http(cls, value: str) -> str:
        return http_url(value)


class SentenceTransformersRerank(Variant):
    """A cross-encoder run in this process by the library sentence-transformers (an extra)."""

    type: Literal["sentence-transformers"] = "sentence-transformers"
    """`sentence-transformers`."""
    model: Text
    """Name or folder of the model, such as `cross-encoder/ms-marco-MiniLM-L6-v2`."""
    top: Whole = Field(default=50, ge=2, le=MAX_RERANKED)
    """Number of first hits to rerank, from 2 to 200."""


class PythonRerank(Variant):
    """Your function, from a query and texts to a score for each; see [functions.md](functions.md#reranking)."""

    type: Literal["python"] = "python"
    """`python`."""
    function: FunctionName
    """`package.module:function`, from a query and a list of texts to a list of numbers."""
    top: Whole = Field(default=50, ge=2, le=MAX_RERANKED)
    """Number of first hits to rerank, from 2 to 200."""


Rerank: TypeAlias = HttpRerank | SentenceTransformersRerank | PythonRerank
DeclaredRerank: TypeAlias = Annotated[
    Rerank, Field(discriminator="type"), typed("http", "sentence-transformers", "python")
]


class Searching(Model):
    """Settings for searching an entity."""

    mode: Literal["text", "vector", "hybrid"] | None = None
    """Default mode of searches: `text`, `vector` or `hybrid`. If left out: `hybrid`, or `text` with the embedder
    `hashing`, which does not know what words mean."""
    weights: Weights = Weights()
    """Weights of the two lists of a hybrid search."""
    rerank: DeclaredRerank | None = None
    """Model that reorders the first hits."""
    language: Text = "english"
    """Language of the texts, for stems: `printer` finds `printers`. `none` finds words only as they are."""
    boosts: Boosts = Field(default_factory=dict)
    """Columns that are searched by words, each with a factor for its words from 1 to 10; 0 leaves a column out.
    Defaults: `title` 2, `text` 1, declared columns 0."""

    @field_validator("language")
    @classmethod
    def _known(cls, value: str) -> str:
        return checked_language(value)


class DeclaredSearch(Protocol):
    """The declaration, as far as words depend on it."""

    @property
    def language(self) -> str: ...
    @property
    def boosts(self) -> Mapping[str, int]: ...


class WithSearch(Protocol):
    """An entity of documents, as far as its search depends on it."""

    @property
    def columns(self) -> Mapping[str, Column]: ...
    @property
    def search(self) -> DeclaredSearch: ...
    @property
    def readers(self) -> str | None: ...


def check_search(entity: WithSearch) -> None:
    """Check that all that is searched has texts, and is no secret: words of readers would find documents by who else
    may read them. Raises a validation error.
    """
    texts = {DocumentColumnType.STRING, DocumentColumnType.STRINGS}
    allowed = [*_DEFAULT, *(name for name, column in entity.columns.items() if column.type in texts)]
    if entity.readers in allowed:
        allowed.remove(entity.readers)
    for name in entity.search.boosts:
        if name not in allowed:
            message = "is neither title nor text, nor a declared column of strings"
            if name == entity.readers:
                message = "says who may read documents: it is not searched"
            raise problem("boosts", message, path=("search", "boosts", name), allowed=allowed)
    if not searched_of(entity).weights:
        raise problem("boosts", "leave no column to search", path=("search", "boosts"))


def searched_of(entity: WithSearch) -> Searched:
    """In one order, however it is declared."""
    boosts = {**_DEFAULT, **dict(sorted(entity.search.boosts.items()))}
    return Searched(entity.search.language, tuple((name, count) for name, count in boosts.items() if count))
