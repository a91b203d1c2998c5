"""Embedders: what makes vectors of chunks and queries."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal, Self, TypeAlias

from pydantic import Field, SecretStr, field_validator, model_validator

from instep.project.fields import FunctionName, Real, Text, Variant, Whole, http_url, problem, typed

MAX_DIMENSIONS = 65_536
HeaderName: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")]
#: The ledger keeps amounts as whole billionths, of 64 bits.
MOST_MONEY: Final = 10**9


class HashingEmbed(Variant):
    """Deterministic vectors from hashed words: offline, quick, no model."""

    meaning: ClassVar[bool] = False
    """Whether texts of one meaning in different words are near to each other."""
    weight: ClassVar[float] = 1.0
    """Weight of its vectors beside words, unless told."""
    type: Literal["hashing"] = "hashing"
    """`hashing`."""
    dimensions: Whole = Field(default=384, ge=1, le=MAX_DIMENSIONS)
    """Length of the vectors."""


class StaticEmbed(Variant):
    """A small model whose weights come with a package (the extra `static`): offline, quick, and it knows what words
    mean. WordLlama: each text is the mean of its tokens' vectors."""

    meaning: ClassVar[bool] = True
    weight: ClassVar[float] = 0.5  # Chosen on Cranfield and CISI; see docs/quality.md.
    type: Literal["static"] = "static"
    """`static`."""
    dimensions: Literal[64, 128, 256] = 256
    """Length of the vectors: the model can be cut to a half or a quarter."""


class ApiEmbed(Variant):
    """An endpoint that gives vectors."""

    meaning: ClassVar[bool] = True
    weight: ClassVar[float] = 1.0
    url: Text
    """Base URL; the rest of the address is added to it."""
    model: Text
    """Name of the model."""
    dimensions: Whole = Field(ge=1, le=MAX_DIMENSIONS)
    """Length of the vectors that the model gives."""
    shorten: bool = False
    """Send `dimensions` along: the endpoint then gives vectors of this length, if its model can."""
    api_key: SecretStr | None = None
    """Key sent as a bearer token; write it as `${NAME}`, never the key itself."""
    requests_per_minute: Whole | None = Field(default=None, ge=1)
    """Upper limit on requests of one process (each Spark worker counts by itself); none when left out."""
    requests_at_once: Whole | None = Field(default=None, ge=1, le=1000)
    """Upper limit on requests that wait for an answer at the same time, of all workers together; see
    [documents.md](documents.md#limits-of-an-endpoint). None when left out."""

    price: Real | None = Field(default=None, gt=0, le=MOST_MONEY, allow_inf_nan=False)
    """Price of a million tokens, in your currency: `instep plan` then says what a run costs."""
    budget: Real | None = Field(default=None, ge=0, le=MOST_MONEY, allow_inf_nan=False)
    """The most that may be spent on the entity's chunks in a calendar month (UTC), in the currency of `price`. A job
    stops before it would be exceeded; see [money.md](money.md)."""

    @field_validator("url")
    @classmethod
    def _http(cls, value: str) -> str:
        base, mark, query = http_url(value).partition("?")
        return base.rstrip("/") + mark + query

    @model_validator(mode="after")
    def _budget_has_a_price(self) -> Self:
        if self.budget is not None and self.price is None:
            raise problem("required", "is missing: a budget needs the price of a million tokens", path=("price",))
        return self


class OpenAIEmbed(ApiEmbed):
    """An endpoint that speaks OpenAI's embeddings API."""

    type: Literal["openai"] = "openai"
    """`openai`."""
    url: Text = "https://api.openai.com/v1"
    """Base URL; `/embeddings` is added to it, before its query (`?api-version=…`), if it has one."""
    api_key_header: HeaderName | None = None
    """Header in which the key is sent as it is, such as Azure's `api-key`; as a bearer token when left out."""
    query_prompt: Text | None = None
    """Text put before each query, such as `"query: "` for E5; stands in quotes, for the space at its end."""
    document_prompt: Text | None = None
    """Text put before each chunk that is embedded, such as `"passage: "`; it is not stored."""
    batch: Whole = Field(default=64, ge=1, le=2048)
    """Texts per request."""
    batch_api: bool = False
    """Embed by OpenAI's batch API: at half the price, and within a day; see [money.md](money.md)."""

    @model_validator(mode="after")
    def _header_has_a_key(self) -> Self:
        if self.api_key_header is not None and self.api_key is None:
            raise problem("required", "is missing: `api_key_header` says where it is sent", path=("api_key",))
        return self

    @model_validator(mode="after")
    def _batches_have_files(self) -> Self:
        if self.batch_api and "?" in self.url:
            message = "needs the API's own base URL: a deployment, whose URL has a query, knows no files and batches"
            raise problem("batch_api", message, path=("batch_api",))
        return self


