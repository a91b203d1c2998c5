"""Everything about the ledger that only holds on SQLite: connections, clock, claims, error codes."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Connection,
    Engine,
    bindparam,
    create_engine,
    event,
    exists,
    func,
    insert,
    literal_column,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import ConnectionPoolEntry, QueuePool
from sqlalchemy.sql.base import Executable

from instep.domain.clock import Clock
from instep.domain.jobs import JobState, SliceState
from instep.errors import InstepError, Transient, UserError
from instep.ledger.tables import documents, jobs, slices


def sqlite_engine(path: Path, *, read_only: bool = False, busy_seconds: float = 30.0) -> Engine:
    """An engine whose transactions are `BEGIN IMMEDIATE` when the option `write` is set."""
    # A file that vanished must not come back because somebody only wanted to read it.
    address = f"{path.absolute().as_uri()}?mode={'rw' if read_only else 'rwc'}"

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(address, uri=True, timeout=busy_seconds, check_same_thread=False, isolation_level=None)

    engine = create_engine("sqlite://", creator=connect, poolclass=QueuePool)

    @event.listens_for(engine, "connect")
    def prepare(connection: sqlite3.Connection, _: ConnectionPoolEntry) -> None:
        if read_only:
            connection.execute("PRAGMA query_only = ON")
            return
        _use_wal(connection, busy_seconds)
        # In WAL mode this survives the death of the process; only a power cut may cost the last
        # commits, and what those recorded is then found again in the target's own commits.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")

    # The driver was told (isolation_level=None) not to guess where a transaction begins.
    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        write = connection.get_execution_options().get("write", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine


def _use_wal(connection: sqlite3.Connection, busy_seconds: float) -> None:
    """Two processes that make a ledger at once meet here, and SQLite does not wait by itself."""
    deadline = time.monotonic() + busy_seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if not error.sqlite_errorname.startswith("SQLITE_BUSY") or time.monotonic() >= deadline:
                raise
            time.sleep(0.01)
        else:
            return


class SqliteDialect:
    """What `SqlLedger` asks of a database beyond portable SQL."""

    def __init__(self, clock: Clock, where: str) -> None:
        self._clock = clock
        self._where = where

    def now(self, _: Connection) -> int:
        """One machine, one clock: the host's. A database server brings its own."""
        return self._clock.now()

    #: Binds job, partition, worker, now, enough (work), limit, least and most attempts; returns the claimed ids.
    claim: Executable = None  # type: ignore[assignment]  # set below, where it is composed

    #: Manifest rows, replacing those of the same document.
    replace_documents: Executable = insert(documents).prefix_with("OR REPLACE")

    def explain(self, error: DBAPIError) -> InstepError | None:
        """The error as the caller should see it, or None when it is a fault in Instep itself."""
        return explain(error.orig, self._where)


def _claim() -> Executable:
    # Literals, not parameters: only then does the planner use the partial index.
    pending = slices.c.state == literal_column(f"'{SliceState.PENDING}'")
    running = exists().where(jobs.c.id == bindparam("job"), jobs.c.state == literal_column(f"'{JobState.RUNNING}'"))
    order = (slices.c.priority.desc(), slices.c.work.desc(), slices.c.number, slices.c.id)
    first = (
        select(slices.c.id, slices.c.priority, slices.c.work, slices.c.number)
        .where(slices.c.job_id == bindparam("job"), slices.c.ref == bindparam("partition"), pending, running)
        .where(slices.c.attempts.between(bindparam("least"), bindparam("most")))
        .order_by(*order)
        .limit(bindparam("limit"))
        .subquery("first")
    )
    same_order = (first.c.priority.desc(), first.c.work.desc(), first.c.number, first.c.id)
    reached = func.sum(first.c.work).over(order_by=same_order, rows=(None, 0))
    summed = select(first.c.id, (reached - first.c.work).label("before")).subquery("summed")
    chosen = select(summed.c.id).where(summed.c.before < bindparam("enough"))
    return (
        update(slices)
        .where(slices.c.id.in_(chosen))
        .values(
            state=SliceState.PROCESSING.value,
            fence=slices.c.fence + 1,
            worker_id=bindparam("worker"),
            claimed_at=bindparam("now"),
        )
        .returning(slices.c.id)
    )


SqliteDialect.claim = _claim()

_FULL_HINT = "Free some space and run the same command again: it goes on where it stopped."


def explain(error: BaseException | None, where: str) -> InstepError | None:
    """What an error of the SQLite library means to the caller."""
    name: Any = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return Transient(f"{where}: the ledger is locked by another process")
    if name == "SQLITE_FULL":
        return UserError("the disk is full: the ledger cannot be written", where=where, hint=_FULL_HINT)
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return UserError(
            "this file is not a ledger, or it is damaged",
            where=where,
            hint="Restore it from a backup, or move it away: the next run builds everything anew.",
        )
    if name.startswith(("SQLITE_READONLY", "SQLITE_PERM", "SQLITE_AUTH", "SQLITE_CANTOPEN")):
        return UserError(
            "the ledger cannot be opened or written",
            where=where,
            hint="Check that the folder exists and that you may write to it and to the file.",
        )
    if name.startswith("SQLITE_IOERR"):
        return UserError(
            "reading or writing the ledger failed (input/output error)",
            where=where,
            hint="Check the disk, and that the ledger is not on a network file system.",
        )
    return None
