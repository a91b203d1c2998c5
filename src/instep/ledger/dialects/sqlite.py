"""Everything about the ledger that only holds on SQLite: connections, clock, claims, error codes."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from copy import copy
from functools import cache
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Dialect,
    Engine,
    Row,
    Select,
    bindparam,
    create_engine,
    event,
    exists,
    func,
    insert,
    literal_column,
    make_url,
    select,
    update,
)
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.engine.interfaces import CoreExecuteOptionsParameter
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import ConnectionPoolEntry, PoolProxiedConnection, QueuePool
from sqlalchemy.sql.base import Executable
from sqlalchemy.util import LRUCache

from instep.domain.clock import Clock
from instep.domain.counts import COUNT_FIELDS
from instep.domain.jobs import JobState, SliceState
from instep.errors import InstepError, Transient, UserError
from instep.ledger.dialects.dialect import ClaimRequest, CompleteRequest, grouped, may_be_claimed
from instep.ledger.tables import documents, jobs, leases, slice_work, slices, workers

if TYPE_CHECKING:
    import pyarrow as pa
    from sqlalchemy.engine import ExceptionContext

#: There are some hundred statements.
_STATEMENTS = 1_000


def sqlite_engine(path: Path, *, read_only: bool = False, busy_seconds: float = 30.0) -> Engine:
    """An engine whose transactions are `BEGIN IMMEDIATE` when the option `write` is set."""
    # Reading must not recreate a file that vanished.
    address = f"{path.absolute().as_uri()}?mode={'rw' if read_only else 'rwc'}"

    def connect() -> Any:
        return sqlite3.connect(address, uri=True, timeout=busy_seconds, check_same_thread=False, isolation_level=None)

    def prepare(connection: sqlite3.Connection, _: ConnectionPoolEntry) -> None:
        if read_only:
            connection.execute("PRAGMA query_only = ON")
            return
        _use_wal(connection, busy_seconds)
        # In WAL mode this survives the death of the process; only a power cut may cost the last
        # commits, and what those recorded is then found again in the target's own commits.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")

    engine = _engine(connect)
    event.listen(engine, "connect", prepare)
    return engine


def memory_engine() -> Engine:
    """An engine of a new database in memory, which is gone when the engine is disposed of."""

    def connect() -> Any:
        connection = sqlite3.connect(":memory:", check_same_thread=False, isolation_level=None)
        connection.execute("PRAGMA foreign_keys = ON")
        return connection

    # The connection is the database: threads take it in turn.
    return _engine(connect, pool_size=1, max_overflow=0)


def _engine(connect: Callable[[], Any], **options: Any) -> Engine:
    dialect, compiled = _compiling()
    pool = QueuePool(connect, dialect=dialect, **options)
    engine = Engine(pool, dialect, make_url("sqlite://"), execution_options={"compiled_cache": compiled})
    event.listen(engine, "handle_error", _close_statement)
    return engine


def _close_statement(context: ExceptionContext) -> None:
    """Close the statement that Ctrl-C has interrupted, and not its connection, as SQLAlchemy does: the statement would
    hold the lock of the file for as long as a traceback refers to it, and no slice could be given back.
    """
    if not isinstance(context.original_exception, Exception):
        context.is_disconnect = False


class LedgerSqlite(SQLiteDialect_pysqlite):
    """SQLAlchemy's dialect, with a BEGIN of its own: the driver was told (isolation_level=None) not to guess where a
    transaction begins.

    An event listener for it makes each statement look for listeners: short reads took a quarter longer.
    """

    supports_statement_cache = True
    _begin = "BEGIN"

    def do_begin(self, dbapi_connection: PoolProxiedConnection) -> None:
        assert dbapi_connection.driver_connection is not None
        dbapi_connection.driver_connection.execute(self._begin)

    def set_engine_execution_options(self, engine: Engine, opts: CoreExecuteOptionsParameter) -> None:
        super().set_engine_execution_options(engine, opts)
        if opts.get("write"):
            writing = copy(self)
            writing._begin = "BEGIN IMMEDIATE"
            engine.dialect = writing

    # One that writes compiles nothing again.
    def __eq__(self, other: object) -> bool:
        return isinstance(other, LedgerSqlite)

    def __hash__(self) -> int:
        return hash(LedgerSqlite)


registry.register("sqlite.ledger", __name__, "LedgerSqlite")


@cache
def _compiling() -> tuple[Dialect, MutableMapping[Any, Any]]:
    """A dialect, and what was compiled for it: the ledger opened next (by the next run in a notebook, say) executes the
    same statements, and compiling them took a third of what a small run costs this process.
    """
    engine = create_engine("sqlite+ledger://")
    engine.connect().close()  # It learns from its first connection what it talks to.
    return engine.dialect, LRUCache(_STATEMENTS)


def _use_wal(connection: sqlite3.Connection, busy_seconds: float) -> None:
    """Switch the database to WAL. Two processes that make a ledger at once meet here, and SQLite does not wait by
    itself.
    """
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
    """Implements `dialect.SqlDialect`."""

    #: A transaction costs no round trip here.
    autocommit = False

    def __init__(self, clock: Clock, where: str) -> None:
        self._clock = clock
        self._where = where

    def now(self, _: Connection) -> int:
        """The host's time: one machine has one clock. A database server brings its own."""
        return self._clock.now()

    def claim(self, connection: Connection, request: ClaimRequest) -> Sequence[Row[Any]]:
        values = {
            "b_job": request.job_id,
            "b_ref": request.ref,
            "b_worker": request.worker_id,
            "b_enough": request.enough,
            "b_limit": request.limit,
            "b_after": request.after,
            "b_least": request.least,
            "b_most": request.most,
            "b_now": self._clock.now(),
        }
        return connection.execute(_CLAIM, values).all()

    def complete(self, connection: Connection, request: CompleteRequest) -> int:
        common = {
            "b_job": request.job_id,
            "b_ref": request.ref,
            "b_epoch": request.epoch,
            "b_worker": request.worker_id,
            "b_now": self._clock.now(),
        }
        rows = [
            {"b_id": each.slice_id, "b_fence": each.fence} | common | each.counts.as_dict() for each in request.outcomes
        ]
        return connection.execute(_COMPLETE, rows).rowcount if rows else 0

    def replace_documents(self, connection: Connection, columns: Mapping[str, Sequence[Any]]) -> None:
        if columns["document_id"]:
            # Straight to the driver, since they are storable by now: what SQLAlchemy does for a row takes as long as to
            # insert it. In the order of the ids, in which neighbours share a page: those of an instance come together,
            # and a pair as the key of the order takes four times as long.
            rows = sorted(zip(*_values(columns), strict=True), key=_document_id)
            rest = len(rows) % _ROWS
            # A statement gives the interpreter up, which other threads of a wave want, once and not for each row.
            for start in range(0, len(rows) - rest, _ROWS):
                connection.exec_driver_sql(_replacing(_ROWS), tuple(chain.from_iterable(rows[start : start + _ROWS])))
            if rest:
                connection.exec_driver_sql(_replacing(), rows[-rest:])

    def columns(self, connection: Connection, query: Select[Any], schema: pa.Schema, /) -> pa.RecordBatch:
        """Each column comes as one text, which is parted at NULs: no text has any, nor is one null. To make objects of
        Python out of rows takes longer than to read them, and keeps other threads from the interpreter.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        each = query.subquery().c
        texts = [func.group_concat(func.coalesce(column, ""), func.char(0)) for column in each]
        rows = connection.execute(select(*texts)).one()
        columns: list[Any] = []
        for text, field in zip(rows, schema, strict=True):
            values: Any = pc.list_flatten(pc.split_pattern(pa.array([text], pa.string()), "\0"))
            if pa.types.is_integer(field.type):
                values = pc.if_else(pc.equal(values, pa.scalar("")), pa.scalar(None, pa.string()), values)
            columns.append(values.cast(field.type))
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def planned(self, connection: Connection, slices: int) -> None:
        """The planner finds the right index without statistics."""

    statistics = staticmethod(grouped)

    def explain(self, error: DBAPIError, *, committing: bool = False) -> InstepError | None:
        """`committing` makes no difference: there is no connection that could be lost."""
        return explain(error.orig, self._where)


# Literals, not parameters: only then does the planner use the partial index.
def _is(column: Column[str], state: JobState | SliceState) -> ColumnElement[bool]:
    return column == literal_column(f"'{state}'")


_LEASED = exists().where(leases.c.ref == bindparam("b_ref"), leases.c.job_id == bindparam("b_job"))


def _claim() -> Executable:
    running = exists().where(jobs.c.id == bindparam("b_job"), _is(jobs.c.state, JobState.RUNNING))
    registered = exists().where(workers.c.id == bindparam("b_worker"))
    first = (
        select(slices.c.id, slices.c.rank, slices.c.work)
        .where(slices.c.job_id == bindparam("b_job"), slices.c.ref == bindparam("b_ref"))
        .where(_is(slices.c.state, SliceState.PENDING), slices.c.rank >= bindparam("b_after"))
        .where(slices.c.attempts.between(bindparam("b_least"), bindparam("b_most")))
        .where(may_be_claimed(slices.c.claimable_at, bindparam("b_now")))
        .where(running, _LEASED, registered)
        .order_by(slices.c.rank, slices.c.id)
        .limit(bindparam("b_limit"))
        .subquery("first")
    )
    reached = func.sum(first.c.work).over(order_by=(first.c.rank, first.c.id), rows=(None, 0))
    summed = select(first.c.id, (reached - first.c.work).label("before")).subquery("summed")
    chosen = select(summed.c.id).where(summed.c.before < bindparam("b_enough"))
    payload = select(slice_work.c.payload).where(slice_work.c.slice_id == slices.c.id).scalar_subquery()
    returned = ("id", "number", "bucket", "units", "work", "attempts", "fence", "rank")
    return (
        update(slices)
        .where(slices.c.id.in_(chosen))
        .values(
            state=SliceState.PROCESSING.value,
            fence=slices.c.fence + 1,
            worker_id=bindparam("b_worker"),
            claimed_at=bindparam("b_now"),
        )
        .returning(*(slices.c[name] for name in returned), payload.label("payload"))
    )


_CLAIM = _claim()

_COMPLETE = (
    update(slices)
    .where(
        slices.c.id == bindparam("b_id"),
        slices.c.fence == bindparam("b_fence"),
        slices.c.worker_id == bindparam("b_worker"),
        slices.c.job_id == bindparam("b_job"),
        slices.c.ref == bindparam("b_ref"),
        _is(slices.c.state, SliceState.PROCESSING),
        _LEASED.where(leases.c.epoch == bindparam("b_epoch")),
    )
    .values(
        state=SliceState.COMPLETED.value,
        error=None,
        finished_at=bindparam("b_now"),
        **{name: bindparam(name) for name in COUNT_FIELDS},
    )
)

_DOCUMENT = [each.name for each in documents.columns]
_values = itemgetter(*_DOCUMENT)
_document_id = itemgetter(_DOCUMENT.index("document_id"))


#: Rows of one statement: more make it no quicker. Each value is a parameter, of which SQLite takes 32,766.
_ROWS: Final = 250


@cache
def _replacing(rows: int = 1) -> str:
    """The statement that inserts rows of `documents`, or replaces them; values are in the order of the columns."""
    one = str(insert(documents).prefix_with("OR REPLACE").compile(dialect=SQLiteDialect_pysqlite()))
    values = one.partition(" VALUES ")[2]
    return one + f", {values}" * (rows - 1)


_FULL_HINT = "Free some space and run the same command again: it continues where it stopped."


def explain(error: BaseException | None, where: str) -> InstepError | None:
    """Translate an error of the SQLite library; None if it is not one of its own."""
    name: Any = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return Transient(f"{where}: the ledger is locked by another process")
    if name == "SQLITE_FULL":
        return UserError("the disk is full: the ledger cannot be written", where=where, hint=_FULL_HINT)
    if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
        return UserError(
            "this file is not a ledger, or it is damaged",
            where=where,
            hint="Restore it from a backup, or move it away: the next run rebuilds everything.",
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