class CohereEmbed(ApiEmbed):
    """Cohere's own embeddings API, version 2: it is told which texts are chunks and which are queries."""

    type: Literal["cohere"] = "cohere"
    """`cohere`."""
    url: Text = "https://api.cohere.com/v2"
    """Base URL; `/embed` is added to it."""
    batch: Whole = Field(default=96, ge=1, le=96)
    """Texts per request."""


class VoyageEmbed(ApiEmbed):
    """Voyage's own embeddings API: it is told which texts are chunks and which are queries."""

    type: Literal["voyage"] = "voyage"
    """`voyage`."""
    url: Text = "https://api.voyageai.com/v1"
    """Base URL; `/embeddings` is added to it."""
    batch: Whole = Field(default=128, ge=1, le=1000)
    """Texts per request, as long as they have 120,000 bytes together at most: so many tokens every model takes."""


class SentenceTransformersEmbed(Variant):
    """A model run in this process by the sentence-transformers library (an extra)."""

    meaning: ClassVar[bool] = True
    weight: ClassVar[float] = 1.0
    type: Literal["sentence-transformers"] = "sentence-transformers"
    """`sentence-transformers`."""
    model: Text
    """Name or folder of the model."""
    dimensions: Whole = Field(ge=1, le=MAX_DIMENSIONS)
    """Length of the vectors that the model gives."""
    query_prompt: Text | None = None
    """Text put before each query."""
    document_prompt: Text | None = None
    """Text put before each chunk that is embedded; it is not stored."""


class FastembedEmbed(Variant):
    """A model in ONNX run in this process by the library fastembed (an extra), which needs no PyTorch."""

    meaning: ClassVar[bool] = True
    weight: ClassVar[float] = 1.0
    type: Literal["fastembed"] = "fastembed"
    """`fastembed`."""
    model: Text
    """Name of a model that fastembed knows, which it downloads; or a folder with a model in ONNX and its tokenizer."""
    dimensions: Whole = Field(ge=1, le=MAX_DIMENSIONS)
    """Length of the vectors that the model gives."""
    pooling: Literal["mean", "cls", "last_token", "disabled"] = "mean"
    """For a folder: how the vectors of tokens become one, as the model was trained."""
    query_prompt: Text | None = None
    """Text put before each query."""
    document_prompt: Text | None = None
    """Text put before each chunk that is embedded; it is not stored."""


class PythonEmbed(Variant):
    """A function of yours, from texts to vectors; see [functions.md](functions.md)."""

    meaning: ClassVar[bool] = True
    weight: ClassVar[float] = 1.0
    type: Literal["python"] = "python"
    """`python`."""
    function: FunctionName
    """`package.module:function`, from a list of texts to a vector for each."""
    query_function: FunctionName | None = None
    """The same for queries, if they are embedded in another way."""
    dimensions: Whole = Field(ge=1, le=MAX_DIMENSIONS)
    """Length of the vectors."""
    batch: Whole = Field(default=256, ge=1, le=65_536)
    """Texts in one call."""
    cache: bool = True
    """Keep vectors, by the function's code and the text; `false` where looking them up costs more than the function."""


Embed: TypeAlias = (
    HashingEmbed
    | StaticEmbed
    | OpenAIEmbed
    | CohereEmbed
    | VoyageEmbed
    | SentenceTransformersEmbed
    | FastembedEmbed
    | PythonEmbed
)
DeclaredEmbed: TypeAlias = Annotated[
    Embed,
    Field(discriminator="type"),
    typed("hashing", "static", "openai", "cohere", "voyage", "sentence-transformers", "fastembed", "python"),
]
#: Embedders of which it is known how they count tokens.
TOKENIZED: Final = StaticEmbed | OpenAIEmbed | SentenceTransformersEmbed | FastembedEmbed
