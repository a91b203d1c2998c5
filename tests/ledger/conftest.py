"""Ledgers on real servers, empty at the beginning of each test."""

from __future__ import annotations

import pytest

from tests.servers.ledgers import LedgerDatabase, mariadb_ledger, mysql_ledger, postgres_ledger


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
