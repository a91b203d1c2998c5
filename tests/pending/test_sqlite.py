"""Pending queues in SQLite."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from instep.domain.pending import QueueSpec
from instep.pending.port import PendingStore
from instep.pending.sqlite import SqlitePending
from tests.contracts.pending import PendingContract
from tests.contracts.pending_tables import UserTables


class SqliteTables(UserTables):
    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()
        self.create()

    def run(self, statement: str) -> None:
        with contextlib.closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            connection.execute(statement).fetchall()

    def quoted(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def create(self) -> None:
        names = self.names
        key, kind, happened, account, state = map(
            self.quoted, (names.key, names.kind, names.happened, names.account, names.state)
        )
        self.run(f"CREATE TABLE {self.quoted(names.history)} ({key} BIGINT, {kind} TEXT, {happened}, {account} INT)")
        for table in (names.salts, names.players):
            self.run(f"CREATE TABLE {self.quoted(table)} ({key} INTEGER, {state} TEXT)")
        for table in (names.history, names.salts, names.players):
            self.run(f"CREATE INDEX {self.quoted(f'{table} by key')} ON {self.quoted(table)} ({key})")

    def open(self, spec: QueueSpec) -> PendingStore:
        return SqlitePending(self.path, spec)


@pytest.fixture
def tables(tmp_path: Path) -> SqliteTables:
    return SqliteTables(tmp_path / "tables.db")


class TestContract(PendingContract):
    pass
