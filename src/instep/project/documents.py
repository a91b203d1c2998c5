"""Entities made of documents: how they are cut and embedded."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, Self, TypeAlias

from pydantic import BeforeValidator, Field, WithJsonSchema, field_validator, model_validator

from instep.domain.relevance import Demand, is_metric
from instep.project.columns import DeclaredColumns, check_columns
from instep.project.embedders import TOKENIZED, ApiEmbed, DeclaredEmbed, HashingEmbed, OpenAIEmbed, PythonEmbed
from instep.project.entity import EntityBase
from instep.project.fields import (
    AnyColumns,
    Bytes,
    Columns,
    Duration,
    FunctionName,
    Model,
    Text,
    Variant,
    Whole,
    problem,
    typed,
)
from instep.project.search import PythonRerank, Searching, check_search
from instep.project.sources import (
    ClickHouseSource,
    DeclaredDocuments,
    DeclaredTable,
    DeltaSource,
    FeedSource,
    FilesSource,
    IcebergSource,
    KafkaSource,
    LakeSource,
    PythonSource,
    SparkSource,
)

MAX_BUCKETS = 1024


def _demanded(value: Any) -> Any:
    try:
        Demand.parse("mrr", value)
    except ValueError as error:
        raise problem("demand", str(error)) from error
    return value


DemandedValue: TypeAlias = Annotated[
    float | str, BeforeValidator(_demanded), WithJsonSchema({"type": ["number", "string"]})
]


class Promotion(Model):
    """Quality that a new build must reach before it replaces the served one; see [quality.md](quality.md)."""

    queries: Text
    """File of judged queries, relative to the project: lines of JSON, or lines with an id, a tab and a query."""
    judgements: Text | None = None
    """File of judgements in the format of TREC or BEIR. Required if `queries` contains none."""
    at_least: dict[str, DemandedValue] = Field(min_length=1)
    """Minimum score for each metric: `ndcg@10`, `recall@10` (the number is from 1 to 100) or `mrr`. A value such as
    `0.3` or `30%`, or a share of the served build's score, such as `0.98 of served` or `98% of served`."""

    @field_validator("at_least")
    @classmethod
    def _means_something(cls, value: dict[str, float | str]) -> dict[str, float | str]:
        for metric in value:
            if not is_metric(metric):
                raise problem("metric", "must be ndcg@k, recall@k (k from 1 to 100) or mrr", path=(metric,))
        return value


class PythonParse(Variant):
    """Your function, from the bytes of a file to its text; see [functions.md](functions.md)."""

    type: Literal["python"] = "python"
    """`python`."""
    function: FunctionName
    """`package.module:function`, from bytes and a URI to text, a `ParsedDocument`, or None to let Instep parse the
    file."""


class KreuzbergParse(Variant):
    """Parses office documents (docx, pptx, xlsx, odt, rtf), e-books, notebooks and PDF to Markdown, and mails (eml,
    msg) to text. Other files are parsed as usual. Needs `instep[formats]`."""

    type: Literal["kreuzberg"] = "kreuzberg"
    """`kreuzberg`."""


DeclaredParse: TypeAlias = Annotated[
    PythonParse | KreuzbergParse, Field(discriminator="type"), typed("python", "kreuzberg")
]


class Chunk(Model):
    """Settings for cutting documents into chunks."""

    type: Literal["structure", "python"] = "structure"
    """Method of cutting: `structure` (headings, paragraphs, sentences, words), or `python` (your function)."""
    function: FunctionName | None = None
    """For `type: python`: `package.module:function`, from a text and its kind to a list of chunks; see
    [functions.md](functions.md)."""
    size: Whole = Field(default=800, ge=1, le=1_000_000)
    """Maximum length of a chunk, in characters or tokens (see `unit`)."""
    overlap: Whole = Field(default=0, ge=0)
    """Number of characters (or tokens) that a chunk repeats from the one before. Must be less than `size`."""
    unit: Literal["characters", "tokens"] = "characters"
    """Unit of `size` and `overlap`: `characters`, or `tokens` as the embedding model counts them. With `tokens`, `size`
    is required."""
    code: Literal["text", "syntax"] = "text"
    """Method of cutting source code: as `text`, or by `syntax` (between classes, functions and statements, by grammars
    of tree-sitter). `syntax` needs `instep[code]`."""
    context: Literal["headings"] | None = None
    """`headings`: embed and search each chunk together with the document's title and the headings above it. They are
    not shown."""

    @model_validator(mode="after")
    def _function_of_python(self) -> Self:
        if (self.type == "python") != (self.function is not None):
            raise problem("function", "is required with `type: python`, and not allowed otherwise", path=("function",))
        return self

    @model_validator(mode="after")
    def _code_by_structure(self) -> Self:
        if self.code == "syntax" and self.type == "python":
            raise problem("code", "needs `type: structure`: your function decides how it cuts", path=("code",))
        return self

    @model_validator(mode="after")
    def _size_in_tokens(self) -> Self:
        if self.unit == "tokens" and self.type == "python":
            raise problem("unit", "needs `type: structure`: your function decides how it cuts", path=("unit",))
        if self.unit == "tokens" and "size" not in self.model_fields_set:
            raise problem("required", "is missing: set the maximum number of tokens in a chunk", path=("size",))
        return self

    @model_validator(mode="after")
    def _overlap_below_size(self) -> Self:
        if self.overlap >= self.size:
            raise problem("overlap", "must be smaller than `size`", path=("overlap",))
        return self


