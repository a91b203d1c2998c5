"""Database servers of the benchmarks: those of the tests, with the durability that a server has by default."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from tests.servers.postgres import PostgresServer

#: What PostgreSQL does unless told otherwise: a commit returns when it is on the disk.
DURABILITY = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on"}
#: As shipped, where the tests' server has less. Nothing here is tuned for any side.
_SETTINGS = DURABILITY | {"shared_buffers": "128MB"}


class DurablePostgres(PostgresServer):
    """Each run gets a database of its own, copied from a template that has the schema."""

    def __init__(self) -> None:
        super().__init__()
        self._numbers = itertools.count(1)

    def _command(self) -> Sequence[str | Path]:
        settings = [part for name, value in _SETTINGS.items() for part in ("-c", f"{name}={value}")]
        return [*super()._command(), *settings]

    def create(self, name: str) -> str:
        """A new empty database; returns its URL."""
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def copy(self, template: str) -> tuple[str, str]:
        """A copy of an idle database: its name and its URL."""
        name = f"{template}_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
        return name, self.url(name)

    def drop(self, name: str) -> None:
        self.execute(f"DROP DATABASE {name} WITH (FORCE)")
