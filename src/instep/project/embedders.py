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
    """Deterministic vectors from hashed words. Works offline and fast, without a model."""

    meaning: ClassVar[bool] = False
    """Whether texts of one meaning in different words are near to each other."""
    weight: ClassVar[float] = 1.0
    """Weight of its vectors beside words, unless declared."""
    type: Literal["hashing"] = "hashing"
    """`hashing`."""
    dimensions: Whole = Field(default=384, ge=1, le=MAX_DIMENSIONS)
    """Length of the vectors."""


class StaticEmbed(Variant):
    """A small model whose weights come with a package (the extra `static`). Works offline and fast, and knows what
    words mean. It is WordLlama: the vector of a text is the mean of its tokens' vectors."""

    meaning: ClassVar[bool] = True
    weight: ClassVar[float] = 0.5  # Chosen on Cranfield and CISI; see docs/quality.md.
    type: Literal["static"] = "static"
    """`static`."""
    dimensions: Literal[64, 128, 256] = 256
    """Length of the vectors: 64, 128 or 256."""


class ApiEmbed(Variant):
    """An endpoint that returns vectors."""

    meaning: ClassVar[bool] = True
    weight: ClassVar[float] = 1.0
    url: Text
    """Base URL; the rest of the address is added to it."""
    model: Text
    """Name of the model."""
    dimensions: Whole = Field(ge=1, le=MAX_DIMENSIONS)
    """Length of the vectors that the model returns."""
    shorten: bool = False
    """Whether to send `dimensions` with each request, so that the endpoint returns vectors of this length. The model
    must support it."""
    api_key: SecretStr | None = None
    """Key, sent as a bearer token. Write `${NAME}`, never the key itself."""
    requests_per_minute: Whole | None = Field(default=None, ge=1)
    """Maximum number of requests per minute of one process (each Spark worker counts separately). No limit if left out.
    """
    requests_at_once: Whole | None = Field(default=None, ge=1, le=1000)
    """Maximum number of requests in flight, of all workers together. No limit if left out. See
    [documents.md](documents.md#limits-of-an-endpoint)."""

    price: Real | None = Field(default=None, gt=0, le=MOST_MONEY, allow_inf_nan=False)
    """Price of a million tokens, in your currency. With it, `instep plan` shows what a run costs."""
    budget: Real | None = Field(default=None, ge=0, le=MOST_MONEY, allow_inf_nan=False)
    """Maximum cost of the entity's chunks in a calendar month (UTC), in the currency of `price`. A job stops before it
    exceeds the budget; see [money.md](money.md)."""

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
    """An endpoint with OpenAI's embeddings API."""

    type: Literal["openai"] = "openai"
    """`openai`."""
    url: Text = "https://api.openai.com/v1"
    """Base URL. `/embeddings` is added to its path, before a query such as `?api-version=…`."""
    api_key_header: HeaderName | None = None
    """Header for the key, such as Azure's `api-key`. Without it, the key is sent as a bearer token."""
    query_prompt: Text | None = None
    """Text put before each query, such as `"query: "` for E5. Quote it to keep the space at its end."""
    document_prompt: Text | None = None
    """Text put before each chunk that is embedded, such as `"passage: "`. It is not stored. Changing it embeds
    everything again."""
    batch: Whole = Field(default=64, ge=1, le=2048)
    """Texts per request."""
    batch_api: bool = False
    """Whether to embed with OpenAI's batch API, at half the price and within a day; see [money.md](money.md)."""

    @model_validator(mode="after")
    def _header_has_a_key(self) -> Self:
        if self.api_key_header is not None and self.api_key is None:
            raise problem("required", "is missing: `api_key_header` says where it is sent", path=("api_key",))
        return self

    @model_validator(mode="after")
    def _batches_have_files(self) -> Self:
        if self.batch_api and "?" in self.url:
            message = "needs the API's own base URL: a deployment, whose URL has a query, has no files and batches"
            raise problem("batch_api", message, path=("batch_api",))
        return self


class CohereEmbed(ApiEmbed):
    """Cohere's own embeddings API, version 2. Requests say whether their texts are chunks or queries."""

    type: Literal["cohere"] = "cohere"
    """`cohere`."""
    url: Text = "https://api.cohere.com/v2"
    """Base URL. `/embed` is added to it."""
    batch: Whole = Field(default=96, ge=1, le=96)
    """Texts per request, at most 96."""


class VoyageEmbed(ApiEmbed):
    """Voyage's own embeddings API. Requests say whether their texts are chunks or queries."""

    type: Literal["voyage"] = "voyage"
    """`voyage`."""
    url: Text = "https://api.voyageai.com/v1"
    """Base URL. `/embeddings` is added to it."""
    batch: Whole = Field(default=128, ge=1, le=1000)
    """Maximum number of texts per request. A request also has at most 120,000 bytes of text, because every model
    accepts that many tokens."""


class SentenceTransformersEmbed(Variant):
    """A model run in this process by the library sentence-transformers (an extra)."""

    meaning: ClassVar[bool] = True
    weight: ClassVar[float] = 1.0
    type: Literal["sentence-transformers"] = "sentence-transformers"
    """`sentence-transformers`."""
    model: Text
    """Name or folder of the model."""
    dimensions: Whole = Field(ge=1, le=MAX_DIMENSIONS)
    """Length of the vectors that the model returns."""
    query_prompt: Text | None = None
    """Text put before each query, instead of a prompt that the model itself may have."""
    document_prompt: Text | None = None
    """Text put before each chunk that is embedded, instead of a prompt that the model itself may have. It is not
    stored."""


class FastembedEmbed(Variant):
    """A model in ONNX, run in this process by the library fastembed (an extra). Needs no PyTorch."""

    meaning: ClassVar[bool] = True
    weight: ClassVar[float] = 1.0
    type: Literal["fastembed"] = "fastembed"
    """`fastembed`."""
    model: Text
    """Name of a model that fastembed knows and downloads, or a folder with a model in ONNX and its tokenizer."""
    dimensions: Whole = Field(ge=1, le=MAX_DIMENSIONS)
    """Length of the vectors that the model returns."""
    pooling: Literal["mean", "cls", "last_token", "disabled"] = "mean"
    """For a model in a folder: method of making one vector from those of the tokens, as in the model's training.
    `disabled` is for a model that returns one vector for a text."""
    query_prompt: Text | None = None
    """Text put before each query."""
    document_prompt: Text | None = None
    """Text put before each chunk that is embedded. It is not stored."""


class PythonEmbed(Variant):
    """Your function, from texts to vectors; see [functions.md](functions.md)."""

    meaning: ClassVar[bool] = True
    weight: ClassVar[float] = 1.0
    type: Literal["python"] = "python"
    """`python`."""
    function: FunctionName
    """`package.module:function`, from a list of texts to a vector for each."""
    query_function: FunctionName | None = None
    """Function for queries, if they are embedded in another way than chunks."""
    dimensions: Whole = Field(ge=1, le=MAX_DIMENSIONS)
    """Length of the vectors."""
    batch: Whole = Field(default=256, ge=1, le=65_536)
    """Maximum number of texts in one call."""
    cache: bool = True
    """Whether to cache vectors, by the function's code and the text. Use `false` if a look-up costs more than the
    function."""


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
