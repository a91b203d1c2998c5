"""Targets as a project declares them."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, Self, TypeAlias

from pydantic import Field, SecretStr, field_validator, model_validator

from instep.project.addresses import (
    clickhouse_uri,
    is_clickhouse_server,
    is_url,
    milvus_uri,
    opensearch_uri,
    postgres_uri,
    qdrant_uri,
)
from instep.project.fields import SecretText, Text, Variant, problem, typed

_SCHEMA = re.compile(r"(?!pg_)[A-Za-z_][A-Za-z0-9_]{0,62}\Z")
#: Partitions of Milvus are called so, with a number behind it.
_PARTITION = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}\Z")


def is_schema(name: str) -> bool:
    """Whether it can be the name of a schema of PostgreSQL."""
    return bool(_SCHEMA.match(name))


class LanceTarget(Variant):
    """Lance datasets: embedded, on a disk or in an object store."""

    type: Literal["lance"] = "lance"
    """`lance`: for documents and tables."""
    uri: Text
    """Folder (relative to the project) or URL (`s3://bucket/prefix`) that holds the indexes."""
    storage_options: dict[str, SecretText] = Field(default={})
    """Options of the object store, such as `aws_region`; values are treated as secrets."""

    def storage(self) -> dict[str, str]:
        """The storage options in clear text, for the client library only."""
        return {key: value.get_secret_value() for key, value in self.storage_options.items()}


class ClickHouseTarget(Variant):
    """ClickHouse, in this process (chdb) or on a server."""

    type: Literal["clickhouse"] = "clickhouse"
    """`clickhouse`: for tables."""
    uri: Text = Field(repr=False)
    """Folder (relative to the project) for ClickHouse in this process, or a server:
    `http://user:${PASSWORD}@host:8123/database` (or `https`)."""
    staging: Text | None = None
    """Folder or URL where tasks put rows before they are inserted; all tasks must reach it. A server needs one;
    else it is in the folder."""

    _address = field_validator("uri")(clickhouse_uri)

    @model_validator(mode="after")
    def _servers_need_staging(self) -> Self:
        if self.staging is None and is_clickhouse_server(self.uri):
            message = "is missing: a ClickHouse server needs a folder or URL that all tasks reach"
            raise problem("required", message, path=("staging",))
        return self


class PostgresTarget(Variant):
    """Tables of a PostgreSQL database; for documents with the extension pgvector."""

    type: Literal["postgres"] = "postgres"
    """`postgres`: for documents (with the extension pgvector) and tables."""
    uri: Text = Field(repr=False)
    """`postgresql://user:${PASSWORD}@host/database`."""
    schema_: Text = Field(default="public", alias="schema")
    """Schema of the database that holds the tables."""

    _address = field_validator("uri")(postgres_uri)

    @field_validator("schema_")
    @classmethod
    def _plain_name(cls, value: str) -> str:
        if not is_schema(value):
            raise problem("schema", "must be letters, digits and underscores, at most 63, and not begin with pg_")
        return value


class QdrantTarget(Variant):
    """Collections of Qdrant, in this process or on a server."""

    type: Literal["qdrant"] = "qdrant"
    """`qdrant`: for documents."""
    uri: Text = Field(repr=False)
    """Folder (relative to the project) for Qdrant in this process, or a server: `http://host:6333` (or `https`)."""
    api_key: SecretStr | None = None
    """Key of the server; write `${QDRANT_API_KEY}`, never the key itself."""

    _address = field_validator("uri")(qdrant_uri)


class MilvusTarget(Variant):
    """Collections of Milvus, in this process (Milvus Lite) or on a server."""

    type: Literal["milvus"] = "milvus"
    """`milvus`: for documents."""
    uri: Text = Field(repr=False)
    """File (relative to the project) that ends in `.db` for Milvus in this process (Milvus Lite), or a server:
    `http://host:19530` (or `https`)."""
    token: SecretStr | None = None
    """What the server asks for: `${MILVUS_TOKEN}`, which is `user:password` or a key."""
    partition_prefix: str = "bucket"
    """Documents of bucket 3 are in the partition `bucket_3`: its name before the number."""

    _address = field_validator("uri")(milvus_uri)

    @field_validator("partition_prefix")
    @classmethod
    def _plain_prefix(cls, value: str) -> str:
        if not _PARTITION.match(value):
            message = "must be letters, digits and underscores, at most 100, and not begin with a digit"
            raise problem("partition_prefix", message)
        return value


class OpenSearchTarget(Variant):
    """Indexes of an OpenSearch server, with its plugin k-NN, or of an Elasticsearch server."""

    type: Literal["opensearch"] = "opensearch"
    """`opensearch`: for documents."""
    uri: Text = Field(repr=False)
    """Server: `https://host:9200` (or `http`), without user and password."""
    user: Text | None = None
    """User of the server."""
    password: SecretStr | None = None
    """The user's password; write `${OPENSEARCH_PASSWORD}`, never the password itself."""
    api_key: SecretStr | None = None
    """Key in place of user and password; write `${OPENSEARCH_API_KEY}`, never the key itself."""
    max_payload_bytes: int = Field(default=10_000_000, ge=100_000, le=100_000_000)
    """Bytes of one bulk request at most; a server takes 100 MB, unless it is told otherwise."""
    max_requests: int = Field(default=4, ge=1, le=32)
    """Bulk requests of one task in flight at most."""

    _address = field_validator("uri")(opensearch_uri)

    @model_validator(mode="after")
    def _one_way_in(self) -> Self:
        if self.api_key is not None and self.user is not None:
            raise problem("user", "cannot be set together with `api_key`", path=("user",))
        if (self.user is None) != (self.password is None):
            raise problem("user", "must be set together with `password`", path=("user",))
        return self


Target: TypeAlias = LanceTarget | ClickHouseTarget | PostgresTarget | QdrantTarget | MilvusTarget | OpenSearchTarget
DeclaredTarget: TypeAlias = Annotated[
    Target,
    Field(discriminator="type"),
    typed("lance", "clickhouse", "postgres", "qdrant", "milvus", "opensearch"),
]

#: What takes documents, and what takes tables, by its `type`.
DOCUMENT_TARGETS: Final = ("lance", "postgres", "qdrant", "milvus", "opensearch")
TABLE_TARGETS: Final = ("lance", "clickhouse", "postgres")


def in_process(target: Target) -> bool:
    """Whether only one process can work with it: the tasks of Spark are others."""
    return isinstance(target, QdrantTarget | MilvusTarget) and not is_url(target.uri)
