"""A real server; each test has a schema of its own."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

import pytest

from instep.targets.postgres.target import PostgresTarget
from tests.servers.postgres import PostgresServer, running_postgres

DATABASE = "tables"

_numbers = itertools.count(1)


@functools.cache
def database() -> PostgresServer:
    """Made once in a process: a fixture of this package starts again when other tests came between its own."""
    server = running_postgres()
    server.execute(f"CREATE DATABASE {DATABASE}")
    return server


@pytest.fixture
def server() -> PostgresServer:
    return database()


@pytest.fixture
def target(server: PostgresServer) -> Iterator[PostgresTarget]:
    schema = f"schema {next(_numbers)}%s"
    yield PostgresTarget(server.url(DATABASE), schema)
    server.revive()
    server.execute(f'DROP SCHEMA IF EXISTS "{schema}" CASCADE', database=DATABASE)
