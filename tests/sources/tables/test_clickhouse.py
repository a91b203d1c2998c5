"""ClickHouse as a source of tables: the contract, in process (chdb) and on a server."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pyarrow as pa
import pytest

from instep.domain.columns import STRING, Column
from instep.domain.cuts import KeyRange
from instep.domain.keys import key_of
from instep.domain.rows import Selection
from instep.error_transport import unpacked
from instep.errors import UserError
from instep.pipeline.engine.sparkapi import explained
from instep.sources.tables.clickhouse import ClickHouseTable
from instep.sources.tables.table_source import Sessions, TableSource
from tests.contracts.table_source import Make, TableSourceContract, check_in_short
from tests.contracts.table_source_rows import COLUMNS, ROWS, Row, some_rows, table_of
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


def padded_rows() -> list[Row]:
    """Bytes have one length in ClickHouse: what is shorter ends with zeros."""
    return [
        row | {"data": row["data"].ljust(DATA_BYTES, b"\0") if row["data"] is not None else None} for row in some_rows()
    ]


class ClickHouseContract(TableSourceContract):
    @pytest.fixture
    def uri(self) -> str:
        raise NotImplementedError

    @pytest.fixture
    def sessions(self) -> Sessions:
        return session

    @pytest.fixture
    def rows(self) -> list[Row]:
        return padded_rows()

    @pytest.fixture
    def make(self, uri: str) -> Make:
        def made(table: pa.Table, *, name: str = "") -> TableSource:
            order = "(path, id)" if {"path", "id"} <= set(table.column_names) else "tuple()"
            return clickhouse_tables.made(uri, table, order=order, table=name)

        return made


@pytest.mark.long  # As below.
def test_in_process_in_short(folder: str) -> None:
    rows = padded_rows()
    check_in_short(clickhouse_tables.made(folder, table_of(rows), order="(path, id)"), session, rows)


@pytest.mark.long  # Each task starts the engine anew; how rows are asked for is the same on a server.
class TestInProcess(ClickHouseContract):
    @pytest.fixture
    def uri(self, folder: str) -> str:
        return folder


def test_a_server_in_short(server: str) -> None:
    rows = padded_rows()
    check_in_short(clickhouse_tables.made(server, table_of(rows), order="(path, id)"), session, rows)


@pytest.mark.proof
class TestServer(ClickHouseContract):
    @pytest.fixture
    def uri(self, server: str) -> str:
        return server


# -- what Spark is told ------------------------------------------------------------------------


@pytest.fixture
def source(server: str) -> ClickHouseTable:
    """With a password, which the stand-in does not ask for."""
    made = clickhouse_tables.made(server, table_of(some_rows()))
    return ClickHouseTable(server.replace("default:@", "default:open-sesame@"), made.table)


@pytest.mark.skipif("INSTEP_TEST_CLICKHOUSE_URL" in os.environ, reason="its password is another one")
def test_a_password_is_in_no_plan_and_no_error(source: ClickHouseTable) -> None:
    frame = source.frame(session, ROWS, Selection())
    assert frame.count() == len(some_rows())
    clickhouse_tables.ask(source.uri, f"DROP TABLE {source.table} SYNC")
    with pytest.raises(Exception, match="instep") as raised:
        frame.count()
    error = unpacked(str(raised.value))
    assert isinstance(error, UserError)
    assert "no such table" in str(error)
    for shown in (explained(frame), str(raised.value), str(error), repr(frame), repr(source)):
        assert "sesame" not in shown


def test_a_transform_comes_last(server: str) -> None:
    table = clickhouse_tables.made(server, table_of(some_rows())).table
    source = ClickHouseTable(server, table, transform=lambda frame: frame.selectExpr("*", "upper(name) AS loud"))
    assert source.columns(session) == (*COLUMNS, Column("loud", STRING))
    wanted = Selection(cut_by=("id",), ranges=(KeyRange(key_of(20), key_of(30)),))
    found = source.frame(session, ROWS, wanted).toArrow().to_pylist()
    assert sorted(row["id"] for row in found) == list(range(20, 30))
    assert all(row["loud"] == row["name"].upper() for row in found)
    without = ClickHouseTable(
        server, table, transform=lambda frame: frame.drop("updated"), transform_name="my:function"
    )
    with pytest.raises(UserError, match="'updated' after my:function"):
        without.frame(session, ROWS, wanted)
