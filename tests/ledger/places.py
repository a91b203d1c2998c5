"""Ledgers with their state files: SQLite beside a folder, and PostgreSQL with an object store."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Table

from instep.ledger.ledger import Ledger
from instep.ledger.open import open_ledger
from instep.ledger.open_server import open_server
from instep.ledger.tables import metadata
from tests.contracts.ledger.building import START, VirtualClock
from tests.servers.ledgers import LedgerDatabase
from tests.servers.s3 import S3Server


class FolderPlace:
    """SQLite, and the folder beside it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.beside = folder / "ledger-documents"

    def open(self) -> Ledger:
        return open_ledger(f"sqlite:///{self.folder}/ledger.db", clock=VirtualClock(START))

    def names(self) -> list[str]:
        return sorted(each.name for each in self.beside.glob("*"))

    def data(self, name: str) -> bytes:
        return (self.beside / name).read_bytes()

    def put(self, name: str, data: bytes) -> None:
        (self.beside / name).write_bytes(data)

    def lose(self, name: str) -> None:
        (self.beside / name).unlink()

    def lose_all(self) -> None:
        shutil.rmtree(self.beside, ignore_errors=True)

    def back_up(self) -> None:
        shutil.copy(self.folder / "ledger.db", self.folder / "backup")

    def restore(self) -> None:
        """All ledgers are closed."""
        if (self.folder / "backup").exists():
            for each in self.folder.glob("ledger.db*"):
                each.unlink()
            shutil.copy(self.folder / "backup", self.folder / "ledger.db")


class StorePlace:
    """PostgreSQL, and S3: a prefix for each test."""

    def __init__(self, database: LedgerDatabase, store: S3Server, prefix: str) -> None:
        self._database = database
        self._files = store.files()
        self.url = store.url(prefix)
        self._ledgers: list[Ledger] = []
        with closing(database.open()) as ledger:
            self._folder = f"{self.url.removeprefix('s3://')}/{ledger.naming().ledger}"

    def open(self) -> Ledger:
        # As a process of its own would: it knows nothing of what was read before.
        ledger = open_server(self._database.address, clock=VirtualClock(START), state=self.url)
        assert ledger is not None
        self._ledgers.append(ledger)
        return ledger

    def close(self) -> None:
        for each in self._ledgers:
            each.close()

    def names(self) -> list[str]:
        return sorted(each.rpartition("/")[2] for each in self._files.find(self._folder))

    def data(self, name: str) -> bytes:
        found: bytes = self._files.cat_file(f"{self._folder}/{name}")
        return found

    def put(self, name: str, data: bytes) -> None:
        self._files.pipe_file(f"{self._folder}/{name}", data)

    def lose(self, name: str) -> None:
        self._files.rm_file(f"{self._folder}/{name}")

    def lose_all(self) -> None:
        for name in self.names():
            self.lose(name)

    def tables(self) -> dict[Table, list[dict[str, Any]]]:
        """All rows of the ledger, as a backup has them."""
        with self._database.engine.connect() as connection:
            return {
                each: [dict(row) for row in connection.execute(each.select()).mappings()]
                for each in metadata.sorted_tables
            }

    def restore(self, backup: dict[Table, list[dict[str, Any]]]) -> None:
        with self._database.engine.begin() as connection:
            for each in reversed(metadata.sorted_tables):
                connection.execute(each.delete())
            for each, rows in backup.items():
                if rows:
                    connection.execute(each.insert(), rows)


Place = FolderPlace | StorePlace


@pytest.fixture
def store_place(postgres: LedgerDatabase, s3: S3Server, tmp_path: Path) -> Iterator[StorePlace]:
    made = StorePlace(postgres, s3, tmp_path.name)
    yield made
    made.close()


@pytest.fixture(params=["folder", pytest.param("store", marks=pytest.mark.proof)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "folder":
        yield FolderPlace(tmp_path)
    else:
        yield request.getfixturevalue("store_place")
