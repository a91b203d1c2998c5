"""Extras of Instep by library, for the hint when a library is not installed."""

from __future__ import annotations

from instep.errors import UserError

#: By the first part of a module's name. What is not here comes with Instep itself, or is the user's.
EXTRAS = {
    "httpx": "openai",
    "sentence_transformers": "sentence-transformers",
    "s3fs": "s3",
    "aiohttp": "http",
    "psycopg": "postgres",
    "clickhouse_connect": "clickhouse",
    "chdb": "clickhouse",
    "pymysql": "mysql",
    "nats": "nats",
    "qdrant_client": "qdrant",
    "qdrant_edge": "qdrant",
    "pymilvus": "milvus",
    "opensearchpy": "opensearch",
    "fastapi": "serve",
    "prometheus_client": "serve",
    "uvicorn": "serve",
    "websockets": "serve",
    "opentelemetry": "traces",
    "pandas": "connect",
    "grpc": "connect",
    "grpc_status": "connect",
    "google": "connect",
    "zstandard": "connect",
}


def missing(error: ImportError) -> UserError:
    """What to install, for a library that could not be imported."""
    name = error.name or ""
    extra = EXTRAS.get(name.partition(".")[0])
    if not isinstance(error, ModuleNotFoundError):
        return UserError(
            f"the package {name or 'it needs'} does not work: {error}", hint="Install it anew, in a version that fits."
        )
    if extra is None:
        return UserError(
            f"the package {name} is not installed", hint="Install it in the Python that runs this, wherever that is."
        )
    return UserError(f"the package {name} is not installed", hint=f"Install it: pip install 'instep[{extra}]'")
