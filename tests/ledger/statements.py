"""Seeing each statement just before it is sent, whichever way it takes to the driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import psycopg
from sqlalchemy import Connection, Engine, event


@contextmanager
def watching(engine: Engine, see: Callable[[str, Any], None]) -> Iterator[None]:
    """`see` is given statements with their parameters, before the database has them."""
    if engine.dialect.driver == "psycopg":
        # Claims and completions go past SQLAlchemy.
        execute = psycopg.Cursor.execute

        def seen(cursor: Any, query: Any, params: Any = None, **options: Any) -> Any:
            see(query.decode() if isinstance(query, bytes) else str(query), params)
            return execute(cursor, query, params, **options)

        with mock.patch.object(psycopg.Cursor, "execute", seen):
            yield
        return

    def note(_: Connection, __: object, statement: str, parameters: Any, *rest: object) -> None:
        see(statement, parameters)

    event.listen(engine, "before_cursor_execute", note)
    try:
        yield
    finally:
        event.remove(engine, "before_cursor_execute", note)
