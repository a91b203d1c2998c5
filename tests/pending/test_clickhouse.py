"""Pending queues in ClickHouse, in this process; what differs on a server is in its own file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from instep.clickhouse.place import Place
from instep.clickhouse.session import quoted
from instep.domain.pending import QueueSpec
from instep.pending.clickhouse.store import ClickHousePending
from instep.pending.port import PendingStore
from tests.contracts.pending import HOSTILE, PendingContract
from tests.contracts.pending_tables import UserTables


class ClickHouseTables(UserTables):
    insert_only = True

    def __init__(self, uri: str) -> None:
        self.uri = uri
        self.create()

    def run(self, statement: str) -> None:
        with Place.of(self.uri).session() as session:
            session.command(statement)

    def quoted(self, name: str) -> str:
        return quoted(name)

    def create(self) -> None:
        names = self.names
        key, kind, happened, account, state = map(
            quoted, (names.key, names.kind, names.happened, names.account, names.state)
        )
        columns = f"{key} Int64, {kind} LowCardinality(String), {happened} DateTime('UTC'), {account} UInt32"
        self.run(f"CREATE TABLE {quoted(names.history)} ({columns}) ENGINE = MergeTree ORDER BY ({account}, {key})")
        for table in (names.salts, names.players):
            self.run(
                f"CREATE TABLE {quoted(table)} ({key} Int64, {state} String) ENGINE = ReplacingMergeTree ORDER BY {key}"
            )

    def open(self, spec: QueueSpec) -> PendingStore:
        return ClickHousePending(self.uri, spec)


@pytest.fixture
def tables(tmp_path: Path) -> UserTables:
    return ClickHouseTables(str(tmp_path))


class TestClickHouse(PendingContract):
    #: chdb looks for files by the name of a table, and takes braces for a choice of names.
    hostile = replace(HOSTILE, history='his"to`ry%s', players="play ers")
