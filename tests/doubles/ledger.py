"""A real ledger without a file: SQLite in memory, a copy of an empty one that each process makes once."""

from __future__ import annotations

import sqlite3
import uuid
import weakref
from functools import cache

from sqlalchemy import Engine, update

from instep.domain.clock import TIMING, Clock, Timing
from instep.domain.refs import Naming
from instep.ledger.dialects.sqlite import SqliteDialect, memory_engine
from instep.ledger.ledger import Ledger
from instep.ledger.schema import bring_up
from instep.ledger.tables import event_head


class MemoryLedger(Ledger):
    """May be shared by threads. It ends with the last reference to it: a test hands the same one to several that close
    theirs.
    """

    def __init__(self, clock: Clock, timing: Timing = TIMING, naming: Naming | None = None) -> None:
        engine = memory_engine()
        weakref.finalize(self, engine.dispose)
        _driver(engine).deserialize(_empty())
        own = naming or Naming(str(uuid.uuid4()))
        with engine.begin() as connection:
            connection.execute(update(event_head).values(ledger=own.ledger, since=own.since))
        super().__init__(engine, SqliteDialect(clock, "memory"), timing)

    def close(self) -> None:
        """Others may use it."""


@cache
def _empty() -> bytes:
    engine = memory_engine()
    bring_up(engine, "memory")
    content = _driver(engine).serialize()
    engine.dispose()
    return content


def _driver(engine: Engine) -> sqlite3.Connection:
    with engine.connect() as connection:
        driver = connection.connection.dbapi_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver
