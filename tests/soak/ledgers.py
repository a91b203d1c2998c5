"""Where the servers of a site may meet."""

from __future__ import annotations

from pathlib import Path

from tests.servers.ledgers import mariadb_ledger, postgres_ledger
from tests.servers.process import Server

LEDGERS = ("sqlite", "postgres", "mariadb")


def url_of(ledger: str, folder: Path) -> str:
    """An empty ledger: a file in `folder`, or the database of a server of this process."""
    if ledger == "sqlite":
        return f"sqlite:///{folder / 'ledger.db'}"
    database = postgres_ledger() if ledger == "postgres" else mariadb_ledger()
    database.server.revive()
    database.empty()
    return database.url


def server_of(ledger: str) -> Server | None:
    """The server of this process that has the ledger."""
    if ledger == "sqlite":
        return None
    return (postgres_ledger() if ledger == "postgres" else mariadb_ledger()).server
