"""Targets as a project declares them, and their places: no two may be in one.

Places are compared in one canonical form, without network queries: two names of one server count as two places, except
for the names of this machine.
"""

from __future__ import annotations

import ipaddress
import os
import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeAlias
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from instep.domain.fingerprint import digest
from instep.project.addresses import (
    clickhouse_uri,
    is_clickhouse_server,
    is_url,
    milvus_uri,
    opensearch_uri,
    postgres_uri,
    qdrant_uri,
)
from instep.project.fields import ClassName, SecretText, Text, Variant, problem, typed
from instep.servers.address import server_address

_SCHEMA = re.compile(r"(?!pg_)[A-Za-z_][A-Za-z0-9_]{0,62}\Z")
#: Partitions of Milvus are called so, with a number behind it.
_PARTITION = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}\Z")


def is_schema(name: str) -> bool:
    """Whether it can be the name of a schema of PostgreSQL."""
    return bool(_SCHEMA.match(name))


class LanceTarget(Variant):
    """Lance datasets, on a disk or in an object store. Needs no server."""

    type: Literal["lance"] = "lance"
    """`lance`: for documents and tables."""
    uri: Text
    """Folder (relative to the project) or URL (`s3://bucket/prefix`) that holds the indexes."""
    storage_options: dict[str, SecretText] = Field(default={})
    """Options of the object store, such as `aws_region`. Values are treated as secrets."""

    def storage(self) -> dict[str, str]:
        """The storage options in clear text, for the client library only."""
        return {key: value.get_secret_value() for key, value in self.storage_options.items()}


class ClickHouseTarget(Variant):
    """ClickHouse, in this process (chdb) or on a server."""

    type: Literal["clickhouse"] = "clickhouse"
    """`clickhouse`: for tables."""
    uri: Text = Field(repr=False)
    """Server (`http://user:${PASSWORD}@host:8123/database`, or `https`), or a folder (relative to the project) for
    ClickHouse in this process."""
    staging: Text | None = None
    """Folder or URL for rows that are about to be inserted. All tasks must reach it. Required for a server; in process,
    Instep uses a place inside `uri`."""

    _address = field_validator("uri")(clickhouse_uri)

    @model_validator(mode="after")
    def _servers_need_staging(self) -> Self:
        if self.staging is None and is_clickhouse_server(self.uri):
            message = "is missing: a ClickHouse server needs a folder or URL that all tasks reach"
            raise problem("required", message, path=("staging",))
        return self


class PostgresTarget(Variant):
    """Tables of a PostgreSQL database. Documents need the extension pgvector."""

    type: Literal["postgres"] = "postgres"
    """`postgres`: for documents (with the extension pgvector) and tables."""
    uri: Text = Field(repr=False)
    """Address of the database: `postgresql://user:${PASSWORD}@host/database`."""
    schema_: Text = Field(default="public", alias="schema")
    """Schema of the tables. It is created if it does not exist."""

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
    """Server (`http://host:6333`, or `https`), or a folder (relative to the project) for Qdrant in this process."""
    api_key: SecretStr | None = None
    """Key of the server; write `${QDRANT_API_KEY}`, never the key itself."""

    _address = field_validator("uri")(qdrant_uri)


class MilvusTarget(Variant):
    """Collections of Milvus, in this process (Milvus Lite) or on a server."""

    type: Literal["milvus"] = "milvus"
    """`milvus`: for documents."""
    uri: Text = Field(repr=False)
    """Server (`http://host:19530`, or `https`), or a file (relative to the project) that ends in `.db` for Milvus in
    this process (Milvus Lite)."""
    token: SecretStr | None = None
    """Credentials of the server, `user:password` or a key. Write `${MILVUS_TOKEN}`, never the token itself."""
    partition_prefix: str = "bucket"
    """Prefix of the names of partitions: documents of bucket 3 are in the partition `bucket_3`."""

    _address = field_validator("uri")(milvus_uri)

    @field_validator("partition_prefix")
    @classmethod
    def _plain_prefix(cls, value: str) -> str:
        if not _PARTITION.match(value):
            message = "must be letters, digits and underscores, at most 100, and not begin with a digit"
            raise problem("partition_prefix", message)
        return value


