"""Ledgers on real servers, empty at the beginning of each test."""

from __future__ import annotations

import pytest

from tests.servers.ledgers import LedgerDatabase, mariadb_ledger, mysql_ledger, postgres_ledger
from tests.servers.s3 import S3Server, running_s3


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What needs a store and a server beside it is a proof; the same is seen in a folder."""
    for item in items:
        if "/ledger/" in item.nodeid and {"s3", "store_place"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.proof)


@pytest.fixture
def postgres() -> LedgerDatabase:
    database = postgres_ledger()
    database.empty()
    return database


@pytest.fixture
def mariadb() -> LedgerDatabase:
    database = mariadb_ledger()
    database.empty()
    return database


@pytest.fixture
def mysql() -> LedgerDatabase:
    database = mysql_ledger()
    database.empty()
    return database


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> S3Server:
    """An object store, which this process reaches as it is told by its environment."""
    server = running_s3()
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    return server
