"""Tables of a user in a real PostgreSQL; each test has a schema of its own."""

from __future__ import annotations

import functools

import psycopg

from instep.domain.pending_queue import KeyKind, QueueSpec
from instep.queues.engines.postgres import PostgresPending
from tests.contracts.pending_kinds import numbered
from tests.contracts.pending_tables import UserTables
from tests.servers.postgres import PostgresServer, running_postgres

DATABASE = "pending"


@functools.cache
def database() -> PostgresServer:
    server = running_postgres()
    server.execute(f"CREATE DATABASE {DATABASE}")
    return server


class PostgresTables(UserTables):
    def __init__(self, schema: str, kind: KeyKind = KeyKind.INTEGER) -> None:
        self.kind = kind
        self.server = database()
        self.schema = schema
        self._connection = self.connect()
        self._connection.autocommit = True
        self.run(f"CREATE SCHEMA {self.quoted(schema)}")
        self.create()

    def run(self, statement: str) -> None:
        self._connection.execute(statement)

    def quoted(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def create(self) -> None:
        names = self.names
        key, kind, happened, account, state = map(
            self.quoted, (names.key, names.kind, names.happened, names.account, names.state)
        )
        of = {KeyKind.INTEGER: "bigint", KeyKind.TEXT: "varchar", KeyKind.UUID: "uuid"}[self.kind]
        self.run(
            f"CREATE TABLE {self.quoted(names.history)}"
            f" ({key} {of}, {kind} text, {happened} timestamp, {account} integer)"
        )
        for table in (names.salts, names.players):
            self.run(f"CREATE TABLE {self.quoted(table)} ({key} {of}, {state} text)")
        bytewise = ' COLLATE "C"' if self.kind is KeyKind.TEXT else ""
        for table in (names.history, names.salts, names.players):
            self.run(f"CREATE INDEX ON {self.quoted(table)} ({key}{bytewise})")

    def drop(self) -> None:
        self.run(f"DROP SCHEMA {self.quoted(self.schema)} CASCADE")
        self._connection.close()

    def open(self, spec: QueueSpec) -> PostgresPending:
        return numbered(PostgresPending(self.server.url(DATABASE), self.schema, spec))

    def connect(self, isolation: str = "read committed") -> psycopg.Connection[tuple[object, ...]]:
        """A writer that decides itself when it commits."""
        connection = psycopg.connect(self.server.url(DATABASE))
        connection.execute(f"SET search_path = {self.quoted(self.schema)}")
        connection.execute(f"SET default_transaction_isolation = '{isolation}'")
        connection.commit()
        return connection