class OpenSearchTarget(Variant):
    """Indexes of an OpenSearch server with the plugin k-NN, or of an Elasticsearch server."""

    type: Literal["opensearch"] = "opensearch"
    """`opensearch`: for documents and tables."""
    uri: Text = Field(repr=False)
    """Address of the server, without user and password: `https://host:9200` (or `http`)."""
    user: Text | None = None
    """User name. Needs `password`."""
    password: SecretStr | None = None
    """Password of the user. Write `${OPENSEARCH_PASSWORD}`, never the password itself."""
    api_key: SecretStr | None = None
    """API key, instead of user and password. Write `${OPENSEARCH_API_KEY}`, never the key itself."""
    max_payload_bytes: int = Field(default=10_000_000, ge=100_000, le=100_000_000)
    """Maximum number of bytes of one bulk request. Servers accept 100 MB unless they are configured otherwise."""
    max_requests: int = Field(default=4, ge=1, le=32)
    """Maximum number of bulk requests that one task has in flight."""

    _address = field_validator("uri")(opensearch_uri)

    @model_validator(mode="after")
    def _one_way_in(self) -> Self:
        if self.api_key is not None and self.user is not None:
            raise problem("user", "cannot be set together with `api_key`", path=("user",))
        if (self.user is None) != (self.password is None):
            raise problem("user", "must be set together with `password`", path=("user",))
        return self


class PythonTarget(Variant):
    """Your target, or one from an installed package; see [functions.md](functions.md#targets)."""

    type: Literal["python"] = "python"
    """`python`: for documents or tables, depending on its class."""
    class_: ClassName = Field(alias="class")
    """`package.module:Class`, or the name that an installed package gives it."""
    uri: Text = Field(repr=False)
    """Folder (relative to the project) or URL of the target, passed to the class as its first argument. Different
    places must have different `uri`s."""
    options: dict[str, SecretText] = Field(default={})
    """Further arguments of the class. Values are treated as secrets."""

    @field_validator("uri")
    @classmethod
    def _plain_url(cls, value: str) -> str:
        try:
            urlsplit(value)
        except ValueError:
            raise problem("uri", "must be a folder or a URL") from None
        return value

    def given(self) -> dict[str, str]:
        """The options in clear text, for the class only."""
        return {key: value.get_secret_value() for key, value in self.options.items()}


Target: TypeAlias = (
    LanceTarget | ClickHouseTarget | PostgresTarget | QdrantTarget | MilvusTarget | OpenSearchTarget | PythonTarget
)
DeclaredTarget: TypeAlias = Annotated[
    Target,
    Field(discriminator="type"),
    typed("lance", "clickhouse", "postgres", "qdrant", "milvus", "opensearch", "python"),
]

#: What takes documents, and what takes tables, by its `type`.
DOCUMENT_TARGETS: Final = ("lance", "postgres", "qdrant", "milvus", "opensearch", "python")
TABLE_TARGETS: Final = ("lance", "clickhouse", "postgres", "opensearch", "python")
#: Length of the longest vectors that the types of targets take, by the documentation of pgvector, k-NN and Milvus.
MAX_DIMENSIONS_IN: Final = {"postgres": 16_000, "opensearch": 16_000, "milvus": 32_768}


def in_process(target: Target) -> bool:
    """Whether only one process can work with it: the tasks of Spark are others."""
    return isinstance(target, QdrantTarget | MilvusTarget) and not is_url(target.uri)


#: What two declarations of one place have in common; never shown, though secrets are no part of it.
Location: TypeAlias = tuple[Any, ...]

THIS_HOST: Final = "localhost"
#: Where servers of PostgreSQL put their sockets if they are told nothing.
_SOCKETS: Final = ("/run/postgresql", "/var/run/postgresql", "/tmp")  # noqa: S108 (nothing is written there)
#: Default ports of clients, for http and https. Those of ClickHouse are two ports of one server.
_PORTS: Final[Mapping[str, tuple[int, int]]] = {
    "clickhouse": (8123, 8443),
    "qdrant": (6333, 6333),
    "milvus": (19530, 443),
    "opensearch": (9200, 443),
}
#: What a server calls the database of an address that names none.
_DATABASES: Final[Mapping[str, str]] = {"clickhouse": "instep", "milvus": "default"}
#: Options of object stores that say which store it is, not how to get in.
_STORE: Final = re.compile(r"endpoint|account_name|\Aaws_s3_express\Z", re.IGNORECASE)
#: Of the authority of a URL. A user alone may be a container, and is no secret.
_PASSWORD: Final = re.compile(r":[^@]*(?=@)")


def check_places(targets: Mapping[str, Target], resolved: Mapping[str, Target]) -> None:
    """Refuse a target that is where another one is; `resolved` are the same with absolute paths."""
    names: dict[Location, str] = {}
    for name in targets:
        place = location_of(resolved[name])
        if place in names:
            message = f"two targets cannot share a place, and this is that of the target {names[place]}"
            raise problem("place", message, path=("targets", name, "uri"), beside=("targets", names[place], "uri"))
        names[place] = name


def location_of(target: Target) -> Location:
    """The location of a target with absolute paths."""
    match target:
        case PostgresTarget():
            return target.type, *_postgres(target.uri), target.schema_
        case LanceTarget() if is_url(target.uri) and not _is_file(target.uri):
            return target.type, *_object_store(target.uri, target.storage())
        case PythonTarget() if is_url(target.uri) and not _is_file(target.uri):
            return target.type, *_object_store(target.uri, {})
    if not is_url(target.uri) or _is_file(target.uri):
        return target.type, *_on_disk(target.uri)
    return target.type, *_server(target.type, urlsplit(target.uri))