class Limits(Model):
    """Limits of one document."""

    max_document_bytes: Bytes = 256_000_000
    """Maximum size of a document, such as `256MB`."""
    max_line_bytes: Bytes = 1_000_000
    """Maximum length of a line of a text document, such as `1MB`. A document with a longer line is always a failure."""
    max_chunks: Whole | None = Field(default=None, ge=1)
    """Maximum number of chunks of a document. No limit if left out."""
    parse_time: Duration = Field(default=120_000, json_schema_extra={"default": "2min"})
    """Maximum processor time for parsing a PDF or an office document, such as `30s`. A document that takes longer is a
    failure."""
    parse_memory: Bytes = 2_000_000_000
    """Maximum memory for parsing a PDF or an office document, such as `1GB`."""
    on_oversize: Literal["warn", "fail", "skip"] = "fail"
    """Action for a document over `max_document_bytes` or `max_chunks`: `fail` records a failure, `skip` leaves it out,
    and `warn` indexes it all the same (up to four times the bytes)."""


class JoinedRows(Model):
    """Rows of another table that become part of a document."""

    source: DeclaredTable
    """Table with these rows."""
    key: Columns
    """Column or columns with the key of the document to which a row belongs, as many as the document's `key` has."""
    text: Text
    """Column with the text."""
    order: AnyColumns = ()
    """Column or columns that order the rows of a document, nulls last. Rows with equal values are ordered by their
    versions and texts."""
    heading: Text | None = None
    """Text before the first of these rows, such as `"## Comments"`."""
    version: Text | None = None
    """Column that changes whenever the row changes. Without it, every run computes a hash of the text of every row."""
    deleted: Text | None = None
    """Column that is true for deleted rows."""

    @model_validator(mode="after")
    def _columns_differ(self) -> Self:
        for at, each in enumerate(self.order):
            if each in self.key:
                raise problem("twice", "is a column of `key`, the same in all rows of a document", path=("order", at))
        return self


#: Sources whose own changes are followed: what changes in another table they do not tell.
_NOT_JOINED: Final = (FeedSource, KafkaSource, DeltaSource, IcebergSource)


class RowDocument(Model):
    """Columns of a table that make a document from each row."""

    key: Columns
    """Column or columns that identify a row, and name its document. Never null."""
    text: Text
    """Column with the text."""
    title: Text | None = None
    """Column with the title."""
    version: Text | None = None
    """Column that changes whenever the row changes, such as `updated_at`. Without it, every run computes a hash of the
    title and text of every row."""
    deleted: Text | None = None
    """Column that is true for deleted rows."""
    with_: dict[str, JoinedRows] = Field(default={}, alias="with")
    """Rows of other tables that are appended to the document's text, by a name for each table."""

    @model_validator(mode="after")
    def _keys_fit(self) -> Self:
        for name, each in self.with_.items():
            if len(each.key) != len(self.key):
                message = f"has {len(each.key)} columns, and the key of the document has {len(self.key)}"
                raise problem("key", message, path=("with", name, "key"))
        return self

    @model_validator(mode="after")
    def _columns_differ(self) -> Self:
        if self.title == self.text:
            raise problem("twice", "is the column of `text` already", path=("title",))
        return self


