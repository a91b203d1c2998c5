"""Entities made of documents: how they are cut and embedded."""

from __future__ import annotations

from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, SecretStr, field_validator, model_validator

from instep.project.columns import DeclaredColumns, check_columns
from instep.project.entity import EntityBase
from instep.project.fields import Bytes, Columns, Model, Text, Variant, Whole, problem, typed
from instep.project.sources import ClickHouseSource, DeclaredDocuments, SparkSource

MAX_BUCKETS = 1024
MAX_DIMENSIONS = 65_536


class HashingEmbed(Variant):
    """Deterministic vectors from hashed words: offline, quick, no model."""

    type: Literal["hashing"] = "hashing"
    """`hashing`."""
    dimensions: Whole = Field(default=384, ge=1, le=MAX_DIMENSIONS)
    """Length of the vectors."""


class OpenAIEmbed(Variant):
    """An endpoint that speaks OpenAI's embeddings API."""

    type: Literal["openai"] = "openai"
    """`openai`."""
    url: Text = "https://api.openai.com/v1"
    """Base URL; `/embeddings` is added to it."""
    model: Text
    """Name of the model."""
    dimensions: Whole = Field(ge=1, le=MAX_DIMENSIONS)
    """Length of the vectors that the model gives."""
    api_key: SecretStr | None = None
    """Key sent as a bearer token; write `${OPENAI_API_KEY}`, never the key itself."""
    batch: Whole = Field(default=64, ge=1, le=2048)
    """Texts per request."""
    requests_per_minute: Whole | None = Field(default=None, ge=1)
    """Upper limit on requests of one process (each Spark worker counts by itself); none when left out."""

    @field_validator("url")
    @classmethod
    def _http(cls, value: str) -> str:
        if not value.lower().startswith(("http://", "https://")):
            raise problem("url", "must start with http:// or https://")
        return value.rstrip("/")


class SentenceTransformersEmbed(Variant):
    """A model run in this process by the sentence-transformers library (an extra)."""

    type: Literal["sentence-transformers"] = "sentence-transformers"
    """`sentence-transformers`."""
    model: Text
    """Name or folder of the model."""
    dimensions: Whole = Field(ge=1, le=MAX_DIMENSIONS)
    """Length of the vectors that the model gives."""


Embed: TypeAlias = HashingEmbed | OpenAIEmbed | SentenceTransformersEmbed
DeclaredEmbed: TypeAlias = Annotated[
    Embed,
    Field(discriminator="type"),
    typed("hashing", "openai", "sentence-transformers"),
]


class Chunk(Model):
    """The way in which documents are cut into chunks."""

    size: Whole = Field(default=800, ge=1, le=1_000_000)
    """Most characters in a chunk."""
    overlap: Whole = Field(default=0, ge=0)
    """Characters that a chunk repeats of the one before; less than `size`."""

    @model_validator(mode="after")
    def _overlap_below_size(self) -> Self:
        if self.overlap >= self.size:
            raise problem("overlap", "must be smaller than `size`", path=("overlap",))
        return self


class Limits(Model):
    """The limits of a document."""

    max_document_bytes: Bytes = 256_000_000
    """Largest document, such as `256MB`."""
    max_line_bytes: Bytes = 1_000_000
    """Longest line of a text document, such as `1MB`; a document with a longer one is a failure in any case."""
    max_chunks: Whole | None = Field(default=None, ge=1)
    """Most chunks of a document."""
    on_oversize: Literal["warn", "fail", "skip"] = "fail"
    """The treatment of a document over `max_document_bytes` or `max_chunks`: it is indexed all the same (`warn`, up to
    four times the bytes), it is a failure (`fail`), or it is left out (`skip`)."""


class RowDocument(Model):
    """The columns of a table that make a document of each row."""

    key: Columns
    """Column or columns that tell rows apart, and name the document; never null."""
    text: Text
    """Column with the text."""
    title: Text | None = None
    """Column with the title."""
    version: Text | None = None
    """Column that differs whenever the row has changed, such as `updated_at`. Without it a hash of title and text is
    worked out of every row in every run."""
    deleted: Text | None = None
    """Column that is true for rows that are deleted."""

    @model_validator(mode="after")
    def _columns_differ(self) -> Self:
        if self.title == self.text:
            raise problem("twice", "is the column of `text` already", path=("title",))
        return self


class DocumentEntity(EntityBase):
    """Documents: where they come from, how they are cut and embedded, where they land."""

    source: DeclaredDocuments
    """The place of the documents."""
    document: RowDocument | None = None
    """The columns of a table that make a document of each row."""
    columns: DeclaredColumns = Field(default_factory=dict)
    """Columns by which searches are filtered: each a type, or a mapping."""
    readers: str | None = None
    """Name of the column, a `string[]`, that says who may find a document: principals, or `public`. A document without
    any is found by nobody."""
    chunk: Chunk = Chunk()
    """The way in which they are cut."""
    embed: DeclaredEmbed = HashingEmbed()
    """The embedder, which makes vectors of chunks."""
    transform: str | None = None
    """`package.module:function`, from a DataFrame of chunk rows to another; needs Spark."""
    buckets: Whole = Field(default=16, ge=1, le=MAX_BUCKETS)
    """Number of routes; each document has exactly one, with one writer."""
    limits: Limits = Limits()
    """The limits of a document."""
    targets: tuple[str, ...] | None = Field(default=None, min_length=1)
    """Names of several targets, instead of `target`: each is brought up to date for itself, and holds the same."""

    @model_validator(mode="after")
    def _target_or_targets(self) -> Self:
        if self.target is not None and self.targets is not None:
            raise problem("conflict", "is there beside `target`: name all in `targets`", path=("targets",))
        return self

    @model_validator(mode="after")
    def _rows_of_tables(self) -> Self:
        if self.document is not None and not isinstance(self.source, SparkSource | ClickHouseSource):
            raise problem("conflict", "is for rows of a table, and the source is none", path=("document",))
        return self

    @model_validator(mode="after")
    def _columns_are_there(self) -> Self:
        check_columns(self)
        return self

    @property
    def needs_spark(self) -> bool:
        """Whether only Spark can read it, or run its transform."""
        return self.transform is not None or (isinstance(self.source, SparkSource) and not self.source.plain)
