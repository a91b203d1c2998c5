"""Where the servers of a site may meet."""

from __future__ import annotations

from pathlib import Path

from tests.servers.ledgers import mariadb_ledger, postgres_ledger

LEDGERS = ("sqlite", "postgres", "mariadb")


def url_of(ledger: str, folder: Path) -> str:
    """An empty ledger: a file in `folder`, or the database of a server of this process."""
    if ledger == "sqlite":
        return f"sqlite:///{folder / 'ledger.db'}"
    database = postgres_ledger() if ledger == "postgres" else mariadb_ledger()
    database.empty()
    return database.url
