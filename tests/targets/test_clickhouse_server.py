"""The ClickHouse target on a server: the one that `INSTEP_TEST_CLICKHOUSE_URL` names, else a stand-in over HTTP."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from instep.clickhouse.session import quoted
from instep.targets.clickhouse import ClickHouseTarget
from instep.testing.ownership import TableOwnership
from instep.testing.table_serving import TableServingContract
from instep.testing.table_target import TableTargetContract
from tests.servers import clickhouse


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if named := os.environ.get("INSTEP_TEST_CLICKHOUSE_URL"):
        yield named.rstrip("/")
        return
    with clickhouse.running(tmp_path_factory.mktemp("clickhouse")) as address:
        yield address


@pytest.fixture
def target(server: str, tmp_path: Path) -> Iterator[ClickHouseTarget]:
    """In a database of its own."""
    database = f"instep_test_{uuid.uuid4().hex[:12]}"
    made = ClickHouseTarget(f"{server}/{database}", staging=str(tmp_path / "staging"))
    yield made
    with made.session() as session:
        session.command(f"DROP DATABASE IF EXISTS {quoted(database)} SYNC")


@pytest.mark.proof
class TestServing(TableServingContract):
    """What differs most from ClickHouse in this process: what many of them do at once."""


@pytest.mark.proof
class TestOwnership(TableOwnership):
    pass


@pytest.mark.long
class TestServer(TableTargetContract):
    """All of it."""
