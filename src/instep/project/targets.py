"""Targets as a project declares them."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import Field, field_validator, model_validator

from instep.project.addresses import clickhouse_uri, is_clickhouse_server, postgres_uri
from instep.project.base import Variant
from instep.project.fields import SecretText, Text, problem, typed

_SCHEMA = re.compile(r"(?!pg_)[A-Za-z_][A-Za-z0-9_]{0,62}\Z")


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
    """Tables of a PostgreSQL database."""

    type: Literal["postgres"] = "postgres"
    """`postgres`: for tables."""
    uri: Text = Field(repr=False)
    """`postgresql://user:${PASSWORD}@host/database`."""
    schema_: Text = Field(default="public", alias="schema")
    """Schema of the database that holds the tables."""

    _address = field_validator("uri")(postgres_uri)

    @field_validator("schema_")
    @classmethod
    def _plain_name(cls, value: str) -> str:
        if not _SCHEMA.match(value):
            raise problem("schema", "must be letters, digits and underscores, at most 63, and not begin with pg_")
        return value


Target: TypeAlias = LanceTarget | ClickHouseTarget | PostgresTarget
DeclaredTarget: TypeAlias = Annotated[Target, Field(discriminator="type"), typed("lance", "clickhouse", "postgres")]