class DocumentEntity(EntityBase):
    """Documents: their source, how they are cut, embedded and searched, and their target."""

    source: DeclaredDocuments
    """Source of the documents."""
    document: RowDocument | None = None
    """Columns that make a document from each row. Required for tables."""
    columns: DeclaredColumns = Field(default_factory=dict)
    """Columns for filtering searches, by name: a type (`team: string`), or a mapping with `type`, `from` and
    `on_wrong`."""
    readers: str | None = None
    """Name of the column (a `string[]`) that lists who may find a document: principals, or `public`. Nobody finds a
    document without readers."""
    parse: DeclaredParse | None = None
    """Parser of files. Without it, files are parsed by the ending of their name."""
    encoding: str | None = None
    """Character set of files that are not UTF-8, such as `cp1252`. Overrides the one that a file declares. Without it,
    the declared character set is used, or the detected one where that is clear."""
    chunk: Chunk = Chunk()
    """Settings for cutting documents into chunks."""
    embed: DeclaredEmbed = HashingEmbed()
    """Embedder that turns chunks into vectors."""
    search: Searching = Searching()
    """Settings for searching the entity."""
    promotion: Promotion | None = None
    """Quality that a new build must reach before it replaces the served one."""
    transform: str | None = None
    """`package.module:function`, from a DataFrame of chunk rows to another; needs Spark."""
    buckets: Whole = Field(default=16, ge=1, le=MAX_BUCKETS)
    """Number of buckets, from 1 to 1024. Each document is in exactly one, and each bucket has one writer."""
    limits: Limits = Limits()
    """Limits of one document."""
    targets: tuple[str, ...] | None = Field(default=None, min_length=1)
    """Names of several targets, instead of `target`. Each is updated separately, and has the same content."""

    @model_validator(mode="after")
    def _target_or_targets(self) -> Self:
        if self.target is not None and self.targets is not None:
            raise problem("conflict", "cannot be set together with `target`: name all in `targets`", path=("targets",))
        return self

    @model_validator(mode="after")
    def _rows_of_tables(self) -> Self:
        rows = isinstance(self.source, FeedSource | KafkaSource) and self.source.format == "debezium"
        tables = isinstance(self.source, SparkSource | ClickHouseSource | LakeSource)
        if self.document is not None and not (rows or tables):
            raise problem("conflict", "is for rows of a table, but the source is not a table", path=("document",))
        if self.document is None and (rows or tables):
            raise problem("required", "is missing: name the columns of the key and the text", path=("document",))
        if self.document is not None and self.document.with_ and isinstance(self.source, _NOT_JOINED):
            message = f"is for tables of the types spark and clickhouse, and the source is {self.source.type}"
            raise problem("conflict", message, path=("document", "with"))
        if not rows or self.document is None:
            return self
        for name in ("version", "deleted"):
            if getattr(self.document, name) is not None:
                raise problem("conflict", "is for tables only: the events of a feed have it", path=("document", name))
        return self

    @model_validator(mode="after")
    def _parser_of_files(self) -> Self:
        if self.parse is not None and not isinstance(self.source, FilesSource | PythonSource):
            raise problem("conflict", "is for files only, and this source delivers texts", path=("parse",))
        if self.encoding is not None and not isinstance(self.source, FilesSource | PythonSource):
            raise problem("conflict", "is for files only, and this source delivers texts", path=("encoding",))
        return self

    @field_validator("encoding")
    @classmethod
    def _known_encoding(cls, value: str | None) -> str | None:
        try:
            known = value is None or bool("a".encode(value))
        except (LookupError, ValueError):
            known = False
        if not known:
            raise problem("encoding", "is not a character set that Python knows, such as cp1252, shift_jis or gb18030")
        return value

    @model_validator(mode="after")
    def _tokens_are_of_a_model(self) -> Self:
        if self.chunk.unit == "tokens" and not isinstance(self.embed, TOKENIZED):
            message = f"Instep cannot count the tokens of the embedder `{self.embed.type}`"
            message += ", but those of static, openai, sentence-transformers and fastembed"
            raise problem("unit", message, path=("chunk", "unit"))
        return self

    @model_validator(mode="after")
    def _budget_of_files(self) -> Self:
        of_tables = self.transform is not None or isinstance(self.source, SparkSource | ClickHouseSource)
        if of_tables and isinstance(self.embed, ApiEmbed):
            batched = isinstance(self.embed, OpenAIEmbed) and self.embed.batch_api
            for name, said in (("budget", self.embed.budget is not None), ("batch_api", batched)):
                if said:
                    message = (
                        "does not work with a table of Spark or ClickHouse, or with a transform: Spark embeds these"
                    )
                    raise problem("conflict", message, path=("embed", name))
        return self

    @model_validator(mode="after")
    def _columns_are_there(self) -> Self:
        check_columns(self)
        check_search(self)
        return self

    @property
    def search_mode(self) -> Literal["text", "vector", "hybrid"]:
        """The mode of a search that names none: fused with vectors of hashed words, text is found worse than alone."""
        return self.search.mode or ("hybrid" if self.embed.meaning else "text")

    @property
    def search_weights(self) -> tuple[float, float]:
        """Weights of words and vectors in a hybrid search."""
        declared = self.search.weights
        return declared.text, self.embed.weight if declared.vector is None else declared.vector

    @property
    def functions(self) -> tuple[str, ...]:
        """See `EntityBase.functions`."""
        embed = (self.embed.function, self.embed.query_function) if isinstance(self.embed, PythonEmbed) else ()
        parse = (self.parse.function,) if isinstance(self.parse, PythonParse) else ()
        source = self.source.functions if isinstance(self.source, PythonSource) else ()
        rerank = (self.search.rerank.function,) if isinstance(self.search.rerank, PythonRerank) else ()
        named = (*source, *parse, self.chunk.function, *embed, *rerank, self.transform)
        return tuple(each for each in named if each)

    @property
    def needs_spark(self) -> bool:
        """Whether only Spark can read it, or run its transform."""
        joined = self.document.with_.values() if self.document is not None else ()
        sources = (self.source, *(each.source for each in joined))
        return self.transform is not None or any(isinstance(each, SparkSource) and not each.plain for each in sources)
