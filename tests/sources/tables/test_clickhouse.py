"""ClickHouse as a source of tables: the contract, in process (chdb) and on a server."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa
import pytest

from instep.sources.tables.port import Sessions, TableSource
from tests.contracts.table_source import Make, TableSourceContract
from tests.contracts.table_source_rows import Row, some_rows
from tests.servers import clickhouse
from tests.sources.tables import clickhouse_tables
from tests.sources.tables.clickhouse_tables import DATA_BYTES
from tests.sources.tables.sessions import session

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("chdb"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if named := os.environ.get("INSTEP_TEST_CLICKHOUSE_URL"):
        yield named.rstrip("/")
        return
    with clickhouse.running(tmp_path_factory.mktemp("clickhouse")) as address:
        yield address.replace("://", "://default:@")


class ClickHouseContract(TableSourceContract):
    @pytest.fixture
    def uri(self) -> str:
        raise NotImplementedError

    @pytest.fixture
    def sessions(self) -> Sessions:
        return session

    @pytest.fixture
    def rows(self) -> list[Row]:
        """Bytes have one length in ClickHouse: what is shorter ends with zeros."""
        return [
            row | {"data": row["data"].ljust(DATA_BYTES, b"\0") if row["data"] is not None else None}
            for row in some_rows()
        ]

    @pytest.fixture
    def make(self, uri: str) -> Make:
        def made(table: pa.Table, *, name: str = "") -> TableSource:
            order = "(path, id)" if {"path", "id"} <= set(table.column_names) else "tuple()"
            return clickhouse_tables.made(uri, table, order=order, table=name)

        return made


class TestInProcess(ClickHouseContract):
    @pytest.fixture
    def uri(self, folder: str) -> str:
        return folder


class TestServer(ClickHouseContract):
    @pytest.fixture
    def uri(self, server: str) -> str:
        return server
