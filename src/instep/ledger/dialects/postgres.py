"""Everything about the ledger that only holds on PostgreSQL: connections, clock, statements, error codes."""

# ruff: noqa: S608 - statements are put together from constants of this module

from __future__ import annotations

import select
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from operator import attrgetter
from typing import Any, Final, TypeVar, cast

import psycopg
from sqlalchemy import URL, Connection, Engine, create_engine, event, text
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError, InvalidatePoolError
from sqlalchemy.pool import ConnectionPoolEntry
from sqlalchemy.types import TypeEngine

from instep.domain.clock import Clock
from instep.domain.counts import COUNT_FIELDS
from instep.domain.retries import LONGEST_DELAY
from instep.errors import InstepError, UserError
from instep.ledger.dialects.dialect import ClaimRequest, CompleteRequest, grouped
from instep.ledger.dialects.server import (
    ANSWER_SECONDS,
    CONNECT_SECONDS,
    LOCK_SECONDS,
    POOL,
    STATEMENT_SECONDS,
    as_error,
)
from instep.ledger.row_columns import by_rows
from instep.ledger.tables import documents
from instep.servers.address import ServerAddress
from instep.servers.errors import Trouble, postgres_reason, postgres_trouble

T = TypeVar("T")

#: Of advisory locks, which are the database's: any number that others do not use. ("instep")
_LOCK: Final = 0x696E73746570

#: A connection that was silent for so long may be gone without a word.
_SILENT_SECONDS: Final = 30.0

_SESSION: Final = {
    # Every statement is made for the plan that it should have. Planned again for the values of each call, a claim
    # takes five to ten times as long.
    "plan_cache_mode": "force_generic_plan",
    "lock_timeout": f"{LOCK_SECONDS}s",
    "statement_timeout": f"{STATEMENT_SECONDS}s",
    # A process that hangs in mid-transaction must not keep others waiting for what it locked.
    "idle_in_transaction_session_timeout": f"{STATEMENT_SECONDS}s",
}


