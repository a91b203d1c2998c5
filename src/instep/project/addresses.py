"""Checks of stores' addresses that need no connection. Addresses may hold passwords."""

from __future__ import annotations

import os
import re

from instep.project.fields import problem
from instep.servers.address import SERVER_SCHEMES, server_address

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+(://|::)")
#: User and password end at the first @: see `instep.servers.address`.
_CLICKHOUSE = re.compile(
    r"""
    https? ://
    (?: [^:/?#@\s]+ (?: : [^:/?#@\s]* )? @ )?
    (?: [A-Za-z0-9._-]+ | \[ [0-9A-Fa-f:.]+ \] ) (?: : [0-9]{1,5} )?
    (?: / [^/?#@\s]* )? /?
    """,
    re.VERBOSE,
)

#: What fsspec calls the stores where a file is there as a whole or not at all, and a folder that is mounted.
_SHARED = frozenset(
    {"abfs", "abfss", "adl", "az", "file", "gcs", "gs", "hdfs", "oci", "oss", "s3", "s3a", "tos", "webhdfs"}
)

#: Without user and password: these servers take a key of their own.
_HTTP_SERVER = re.compile(
    r"""
    https? ://
    (?: [A-Za-z0-9._-]+ | \[ [0-9A-Fa-f:.]+ \] ) (?: : [0-9]{1,5} )?
    (?: / [^/?#@\s]* )* /?
    """,
    re.VERBOSE,
)
_HOST_AND_PORT = re.compile(r"[A-Za-z0-9._-]+:[0-9]{1,5}\Z")


def is_url(location: str) -> bool:
    """Whether it is a URL (`s3://…`, or fsspec's `zip::…`), not a path."""
    return bool(_URL.match(location))


def state_url(value: str) -> str:
    """A URL below which all servers keep state files."""
    scheme, _, rest = value.partition("://")
    if "::" in value or scheme not in _SHARED:
        raise problem(
            "state",
            "must be a folder, or a URL that all servers reach: s3://bucket/prefix, gs://, az://, file:///mnt/x",
        )
    if scheme == "file" and (not rest.startswith("/") or not rest.strip("/")):
        raise problem("state", "must name a folder that is mounted on all servers: file:///mnt/shared")
    if not rest.strip("/"):
        raise problem("state", f"must name a bucket: {scheme}://bucket/prefix")
    if "?" in value or "#" in value or ":" in rest.partition("/")[0].rpartition("@")[0]:
        raise problem(
            "state",
            "must have no password or options: the store's own environment variables, or fsspec's configuration, "
            "are read for these",
        )
    return value


def is_relative(location: str) -> bool:
    """Whether it is a path in the project's folder, or beside it."""
    return not (is_url(location) or os.path.isabs(os.path.expanduser(location)))  # noqa: PTH111, PTH117


def is_clickhouse_server(uri: str) -> bool:
    """Whether it is the address of a server, not a folder for ClickHouse in this process."""
    return is_url(uri) and not uri.startswith("file://")


def clickhouse_uri(value: str) -> str:
    if is_clickhouse_server(value) and not _CLICKHOUSE.fullmatch(value):
        raise problem(
            "uri",
            "must be a folder, or look like http://user:password@host:8123/database; in the user and the password, "
            "write the characters : / ? # @ % and spaces as %-codes (@ is %40)",
        )
    return value


def postgres_uri(value: str) -> str:
    if SERVER_SCHEMES.get(value.partition("://")[0]) != "postgresql":
        raise problem("uri", "must begin with postgresql://")
    try:
        server_address(value)
    except ValueError as error:
        raise problem("uri", str(error)) from error
    return value


def qdrant_uri(value: str) -> str:
    if _HOST_AND_PORT.match(value) or (is_url(value) and not _HTTP_SERVER.fullmatch(value)):
        raise problem(
            "uri", "must be a folder, or look like http://host:6333 (or https), with the key as `api_key` beside it"
        )
    return value


def milvus_uri(value: str) -> str:
    if not (_HTTP_SERVER.fullmatch(value) if is_url(value) else value.endswith(".db")):
        raise problem(
            "uri",
            "must be a file that ends in .db, or look like http://host:19530 (or https), with user:password or a key "
            "as `token` beside it",
        )
    return value


def opensearch_uri(value: str) -> str:
    if not _HTTP_SERVER.fullmatch(value):
        raise problem(
            "uri", "must look like https://host:9200 (or http), with `user` and `password`, or `api_key`, beside it"
        )
    return value
