"""Everything about the ledger that only holds on MariaDB and MySQL: connections, clock, statements, error codes."""

# ruff: noqa: S608 - statements are put together from constants of this module

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Final

import pymysql
from sqlalchemy import (
    URL,
    BigInteger,
    Connection,
    Engine,
    Row,
    TextClause,
    bindparam,
    create_engine,
    event,
    inspect,
    literal,
    select,
    text,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import ConnectionPoolEntry

from instep.domain.clock import Clock
from instep.domain.counts import COUNT_FIELDS
from instep.domain.jobs import SliceState
from instep.domain.retries import LONGEST_DELAY
from instep.errors import InstepError, Transient, UserError
from instep.ledger.dialects.collations import nopad
from instep.ledger.dialects.dialect import ClaimRequest, CompleteRequest
from instep.ledger.dialects.server import (
    ANSWER_SECONDS,
    CONNECT_SECONDS,
    LOCK_SECONDS,
    POOL,
    STATEMENT_SECONDS,
    as_error,
)
from instep.ledger.row_columns import by_rows
from instep.ledger.tables import documents, event_head, metadata
from instep.servers.address import ServerAddress
from instep.servers.errors import Trouble

#: What a URL may say after the `?`.
_OPTIONS: Final = frozenset({"unix_socket", "ssl_ca", "ssl_cert", "ssl_key", "ssl_check_hostname"})

_SESSION: Final = (
    # Whatever the server's own setting is: no text may be cut off without an error.
    "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION,ERROR_FOR_DIVISION_BY_ZERO'",
    # The clock is read in local time; in a zone with summer time an hour would come twice.
    "SET SESSION time_zone = '+00:00'",
    f"SET SESSION innodb_lock_wait_timeout = {LOCK_SECONDS}",
    f"SET SESSION lock_wait_timeout = {LOCK_SECONDS}",
)


class Mysql:
    """A `server.Server`. `answer_seconds` is for tests, which do not wait so long."""

    def __init__(self, address: ServerAddress, *, answer_seconds: float = ANSWER_SECONDS) -> None:
        if unknown := sorted(address.options.keys() - _OPTIONS):
            raise as_error(Trouble.OPTION, address.label, unknown[0], committing=False)
        self._address = address
        self._answer_seconds = answer_seconds

    def engine(self, *, read_only: bool = False) -> Engine:
        address = self._address
        url = URL.create(
            "mysql+pymysql",
            address.user,
            address.password,
            address.host,
            address.port,
            address.database,
            query=dict(address.options),
        )
        ours = {
            "connect_timeout": min(CONNECT_SECONDS, self._answer_seconds),
            # For the greeting; later answers may take longer.
            "read_timeout": min(CONNECT_SECONDS, self._answer_seconds),
            "write_timeout": self._answer_seconds,
            "program_name": "instep",
            "charset": "utf8mb4",
        }
        # SQLAlchemy asks for the count of rows found rather than changed (CLIENT.FOUND_ROWS).
        engine = create_engine(url, isolation_level="READ COMMITTED", connect_args=ours, **POOL)

        @event.listens_for(engine, "do_connect")
        def connect(_: object, __: object, arguments: list[Any], named: dict[str, Any]) -> Any:
            try:
                return pymysql.connect(*arguments, **named)
            except RuntimeError as error:
                raise UserError(
                    f"the driver cannot log in the way that the ledger's server asks for: {error}",
                    where=address.label,
                    hint="Install that package, or have the user log in another way; docs/ledgers.md says more.",
                ) from error

        # Before SQLAlchemy looks at the settings itself.
        @event.listens_for(engine, "connect", insert=True)
        def prepare(connection: pymysql.Connection[Any], _: ConnectionPoolEntry) -> None:
            # A private field, because the driver has no other way to set it later.
            connection._read_timeout = self._answer_seconds  # type: ignore[attr-defined]  # private
            mariadb = "MariaDB" in connection.get_server_info()  # type: ignore[no-untyped-call]  # as the stubs have it
            limit = (
                f"SET SESSION max_statement_time = {STATEMENT_SECONDS}"
                if mariadb
                else f"SET SESSION max_execution_time = {STATEMENT_SECONDS * 1000}"
            )
            with connection.cursor() as cursor:
                for statement in (*_SESSION, limit, *(["SET SESSION TRANSACTION READ ONLY"] if read_only else [])):
                    cursor.execute(statement)

        return engine

    def dialect(self, clock: Clock | None = None) -> MysqlDialect:
        return MysqlDialect(self._address.label, clock)

    def demand_suitable(self, connection: Connection) -> None:
        mariadb = bool(getattr(connection.dialect, "is_mariadb", False))
        version = tuple(part for part in connection.dialect.server_version_info or () if isinstance(part, int))
        # SKIP LOCKED and JSON_TABLE; in MySQL also CHECK, and a collation for which a space at the end counts.
        if version < ((10, 6) if mariadb else (8, 0, 17)):
            raise UserError(
                f"{'MariaDB' if mariadb else 'MySQL'} {'.'.join(map(str, version))} is too old for a ledger",
                where=self._address.label,
                hint="Use MariaDB 10.6, MySQL 8.0.17, or newer.",
            )

    @contextmanager
    def lock(self, engine: Engine) -> Iterator[None]:
        # These locks are the server's, not the database's; their names are short.
        name = "CONCAT('instep.', LEFT(SHA2(DATABASE(), 256), 32))"
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            if connection.scalar(text(f"SELECT GET_LOCK({name}, {LOCK_SECONDS})")) != 1:
                raise Transient(f"{self._address.label}: another process is still bringing up the ledger's schema")
            try:
                yield
            finally:
                connection.execute(text(f"SELECT RELEASE_LOCK({name})"))

    def clear_torn_schema(self, engine: Engine) -> None:
        """Drop the tables of a creation that was interrupted: every CREATE TABLE is a transaction of its own here.
        Tables without a single row are of a creation that was interrupted, or may as well be: they are dropped, to be
        made again. The head of a log without events does not count: it is there from the beginning.
        """
        with engine.begin() as connection:
            there = set(inspect(connection).get_table_names())
            ours = [table for table in metadata.sorted_tables if table.name in there and table is not event_head]
            if not any(connection.execute(select(literal(1)).select_from(each).limit(1)).all() for each in ours):
                metadata.drop_all(connection)
                # The second is made by the first migration, and given up by a later one.
                connection.execute(text("DROP TABLE IF EXISTS alembic_version, sequences"))


class MysqlDialect:
    """The ledger's SQL for MariaDB and MySQL. May be shared by threads."""

    #: A claim takes several statements here.
    autocommit = False

    def __init__(self, where: str, clock: Clock | None = None) -> None:
        self._where = where
        self._clock = clock

    def now(self, connection: Connection, /) -> int:
        if self._clock is not None:
            return self._clock.now()
        return int(connection.execute(_NOW).scalar_one())

    def claim(self, connection: Connection, request: ClaimRequest, /) -> Sequence[Sequence[Any]]:
        values = {name: getattr(request, name) for name in ClaimRequest.__slots__} | {"now": self._injected()}
        now, number = self._wanted(connection, values)
        if not number:
            return []
        locked = connection.execute(_LOCKED, values | {"number": number}).all()
        before, chosen = 0, []
        for slice_id, work in locked:
            if before < request.enough:
                chosen.append(slice_id)
            before += work
        if not chosen:
            return []
        ids = {"ids": chosen}
        # Read once more, now that the slices are locked: a job may have been stopped in between.
        rows = connection.execute(_CLAIMED, values | ids).all()
        if rows:
            connection.execute(_TAKE, ids | {"worker_id": request.worker_id, "now": now})
        return rows

    def _wanted(self, connection: Connection, values: Mapping[str, Any]) -> tuple[int, int]:
        """The moment, and how many slices are needed. Few are, as a rule: it is tried with few rows first."""
        now, number = 0, 0
        for sight in sorted({min(_FEW, values["limit"]), values["limit"]}):
            found = connection.execute(_WANTED, {**values, "limit": sight}).one()
            now, number = int(found[0]), int(found[1] or 0)
            if number < sight:
                break
        return now, number

    def complete(self, connection: Connection, request: CompleteRequest, /) -> int:
        values = {
            "job_id": request.job_id,
            "ref": request.ref,
            "epoch": request.epoch,
            "worker_id": request.worker_id,
            "now": self._injected(),
        }
        # By itself, because an EXISTS inside of an UPDATE would lock the lease's row.
        if connection.execute(_LEASED, values).one_or_none() is None:
            return 0
        done = [{"id": each.slice_id, "fence": each.fence} | each.counts.as_dict() for each in request.outcomes]
        return connection.execute(_complete(nopad(connection)), values | {"done": json.dumps(done)}).rowcount

    def replace_documents(self, connection: Connection, columns: Mapping[str, Sequence[Any]], /) -> None:
        rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        if rows:
            # In order, so that two that write the same wait for each other, not collide.
            ordered = sorted(rows, key=lambda row: (row["instance"], row["document_id"]))
            connection.execute(_REPLACE, ordered)

    columns = staticmethod(by_rows)

    def planned(self, connection: Connection, slices: int, /) -> None:
        """The claim names its index."""

    def statistics(self, connection: Connection, job_ids: Sequence[str], since: int, /) -> Iterable[Row[Any]]:
        for job_id in job_ids:
            yield from connection.execute(_STATISTICS, {"job_id": job_id, "since": since})

    def explain(self, error: DBAPIError, *, committing: bool) -> InstepError | None:
        """The error as the caller should see it, or None when it is a fault in Instep itself."""
        if not isinstance(error.orig, pymysql.Error) or not error.orig.args:
            return None
        trouble = _TROUBLES.get(error.orig.args[0])
        if trouble is None:
            return None
        return as_error(trouble, self._where, _said(error.orig), committing=committing)

    def _injected(self) -> int | None:
        return None if self._clock is None else self._clock.now()


# Statements. Names that are reserved words in some version stand in backticks.

_CLOCK: Final = "CAST(FLOOR(UNIX_TIMESTAMP(NOW(6)) * 1000) AS SIGNED)"
_MOMENT: Final = f"COALESCE(:now, {_CLOCK})"
_NOW: Final = text(f"SELECT {_CLOCK}")
_BY_NOW: Final = bindparam("now", type_=BigInteger)

_MAY_CLAIM: Final = """
    EXISTS (SELECT 1 FROM jobs WHERE jobs.id = :job_id AND jobs.state = 'RUNNING')
    AND EXISTS (SELECT 1 FROM leases WHERE leases.ref = :ref AND leases.job_id = :job_id)
    AND EXISTS (SELECT 1 FROM workers WHERE workers.id = :worker_id)
"""
# The index is named: with any other one, all pending slices would be locked to be sorted.
_PENDING: Final = f"""
    FROM slices FORCE INDEX (slices_pending)
    WHERE job_id = :job_id AND ref = :ref AND state = 'PENDING' AND `rank` >= :after
      AND attempts BETWEEN :least AND :most
      AND NOT (claimable_at BETWEEN {_MOMENT} + 1 AND {_MOMENT} + {LONGEST_DELAY})
"""

#: So many slices are enough for most claims.
_FEW: Final = 64

#: How many slices are needed, without a lock on any: whatever a claim locks and does not take is missing from
#: the claims of all others.
_WANTED: Final = text(f"""
SELECT {_MOMENT}, COUNT(*) FROM (
    SELECT SUM(work) OVER (ORDER BY `rank`, id ROWS UNBOUNDED PRECEDING) - work AS before_it
    FROM (SELECT id, `rank`, work {_PENDING} AND {_MAY_CLAIM} ORDER BY `rank`, id LIMIT :limit) AS sight
) AS summed
WHERE before_it < :enough
""").bindparams(_BY_NOW)

_LOCKED: Final = text(f"""
SELECT id, work {_PENDING} ORDER BY `rank`, id LIMIT :number FOR UPDATE SKIP LOCKED
""").bindparams(_BY_NOW)

_CLAIMED: Final = text(f"""
SELECT id, number, bucket, units, work, attempts, fence + 1, `rank`, payload
FROM slices JOIN slice_work ON slice_work.slice_id = slices.id
WHERE id IN :ids AND {_MAY_CLAIM}
""").bindparams(bindparam("ids", expanding=True))

_TAKE: Final = text("""
UPDATE slices SET state = 'PROCESSING', fence = fence + 1, worker_id = :worker_id, claimed_at = :now
WHERE id IN :ids
""").bindparams(bindparam("ids", expanding=True))

_LEASED: Final = text("SELECT 1 FROM leases WHERE ref = :ref AND epoch = :epoch AND job_id = :job_id")


@cache
def _complete(collation: str) -> TextClause:
    """Slices are looked up by an index that has this collation."""
    return text(f"""
UPDATE JSON_TABLE(:done, '$[*]' COLUMNS (
    id VARCHAR(80) CHARACTER SET utf8mb4 COLLATE {collation} PATH '$.id', fence BIGINT PATH '$.fence',
    {", ".join(f"`{name}` BIGINT PATH '$.{name}'" for name in COUNT_FIELDS)}
)) AS done STRAIGHT_JOIN slices ON slices.id = done.id AND slices.fence = done.fence
SET slices.state = 'COMPLETED', slices.error = NULL, slices.finished_at = {_MOMENT},
    {", ".join(f"slices.`{name}` = done.`{name}`" for name in COUNT_FIELDS)}
WHERE slices.state = 'PROCESSING' AND slices.worker_id = :worker_id
  AND slices.job_id = :job_id AND slices.ref = :ref
""").bindparams(_BY_NOW)


# Twice as quick as grouping by text and summing integers, as `sql.statistics.grouped` does:
# - Groups are in a temporary table here, whose keys should be short: numbers instead of texts.
# - Sums of integers are DECIMAL, those of DOUBLE are quicker; up to 2^53 they are exact too.
# - Ids of slices begin with the job's: one range of the table in its own order, however many other jobs are in it.
_STATES: Final = ", ".join(f"'{state}'" for state in SliceState)
_STATISTICS: Final = text(f"""
SELECT job_parts.job_id, job_parts.ref, ELT(sums.state, {_STATES}) AS state, number, planned, lately, begun,
    {", ".join(f"sums.`{name}`" for name in COUNT_FIELDS)}
FROM (
    SELECT position, FIELD(slices.state, {_STATES}) AS state, COUNT(*) AS number, SUM(units + 0e0) AS planned,
        SUM(IF(slices.finished_at >= :since, slices.`read` + 0e0, NULL)) AS lately,
        MIN(IF(slices.finished_at >= :since, slices.claimed_at, NULL)) AS begun,
        {", ".join(f"SUM(slices.`{name}` + 0e0) AS `{name}`" for name in COUNT_FIELDS)}
    FROM slices FORCE INDEX (PRIMARY)
    STRAIGHT_JOIN job_parts ON job_parts.job_id = slices.job_id AND job_parts.ref = slices.ref
    WHERE slices.job_id = :job_id AND slices.id > CONCAT(:job_id, '.') AND slices.id < CONCAT(:job_id, '/')
    GROUP BY position, FIELD(slices.state, {_STATES})
) AS sums JOIN job_parts ON job_parts.job_id = :job_id AND job_parts.position = sums.position
""")

_COLUMNS: Final = [column.name for column in documents.c]
_KEY: Final = [column.name for column in documents.primary_key]
_REPLACE: Final = text(f"""
INSERT INTO documents ({", ".join(_COLUMNS)}) VALUES ({", ".join(f":{each}" for each in _COLUMNS)})
ON DUPLICATE KEY UPDATE {", ".join(f"{each} = VALUES({each})" for each in _COLUMNS if each not in _KEY)}
""")


# Errors.

_TROUBLES: Final = {
    1213: Trouble.COLLISION,  # deadlock
    1020: Trouble.COLLISION,  # the row has changed since it was read
    1205: Trouble.BUSY,  # a lock was not free in time
    1969: Trouble.BUSY,  # the statement took too long (MariaDB)
    3024: Trouble.BUSY,  # the same (MySQL)
    1317: Trouble.BUSY,  # interrupted
    1290: Trouble.BUSY,  # read only: a replica, in the middle of a failover perhaps
    1792: Trouble.BUSY,  # a transaction that was opened to read only
    1836: Trouble.BUSY,  # read-only mode
    1047: Trouble.BUSY,  # a node of a Galera cluster that is not ready
    1206: Trouble.BUSY,  # the table of locks is full
    1037: Trouble.BUSY,  # out of memory
    1041: Trouble.BUSY,
    1040: Trouble.ABSENT,  # too many connections
    1203: Trouble.ABSENT,
    1226: Trouble.ABSENT,
    1135: Trouble.ABSENT,  # no thread for one more connection
    1129: Trouble.ABSENT,  # the host is blocked after many errors
    1130: Trouble.LOGIN,  # the host is not allowed in
    2002: Trouble.ABSENT,
    2003: Trouble.ABSENT,
    2005: Trouble.ABSENT,
    0: Trouble.LOST,  # the driver's, for a connection that was closed
    1053: Trouble.LOST,  # the server goes down
    1152: Trouble.LOST,
    1158: Trouble.LOST,
    1159: Trouble.LOST,
    1160: Trouble.LOST,
    1161: Trouble.LOST,
    1927: Trouble.LOST,  # the connection was killed
    2006: Trouble.LOST,
    2013: Trouble.LOST,
    2014: Trouble.LOST,
    2055: Trouble.LOST,
    4031: Trouble.LOST,  # idle for too long
    1045: Trouble.LOGIN,
    1698: Trouble.LOGIN,
    2059: Trouble.LOGIN,  # a way to log in that the driver does not know
    1044: Trouble.RIGHTS,
    1142: Trouble.RIGHTS,
    1143: Trouble.RIGHTS,
    1227: Trouble.RIGHTS,
    1370: Trouble.RIGHTS,
    1049: Trouble.NO_DATABASE,
    1021: Trouble.FULL,
    1114: Trouble.FULL,
    1878: Trouble.FULL,  # a temporary file
    2026: Trouble.OPTION,  # TLS
    1153: Trouble.TOO_LARGE,
    # What a migration would make is there already, and what it would drop is not.
    1050: Trouble.TORN,
    1060: Trouble.TORN,
    1061: Trouble.TORN,
    1091: Trouble.TORN,
}


def _said(error: pymysql.Error) -> str:
    return str(error.args[1]).strip().partition("\n")[0] if len(error.args) > 1 else "the connection was closed"