class Postgres:
    """A `server.Server`. `answer_seconds` is for tests, which do not wait so long."""

    def __init__(self, address: ServerAddress, *, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._address = address
        self._answer_seconds = answer_seconds

    def engine(self, *, read_only: bool = False) -> Engine:
        address = self._address
        url = URL.create(
            "postgresql+psycopg", address.user, address.password, address.host, address.port, address.database
        )
        # libpq knows what a lost host looks like: nothing of what was sent arrives.
        ours = {
            "connect_timeout": int(min(CONNECT_SECONDS, self._answer_seconds)),
            "application_name": "instep",
            # Whatever PGCLIENTENCODING says.
            "client_encoding": "utf8",
            "keepalives_idle": 30,
            "keepalives_interval": 10,
            "keepalives_count": 3,
            "tcp_user_timeout": 60_000,
        }
        # Not asked before each use whether it still lives: that is a round trip for each claim.
        pool: dict[str, Any] = POOL | {"pool_pre_ping": False}
        # Connections are switched to transactions for what needs one: most calls are one statement.
        pool |= {"isolation_level": "AUTOCOMMIT", "skip_autocommit_rollback": True}
        engine = create_engine(url, connect_args=ours | dict(address.options), **pool)

        @event.listens_for(engine, "do_connect")
        def connect(_: object, __: object, arguments: list[Any], named: dict[str, Any]) -> Any:
            connection = _BoundedConnection.connect(*arguments, **named)
            connection.seconds = self._answer_seconds
            return connection

        @event.listens_for(engine, "connect")
        def prepare(connection: psycopg.Connection, _: ConnectionPoolEntry) -> None:
            # By statement: connection poolers between us and the server refuse most start-up options.
            settings = _SESSION | ({"default_transaction_read_only": "on"} if read_only else {})
            each = ", ".join("set_config(%s, %s, false)" for _ in settings)
            connection.execute(f"SELECT {each}", [part for pair in settings.items() for part in pair])

        @event.listens_for(engine, "checkin")
        def remember(_: psycopg.Connection[Any] | None, record: ConnectionPoolEntry) -> None:
            record.info["used"] = time.monotonic()

        @event.listens_for(engine, "checkout")
        def demand_alive(connection: psycopg.Connection[Any], record: ConnectionPoolEntry, _: object) -> None:
            used = record.info.get("used")  # not yet, when it has just been made
            if used is not None and (time.monotonic() - used > _SILENT_SECONDS or _has_pending_message(connection)):
                try:
                    engine.dialect.do_ping(cast(DBAPIConnection, connection))
                except psycopg.Error as error:
                    raise InvalidatePoolError from error

        return engine

    def dialect(self, clock: Clock | None = None) -> PostgresDialect:
        return PostgresDialect(self._address.label, clock)

    def demand_suitable(self, connection: Connection) -> None:
        version = connection.dialect.server_version_info or ()
        if version < (13,):
            raise UserError(
                f"PostgreSQL {'.'.join(map(str, version))} is too old for a ledger",
                where=self._address.label,
                hint="Use PostgreSQL 13 or newer.",
            )
        encoding = connection.scalar(text("SELECT current_setting('server_encoding')"))
        if encoding != "UTF8":
            raise UserError(
                f"the database has the encoding {encoding}, which does not hold every text",
                where=self._address.label,
                hint="Give the ledger a database of its own: CREATE DATABASE … TEMPLATE template0 ENCODING 'UTF8'",
            )

    @contextmanager
    def lock(self, engine: Engine) -> Iterator[None]:
        with engine.connect() as connection:
            connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": _LOCK})
            try:
                yield
            finally:
                connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": _LOCK})

    def clear_torn_schema(self, engine: Engine) -> None:
        """Do nothing: the schema is made in one transaction, so it is there or it is not."""


def _has_pending_message(connection: psycopg.Connection[Any]) -> bool:
    """Whether a message came while the connection was idle: that the server went down, or the connection's end."""
    sockets = select.poll()
    sockets.register(connection.pgconn.socket, select.POLLIN)
    return bool(sockets.poll(0))


def _rows(connection: Connection, statement: bytes, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """Run a statement straight on the driver: claims and completions are many, and what SQLAlchemy does for a statement
    takes as long as the statement. In binary: as text a payload is twice as long, and is to be decoded.
    """
    driver = connection.connection.driver_connection
    assert isinstance(driver, _BoundedConnection)
    try:
        return driver.asked.execute(statement, values).fetchall()
    except psycopg.Error as error:
        if driver.closed:
            connection.invalidate(error)
        raise DBAPIError(None, None, error) from error


class _BoundedConnection(psycopg.Connection[Any]):
    """A connection that does not wait for ever for a server that hangs."""

    seconds: float = ANSWER_SECONDS

    @cached_property
    def asked(self) -> psycopg.Cursor[tuple[Any, ...]]:
        return self.cursor(binary=True)

    def wait(self, gen: Generator[Any, Any, T], *arguments: Any, **named: Any) -> T:
        return super().wait(self._in_time(gen), *arguments, **named)

    def _in_time(self, gen: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
        deadline = time.monotonic() + self.seconds
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted  # nothing, each time an interval has passed
                if not ready and time.monotonic() > deadline:
                    self.pgconn.finish()
                    raise psycopg.OperationalError(f"no answer within {self.seconds:g} seconds")
                wanted = gen.send(ready)
        except StopIteration as end:
            result: T = end.value
            return result


class PostgresDialect:
    """The ledger's SQL for PostgreSQL. May be shared by threads."""

    autocommit = True

    def __init__(self, where: str, clock: Clock | None = None) -> None:
        self._where = where
        self._clock = clock

    def now(self, connection: Connection, /) -> int:
        if self._clock is not None:
            return self._clock.now()
        return int(connection.execute(_NOW).scalar_one())

    def claim(self, connection: Connection, request: ClaimRequest, /) -> Sequence[Sequence[Any]]:
        values = {name: getattr(request, name) for name in ClaimRequest.__slots__}
        statement = _CLAIM_ONE if request.limit == 1 else _CLAIM
        return _rows(connection, statement, values | {"now": self._injected()})

    def complete(self, connection: Connection, request: CompleteRequest, /) -> int:
        outcomes = request.outcomes
        values: dict[str, Any] = {
            "job_id": request.job_id,
            "ref": request.ref,
            "epoch": request.epoch,
            "worker_id": request.worker_id,
            "now": self._injected(),
            "number": len(outcomes),
            "ids": _texts(each.slice_id for each in outcomes),
            "fences": _numbers(each.fence for each in outcomes),
        }
        counts = zip(*(_counts(each.counts) for each in outcomes), strict=True)
        values.update(zip(COUNT_FIELDS, map(_numbers, counts), strict=True))
        try:
            _rows(connection, _COMPLETE, values)
        except DBAPIError as error:
            if isinstance(error.orig, psycopg.errors.DivisionByZero):
                return 0
            raise
        return len(outcomes)

    def replace_documents(self, connection: Connection, columns: Mapping[str, Sequence[Any]], /) -> None:
        # A statement may replace a row once only. In order, so that two that write the same wait, not collide.
        last = {key: at for at, key in enumerate(zip(columns["instance"], columns["document_id"], strict=True))}
        if last:
            ordered = [last[key] for key in sorted(last)]
            connection.execute(_REPLACE, {name: [columns[name][at] for at in ordered] for name in _COLUMNS})

    columns = staticmethod(by_rows)

    def planned(self, connection: Connection, slices: int, /) -> None:
        """Analyze the table of slices after a large plan. A job that is not in the statistics yet is taken for one of a
        few rows, and each claim would sort them all.
        """
        if slices >= _MANY:
            connection.execute(text("ANALYZE slices"))

    statistics = staticmethod(grouped)

    def explain(self, error: DBAPIError, *, committing: bool) -> InstepError | None:
        """The error as the caller should see it, or None when it is a fault in Instep itself."""
        trouble = _trouble(error.orig)
        if trouble is None:
            return None
        return as_error(trouble, self._where, postgres_reason(str(error.orig)), committing=committing)

    def _injected(self) -> int | None:
        return None if self._clock is None else self._clock.now()


#: From so many slices on, a job's first claims would notice.
_MANY: Final = 500

# Statements.

# Claims and completions are many: they go to the driver as they are.

#: Of this moment, not of the transaction's beginning: it may have waited for a lock since.
_CLOCK: Final = "CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS BIGINT)"
_MOMENT: Final = f"COALESCE(CAST(%(now)s AS BIGINT), {_CLOCK})"
_NOW: Final = text(f"SELECT {_CLOCK}")

# `state` is a literal, or the planner would not use the partial index. An array and a subquery instead of joins, so
# that no plan reads whole tables whatever the planner thinks of their size. There is no moment, and so nothing to
# be seen, for a worker that may not claim.
_NOW_IF_ALLOWED: Final = f"""
    SELECT {_MOMENT} AS now
    WHERE EXISTS (SELECT 1 FROM jobs WHERE jobs.id = %(job_id)s AND jobs.state = 'RUNNING')
      AND EXISTS (SELECT 1 FROM leases WHERE leases.ref = %(ref)s AND leases.job_id = %(job_id)s)
      AND EXISTS (SELECT 1 FROM workers WHERE workers.id = %(worker_id)s)
"""
_PENDING: Final = f"""
    FROM slices
    WHERE job_id = %(job_id)s AND ref = %(ref)s AND state = 'PENDING' AND rank >= %(after)s
      AND attempts BETWEEN %(least)s AND %(most)s
      AND EXISTS (SELECT 1 FROM moment)
      AND NOT (claimable_at BETWEEN (SELECT now FROM moment) + 1 AND (SELECT now FROM moment) + {LONGEST_DELAY})
    ORDER BY rank, id
"""
_TAKE: Final = f"""
UPDATE slices
SET state = 'PROCESSING', fence = fence + 1, worker_id = %(worker_id)s, claimed_at = (SELECT now FROM moment)
WHERE id = ANY (ARRAY(SELECT id {_PENDING} LIMIT {{number}} FOR UPDATE SKIP LOCKED))
RETURNING id, number, bucket, units, work, attempts, fence, rank,
    (SELECT payload FROM slice_work WHERE slice_work.slice_id = slices.id)
"""
# `wanted` finds out how many slices are needed without locking any: whatever a claim locks and does not take is
# missing from the claims of all others. Sums of BIGINT would be NUMERIC, which is slow.
_CLAIM: Final = f"""
WITH moment AS MATERIALIZED ({_NOW_IF_ALLOWED}),
sight AS (SELECT id, rank, CAST(work AS DOUBLE PRECISION) AS work {_PENDING} LIMIT %(limit)s),
wanted AS MATERIALIZED (
    SELECT count(*) AS number
    FROM (SELECT sum(work) OVER (ORDER BY rank, id ROWS UNBOUNDED PRECEDING) - work AS before FROM sight) AS summed
    WHERE before < %(enough)s
)
{_TAKE.format(number="(SELECT number FROM wanted)")}
""".encode()
_CLAIM_ONE: Final = f"WITH moment AS MATERIALIZED ({_NOW_IF_ALLOWED}) {_TAKE.format(number=1)}".encode()

# All or nothing in one statement, so that it needs no transaction around it: a division by zero takes it back.
# IS NOT DISTINCT FROM is what no index serves: slices are looked up by their ids, not sought among all in work.
_COMPLETE: Final = f"""
WITH completed AS (
    UPDATE slices
    SET state = 'COMPLETED', error = NULL, finished_at = {_MOMENT},
        {", ".join(f"{name} = done.{name}" for name in COUNT_FIELDS)}
    FROM unnest(CAST(%(ids)s AS VARCHAR[]), CAST(%(fences)s AS BIGINT[]),
        {", ".join(f"CAST(%({name})s AS BIGINT[])" for name in COUNT_FIELDS)}
    ) AS done (id, fence, {", ".join(COUNT_FIELDS)})
    WHERE slices.id = done.id AND slices.fence = done.fence
      AND (slices.state, slices.worker_id, slices.job_id, slices.ref)
        IS NOT DISTINCT FROM ('PROCESSING', %(worker_id)s, %(job_id)s, %(ref)s)
      AND EXISTS (
        SELECT 1 FROM leases WHERE leases.ref = %(ref)s AND leases.epoch = %(epoch)s AND leases.job_id = %(job_id)s
      )
    RETURNING 1
)
SELECT 1 / CAST(count(*) = %(number)s AS INTEGER) FROM completed
""".encode()

_counts: Final = attrgetter(*COUNT_FIELDS)


def _numbers(values: Iterable[int]) -> str:
    """An array as text: for each list the driver would choose the smallest type that fits, and each mixture of
    types would be a statement of its own to the server, to be planned again.
    """
    return "{" + ",".join(map(str, values)) + "}"


def _texts(values: Iterable[str]) -> str:
    """An array of texts as text, which the driver would otherwise look at once more."""
    escaped = (each.replace("\\", r"\\").replace('"', r"\"") for each in values)
    return "{" + ",".join(f'"{each}"' for each in escaped) + "}"


def _array(kind: TypeEngine[Any]) -> str:
    return "BIGINT[]" if kind.python_type is int else "VARCHAR[]"


_COLUMNS: Final = [column.name for column in documents.c]
_KEY: Final = [column.name for column in documents.primary_key]
_REPLACE: Final = text(f"""
INSERT INTO documents ({", ".join(_COLUMNS)})
SELECT * FROM unnest({", ".join(f"CAST(:{each} AS {_array(documents.c[each].type)})" for each in _COLUMNS)})
ON CONFLICT ({", ".join(_KEY)})
DO UPDATE SET {", ".join(f"{each} = EXCLUDED.{each}" for each in _COLUMNS if each not in _KEY)}
""")


# Errors.


def _trouble(error: BaseException | None) -> Trouble | None:
    if not isinstance(error, psycopg.Error):
        return None
    return postgres_trouble(error.sqlstate, str(error), operational=isinstance(error, psycopg.OperationalError))
