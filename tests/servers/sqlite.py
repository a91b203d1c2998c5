"""SQLite ledgers of one process: what SQLAlchemy compiles for the first is there for all that tests open after it."""

from __future__ import annotations

import functools
from pathlib import Path

from sqlalchemy import Connection, Engine, MetaData, create_engine, create_mock_engine
from sqlalchemy.schema import ExecutableDDLElement

from instep.ledger import schema, sqlite
from instep.ledger.tables import metadata


def share_what_is_compiled() -> None:
    """Changes nothing of what is executed: the ledger of each test would compile the same statements again."""
    shared = create_engine("sqlite://", query_cache_size=5_000)
    # A dialect learns from its first connection what it talks to.
    shared.connect().close()
    made = sqlite.sqlite_engine

    def sharing(path: Path, *, read_only: bool = False, busy_seconds: float = 30.0) -> Engine:
        engine = made(path, read_only=read_only, busy_seconds=busy_seconds)
        engine.dialect = engine.pool._dialect = shared.dialect
        engine._compiled_cache = shared._compiled_cache
        return engine

    sqlite.sqlite_engine = sharing
    schema.metadata = _Compiled(metadata)  # type: ignore[assignment, attr-defined]  # all that is used there


class _Compiled:
    """Stands in for a `MetaData` that creates its tables."""

    def __init__(self, metadata: MetaData) -> None:
        self._metadata = metadata
        self._sqlite = functools.cache(self._statements)

    def create_all(self, connection: Connection, *, checkfirst: bool) -> None:
        assert not checkfirst
        if connection.dialect.name != "sqlite":
            self._metadata.create_all(connection, checkfirst=checkfirst)
            return
        for statement in self._sqlite():
            connection.exec_driver_sql(statement)

    def _statements(self) -> tuple[str, ...]:
        found: list[str] = []

        def note(element: ExecutableDDLElement, *_: object, **__: object) -> None:
            found.append(str(element.compile(dialect=engine.dialect)))

        engine = create_mock_engine("sqlite://", note)
        self._metadata.create_all(engine, checkfirst=False)
        return tuple(found)
