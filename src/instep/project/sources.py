"""Sources as a project declares them."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, JsonValue, Secret, field_validator, model_validator

from instep.project.addresses import clickhouse_uri
from instep.project.fields import (
    ClassName,
    FunctionName,
    Globs,
    OneOrMore,
    SecretText,
    Text,
    Variant,
    no_empty_text,
    problem,
    sound_globs,
    typed,
)

#: What a `files` source takes when `include` is left out: text that can be chunked as it is.
DEFAULT_INCLUDE = tuple(
    f"**/*.{ending}"
    for ending in (
        *("md", "markdown", "rst", "txt", "html", "htm", "pdf"),
        *("py", "js", "ts", "java", "scala", "kt", "go", "rs", "rb", "c", "h", "cpp", "hpp", "cs", "sh", "sql"),
    )
)
#: What it leaves out when `exclude` is left out: what tools put beside the work.
DEFAULT_EXCLUDE = tuple(
    f"{folder}/"
    for folder in (
        *(".git", ".hg", ".svn", ".instep", "node_modules", ".venv", "venv", "__pycache__", ".tox", ".nox"),
        *(".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".ipynb_checkpoints"),
    )
)

#: What Spark takes for a pattern in a path.
_PATTERN = re.compile(r"[*?{}\[\]\\]")
_INVENTORY = re.compile(r"s3a?://[^/]+/(?:.+/)?([^/]+)/[^/]+/?")
_HOST_AND_PORT = re.compile(r"[^\s/@:]+:\d{1,5}|\[[0-9A-Fa-f:.]+\]:\d{1,5}")
_FROM_SOURCE = re.compile(r"\bsource\b", re.IGNORECASE)


class SqsEvents(Variant):
    """A queue of SQS with messages about changed objects in S3. Between listings, `--watch` looks only at these
    objects."""

    type: Literal["sqs"] = "sqs"
    """`sqs`."""
    url: Text
    """URL of the queue. The bucket, or EventBridge, must send `s3:ObjectCreated:*` and `s3:ObjectRemoved:*` to it."""

    @field_validator("url")
    @classmethod
    def _http(cls, value: str) -> str:
        if not value.lower().startswith(("http://", "https://")) or "@" in value:
            raise problem("url", "must look like https://sqs.eu-central-1.amazonaws.com/123456789012/name")
        return value


class FilesSource(Variant):
    """Files in folders, on a local disk or at any URL that fsspec can list."""

    type: Literal["files"] = "files"
    """`files`: documents."""
    path: OneOrMore
    """Folder or list of folders: relative to the project, absolute, or a URL (`s3://bucket/docs`)."""
    include: Globs = DEFAULT_INCLUDE
    """Globs of files to index, relative to each folder, in `.gitignore` style (but `*.md` matches files only).
    Default: common text, HTML, PDF and source code."""
    exclude: Globs = DEFAULT_EXCLUDE
    """Globs of files to leave out. They override `include`. Default: folders of version control, virtual environments
    and caches."""
    storage_options: dict[str, Secret[JsonValue]] = Field(default={})
    """Options for fsspec, such as `key` or `endpoint_url`. Values are treated as secrets."""
    events: SqsEvents | None = None
    """Queue of changes of a source in S3. Between listings, `--watch` looks only at the objects that its messages name.
    """

    inventory: Text | None = None
    """Inventories of a bucket in S3, which are read instead of listing the bucket:
    `s3://inventory-bucket/prefix/source-bucket/config-id`. See [many-servers.md](many-servers.md#inventories-of-s3)."""

    _texts = field_validator("path", "include", "exclude")(no_empty_text)
    _globs = field_validator("include", "exclude")(sound_globs)

    @model_validator(mode="after")
    def _in_s3(self) -> Self:
        for name in ("events", "inventory"):
            if getattr(self, name) is not None and not all(each.startswith(("s3://", "s3a://")) for each in self.path):
                raise problem("conflict", "is for paths that begin with s3://", path=(name,))
        if self.inventory is not None:
            found = _INVENTORY.fullmatch(self.inventory)
            if found is None:
                raise problem(
                    "inventory", "must be s3://inventory-bucket/prefix/source-bucket/config-id", path=("inventory",)
                )
            buckets = {each.split("/")[2] for each in self.path}
            if buckets != {found[1]}:
                where = ", ".join(sorted(buckets))
                raise problem(
                    "conflict",
                    f"is of bucket {found[1]}, and `path` is in {where}: they must be the same",
                    path=("inventory",),
                )
        return self

    def storage(self) -> dict[str, JsonValue]:
        """The storage options in clear text, for fsspec only."""
        return {key: value.get_secret_value() for key, value in self.storage_options.items()}


class FeedSource(Variant):
    """A change feed: files of JSON lines that only grow, with upserts and tombstones of documents."""

    type: Literal["feed"] = "feed"
    """`feed`: documents."""
    path: OneOrMore
    """File, folder (all `.jsonl` and `.ndjson` below it) or glob (`feed/*.jsonl`), or a list of them: relative to the
    project, absolute, or a URL."""
    storage_options: dict[str, Secret[JsonValue]] = Field(default={})
    """Options for fsspec, such as `key` or `endpoint_url`. Values are treated as secrets."""

    format: Literal["json", "debezium"] = "json"
    """Format of the lines: `json` (Instep's own), or `debezium` (change events of a table, whose columns `document`
    names)."""

    _texts = field_validator("path")(no_empty_text)

    def storage(self) -> dict[str, JsonValue]:
        """The storage options in clear text, for fsspec only."""
        return {key: value.get_secret_value() for key, value in self.storage_options.items()}


class KafkaSource(Variant):
    """A topic in Kafka, with upserts and tombstones of documents."""

    type: Literal["kafka"] = "kafka"
    """`kafka`: documents."""
    servers: OneOrMore
    """`host:port` of a broker, or a list of them."""
    topic: Text
    """Name of the topic."""
    format: Literal["json", "debezium"] = "json"
    """Format of the messages: `json` (Instep's own), or `debezium` (change events of a table, whose columns `document`
    names)."""
    security: Literal["plaintext", "ssl", "sasl_plaintext", "sasl_ssl"] = "plaintext"
    """Protocol of the brokers: `plaintext`, `ssl`, `sasl_plaintext` or `sasl_ssl`."""
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    """Login method for `sasl_…`: `PLAIN`, `SCRAM-SHA-256` or `SCRAM-SHA-512`."""
    user: Text | None = None
    """User name for the login."""
    password: SecretText | None = None
    """Password for the login, such as `${KAFKA_PASSWORD}`."""
    options: dict[str, SecretText] = Field(default={})
    """More settings of librdkafka, such as `ssl.ca.location`. Values are treated as secrets."""

    _texts = field_validator("servers")(no_empty_text)

    @field_validator("servers")
    @classmethod
    def _addresses(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for each in value:
            if not _HOST_AND_PORT.fullmatch(each):
                raise problem("servers", "must be `host:port`, or a list of them")
        return value

    @model_validator(mode="after")
    def _login(self) -> Self:
        named = [each for each in ("mechanism", "user", "password") if getattr(self, each) is not None]
        if self.security.startswith("sasl") and len(named) < len(("mechanism", "user", "password")):
            lacking = next(each for each in ("mechanism", "user", "password") if each not in named)
            raise problem("required", f"is missing, as `security` is {self.security}", path=(lacking,))
        if named and not self.security.startswith("sasl"):
            raise problem("conflict", "is for `security: sasl_plaintext` or `sasl_ssl`", path=(named[0],))
        return self

    @property
    def path(self) -> None:
        """It has no place in the file system."""
        return None

    def settings(self) -> dict[str, str]:
        """The settings of librdkafka in clear text, for it only."""
        login = {"sasl.mechanism": self.mechanism, "sasl.username": self.user}
        found = {name: value for name, value in login.items() if value is not None}
        if self.password is not None:
            found["sasl.password"] = self.password.get_secret_value()
        more = {key: value.get_secret_value() for key, value in self.options.items()}
        return {"security.protocol": self.security, **found, **more}


class PythonSource(Variant):
    """Your functions or your class that list documents and read one; see [functions.md](functions.md#sources)."""

    type: Literal["python"] = "python"
    """`python`: documents."""
    list: FunctionName | None = None
    """`package.module:function`, which lists all documents: the id and version of each."""
    read: FunctionName | None = None
    """`package.module:function`, from an id to the document: text, bytes, a `ReadDocument`, or None if it is gone."""
    class_: ClassName | None = Field(default=None, alias="class")
    """`package.module:Class`, with methods `list` and `read` instead of the two functions; or the name that an
    installed package gives it."""
    options: dict[str, SecretText] = Field(default={})
    """Arguments of the class. Values are treated as secrets."""

    @model_validator(mode="after")
    def _functions_or_class(self) -> Self:
        if self.class_ is None:
            for name in ("list", "read"):
                if getattr(self, name) is None:
                    raise problem(
                        "required", "is missing: name functions `list` and `read`, or a `class`", path=(name,)
                    )
            if self.options:
                raise problem("conflict", "belong to a `class`", path=("options",))
        for name in ("list", "read"):
            if self.class_ is not None and getattr(self, name) is not None:
                raise problem("conflict", "cannot be set together with `class`, which has it as a method", path=(name,))
        return self

    @property
    def functions(self) -> tuple[str, ...]:
        """The functions, or the class, that it names."""
        return tuple(each for each in (self.list, self.read, self.class_) if each)

    def given(self) -> dict[str, str]:
        """The options in clear text, for the class only."""
        return {key: value.get_secret_value() for key, value in self.options.items()}

    @property
    def path(self) -> None:
        """It has no place in the file system."""
        return None


def _reads_the_source(value: str | None) -> str | None:
    if value is not None and not _FROM_SOURCE.search(value):
        raise problem("sql", "must read from `source`, which stands for the table: SELECT … FROM source")
    return value


class SparkSource(Variant):
    """A table that Spark reads."""

    type: Literal["spark"] = "spark"
    """`spark`: a table that Spark reads."""
    format: Text = "parquet"
    """Spark's name of the format: `parquet`, `jdbc`, `delta`, `iceberg`, `csv`, `json`, `orc`, …"""
    path: OneOrMore | None = None
    """File or folder, or a list of them: relative to the project, absolute, or a URL."""
    table: Text | None = None
    """Table to read instead of `path`: one of Spark's catalog (`catalog.db.commits`), or with `format: jdbc` one of the
    database."""
    options: dict[str, SecretText] = Field(default={})
    """Options of Spark's reader, such as `url`, `user` and `password` of `jdbc`. Values are treated as secrets."""
    sql: Text | None = None
    """Query in Spark's SQL that returns the rows. It calls the table `source`."""

    _sql = field_validator("sql")(_reads_the_source)

    @field_validator("path")
    @classmethod
    def _no_empty_path(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        return value if value is None else no_empty_text(value)

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if self.path and self.table:
            raise problem("conflict", "name either `path` or `table`, not both", path=("table",))
        if self.format.lower() == "jdbc":
            if self.path:
                raise problem("conflict", "a jdbc source has a `table`, not a path", path=("path",))
            if "url" not in {each.lower() for each in self.options}:
                raise problem("required", "needs `url: jdbc:…`, as `format` is jdbc", path=("options",))
        if not (self.path or self.table or self.options):
            raise problem("required", "must name what to read: `path`, `table`, or `options` of the format")
        return self

    @property
    def plain(self) -> bool:
        """Whether it is Parquet files as they are, which can be read without Spark."""
        changed = self.options or self.sql or self.table
        return self.format.lower() == "parquet" and not changed and not any(map(_PATTERN.search, self.path or ()))

    def reader_options(self) -> dict[str, str]:
        """The options in clear text, for Spark only."""
        return {key: value.get_secret_value() for key, value in self.options.items()}


class ClickHouseSource(Variant):
    """A table in ClickHouse."""

    type: Literal["clickhouse"] = "clickhouse"
    """`clickhouse`: a table in ClickHouse, on a server or in this process (chdb)."""
    uri: Text = Field(repr=False)
    """Server (`http://user:${PASSWORD}@host:8123/database`, or `https`), or the folder (relative to the project) of
    ClickHouse in this process."""
    table: Text
    """Name of the table, or `database.table`."""
    sql: Text | None = None
    """Query in ClickHouse's SQL that returns the rows. It calls the table `source`."""

    _address = field_validator("uri")(clickhouse_uri)
    _sql = field_validator("sql")(_reads_the_source)


class DeltaSource(Variant):
    """A Delta table, read without Spark. Instep follows its changes from version to version."""

    type: Literal["delta"] = "delta"
    """`delta`: a Delta table. Its rows are documents if the entity has a `document`."""
    path: OneOrMore
    """Folder of the table, which contains its `_delta_log`: relative to the project, absolute, or a URL."""
    storage_options: dict[str, SecretText] = Field(default={})
    """Options for deltalake, such as `AWS_ACCESS_KEY_ID`. Values are treated as secrets."""

    @field_validator("path")
    @classmethod
    def _one_table(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(value) > 1:
            raise problem("conflict", "a Delta table has one path")
        return no_empty_text(value)

    def storage(self) -> dict[str, str]:
        """The storage options in clear text, for deltalake only."""
        return {key: value.get_secret_value() for key, value in self.storage_options.items()}


class IcebergSource(Variant):
    """An Iceberg table, read without Spark. Instep follows its changes from snapshot to snapshot."""

    type: Literal["iceberg"] = "iceberg"
    """`iceberg`: an Iceberg table. Its rows are documents if the entity has a `document`."""
    table: Text
    """Name of the table in its catalog: `namespace.table`."""
    catalog: dict[str, SecretText] = Field(min_length=1)
    """Options of pyiceberg's catalog, such as `uri`, `warehouse` and `type`, and its `name` (`default` if left out).
    Values are treated as secrets."""

    @property
    def path(self) -> None:
        """It has no place in the file system of its own."""
        return None

    def options(self) -> dict[str, str]:
        """The options in clear text, for pyiceberg only."""
        return {key: value.get_secret_value() for key, value in self.catalog.items()}


_TYPED = typed("files", "feed", "kafka", "python", "spark", "clickhouse", "delta", "iceberg")
TableSource: TypeAlias = SparkSource | ClickHouseSource
LakeSource: TypeAlias = DeltaSource | IcebergSource
Source: TypeAlias = FilesSource | FeedSource | KafkaSource | PythonSource | TableSource | LakeSource
DeclaredDocuments: TypeAlias = Annotated[Source, Field(discriminator="type"), _TYPED]
DeclaredTable: TypeAlias = Annotated[TableSource, Field(discriminator="type"), _TYPED]
DeclaredRows: TypeAlias = Annotated[TableSource | LakeSource, Field(discriminator="type"), _TYPED]
