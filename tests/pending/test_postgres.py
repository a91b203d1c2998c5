"""Pending queues in PostgreSQL."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from instep.domain.pending import QueueSpec
from instep.pending.port import PendingStore
from instep.pending.postgres import PostgresPending
from tests.contracts.pending import PendingContract
from tests.contracts.pending_tables import UserTables
from tests.servers.postgres import PostgresServer, running_postgres

DATABASE = "pending"

_numbers = itertools.count(1)


class PostgresTables(UserTables):
    def __init__(self, server: PostgresServer, schema: str) -> None:
        self.server = server
        self.schema = schema
        self.run(f"CREATE SCHEMA {self.quoted(schema)}")
        self.create()

    def run(self, statement: str) -> None:
        self.server.execute(f"SET search_path = {self.quoted(self.schema)}; {statement}", database=DATABASE)

    def quoted(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def create(self) -> None:
        names = self.names
        key, kind, happened, account, state = map(
            self.quoted, (names.key, names.kind, names.happened, names.account, names.state)
        )
        self.run(
            f"CREATE TABLE {self.quoted(names.history)}"
            f" ({key} bigint, {kind} text, {happened} timestamp, {account} integer)"
        )
        for table in (names.salts, names.players):
            self.run(f"CREATE TABLE {self.quoted(table)} ({key} bigint, {state} text)")
        for table in (names.history, names.salts, names.players):
            self.run(f"CREATE INDEX ON {self.quoted(table)} ({key})")

    def open(self, spec: QueueSpec) -> PendingStore:
        return PostgresPending(self.server.url(DATABASE), self.schema, spec)


@pytest.fixture(scope="module")
def server() -> PostgresServer:
    server = running_postgres()
    server.execute(f"CREATE DATABASE {DATABASE}")
    return server


@pytest.fixture
def tables(server: PostgresServer) -> Iterator[PostgresTables]:
    schema = f'sche"ma {next(_numbers)}%s'
    made = PostgresTables(server, schema)
    yield made
    made.run(f"DROP SCHEMA {made.quoted(schema)} CASCADE")


class TestContract(PendingContract):
    pass
