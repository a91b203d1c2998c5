"""SQLite ledgers of one process: the schema is compiled for the first one that tests open, and there for the others."""

from __future__ import annotations

import functools

from sqlalchemy import Connection, MetaData, create_mock_engine
from sqlalchemy.schema import ExecutableDDLElement

from instep.ledger import schema
from instep.ledger.tables import metadata


def share_what_is_compiled() -> None:
    """Changes nothing of what is executed: the ledger of each test would compile the same schema again."""
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