def location_text(target: Target, root: Path) -> str:
    """The same location as text, without secrets; in the project's folder (`root`) by its path there, so that the
    project may be moved.
    """
    kind, *parts = location_of(target)
    match target:
        case PostgresTarget():
            doors, service, database, schema = parts
            hosts = ",".join(sorted(f"{host}:{port}" for host, port in doors))
            return f"{kind} at {hosts}/{database}{f' of service {service}' if service else ''}, schema {schema}"
        case LanceTarget() | PythonTarget() if is_url(target.uri) and not _is_file(target.uri):
            scheme, authority, steps, asked, stores = parts
            more = f" ({digest([asked, stores])})" if asked or stores else ""
            return f"{kind} at {scheme}://{_PASSWORD.sub('', authority)}/{'/'.join(steps)}{more}"
    if not is_url(target.uri) or _is_file(target.uri):
        path, home = _path(target.uri), Path(os.path.realpath(root))
        return f"{kind} in {path.relative_to(home) if path.is_relative_to(home) else path}"
    host, port, path = parts
    return f"{kind} at {host}:{port}/{path}"


def _is_file(uri: str) -> bool:
    return uri.lower().startswith("file://")


def _on_disk(uri: str) -> Location:
    """The nearest folder that is there, and the way from there: links and mounts lead to the same one."""
    path = _path(uri)
    for folder in (path, *path.parents):
        try:
            found = folder.stat()
        except OSError:
            continue
        return found.st_dev, found.st_ino, str(path.relative_to(folder))
    return (str(path),)


def _path(uri: str) -> Path:
    return Path(os.path.realpath(unquote(urlsplit(uri).path) if _is_file(uri) else uri))


def _server(kind: str, address: SplitResult) -> Location:
    port = address.port or _PORTS[kind][address.scheme == "https"]
    if kind == "clickhouse" and port == _PORTS[kind][1]:
        port = _PORTS[kind][0]
    path = "/".join(_steps(address.path)[: 1 if kind in _DATABASES else None])
    return canonical_host(address.hostname or ""), port, path or _DATABASES.get(kind, "")


def _postgres(uri: str) -> Location:
    """A PostgreSQL location as libpq understands it: options override the parts before them."""
    address = server_address(uri)
    said = address.options
    hosts = said.get("hostaddr") or said.get("host") or address.host
    hosts = hosts or os.environ.get("PGHOSTADDR") or os.environ.get("PGHOST") or ""
    ports = said.get("port") or address.port or os.environ.get("PGPORT") or 5432
    database = said.get("dbname") or address.database
    return frozenset(_doors(str(hosts), str(ports))), said.get("service"), database


def _doors(hosts: str, ports: str) -> Iterator[tuple[str, str]]:
    """Pairs of host and port: several hosts have a port each, or all the same one."""
    each_port = ports.split(",")
    for index, host in enumerate(hosts.split(",")):
        yield canonical_host(host), each_port[index] if len(each_port) > 1 and index < len(each_port) else each_port[0]


def _object_store(uri: str, options: Mapping[str, str]) -> Location:
    address = urlsplit(uri)
    stores = sorted((key.lower(), _endpoint(value)) for key, value in options.items() if _STORE.search(key))
    asked = sorted(parse_qsl(address.query, keep_blank_values=True))
    authority = address.netloc.lower()
    return address.scheme.lower(), authority, _steps(unquote(address.path)), tuple(asked), tuple(stores)


def _endpoint(value: str) -> Location:
    address = urlsplit(value)
    if not address.hostname:
        return (value.rstrip("/"),)
    return (
        canonical_host(address.hostname),
        address.port or {"http": 80, "https": 443}.get(address.scheme),
        address.path.strip("/"),
    )


def _steps(path: str) -> tuple[str, ...]:
    return tuple(unquote(step) for step in path.split("/") if step not in ("", "."))


def canonical_host(name: str) -> str:
    """A host in one spelling; this machine is `localhost`, also by a socket of PostgreSQL that is where it is by
    default.
    """
    if name.startswith("/"):
        folder = os.path.realpath(name)
        return THIS_HOST if folder in map(os.path.realpath, _SOCKETS) else folder
    name = name.strip("[]").rstrip(".").lower()
    if name in ("", THIS_HOST, "localhost.localdomain") or name.endswith(".localhost"):
        return THIS_HOST
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        try:
            # 127.1 is an address for whatever connects.
            address = ipaddress.ip_address(socket.inet_aton(name))
        except (OSError, ValueError):
            return name
    address = getattr(address, "ipv4_mapped", None) or address
    return THIS_HOST if address.is_loopback or address.is_unspecified else str(address)
