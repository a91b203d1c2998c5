"""Ledgers on real servers, empty at the beginning of each test."""

from __future__ import annotations

import pytest

from tests.servers.ledgers import LedgerDatabase, mariadb_ledger, mysql_ledger, postgres_ledger
from tests.servers.s3 import S3Server, running_s3


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
