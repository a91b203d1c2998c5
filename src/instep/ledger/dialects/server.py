"""The base of ledgers on PostgreSQL and on MariaDB/MySQL: their limits, and how they fail."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Final, Protocol

from sqlalchemy import Connection, Engine

from instep.domain.clock import Clock
from instep.errors import InstepError, Transient, Unknown, UserError
from instep.ledger.dialects.dialect import Collision, SqlDialect
from instep.servers.errors import Trouble

CONNECT_SECONDS: Final = 10
#: How long a statement waits for rows that another transaction holds.
LOCK_SECONDS: Final = 30
#: How long a statement may run: the manifest of millions of documents is dropped by one.
STATEMENT_SECONDS: Final = 300
#: After so long without a word the server is taken for dead. It gave up the statement before that.
ANSWER_SECONDS: Final = STATEMENT_SECONDS + 30

#: A process has few threads that use the ledger, and the server few connections for many processes.
POOL: Final = {
    "pool_size": 2,
    "max_overflow": 3,
    "pool_timeout": LOCK_SECONDS,
    # A connection that broke while it was idle is replaced, not handed out.
    "pool_pre_ping": True,
    "pool_recycle": 300,
    # Errors must not repeat what is in documents.
    "hide_parameters": True,
}


class Server(Protocol):
    """A kind of database server: `postgres.Postgres` or `mysql.Mysql`."""

    def engine(self, *, read_only: bool) -> Engine: ...

    def dialect(self, clock: Clock | None) -> SqlDialect: ...

    def demand_suitable(self, connection: Connection) -> None:
        """Raise `UserError` for a server that is too old, or a database that cannot hold every text."""

    def lock(self, engine: Engine) -> AbstractContextManager[None]:
        """A lock within which no other process changes the schema of this database."""

    def clear_torn_schema(self, engine: Engine) -> None:
        """Remove what an interrupted creation of the schema left behind, where that can be."""


def as_error(trouble: Trouble, where: str, reason: str, *, committing: bool) -> InstepError:
    """The error that callers get for a trouble. `reason` is what the server or the driver said, without anything that
    is secret.
    """
    match trouble:
        case Trouble.LOST if committing:
            return Unknown(f"{where}: the connection was lost before the server said whether it had committed")
        case Trouble.LOST:
            return Transient(f"{where}: the connection to the ledger was lost ({reason})")
        case Trouble.ABSENT:
            return Transient(f"{where}: the ledger cannot be reached ({reason})")
        case Trouble.COLLISION:
            return Collision(f"{where}: {reason}")
        case Trouble.BUSY:
            return Transient(f"{where}: {reason}")
        case _:
            what, hint = _MENDABLE[trouble]
            return UserError(what.format(reason=reason), where=where, hint=hint)


_MENDABLE: Final = {
    Trouble.LOGIN: (
        "the ledger's server refused the user or the password",
        "Check user and password in `ledger:`; write ${NAME} there to take them from the environment.",
    ),
    Trouble.NO_DATABASE: (
        "the ledger's server has no such database",
        "Create an empty database for the ledger first; docs/ledgers.md says how.",
    ),
    Trouble.RIGHTS: (
        "the ledger's user may not do this in its database ({reason})",
        "Give the user all rights in the ledger's database; docs/ledgers.md says how.",
    ),
    Trouble.FULL: (
        "the disk of the ledger's server is full",
        "Free some space there and run the same command again: it continues where it stopped.",
    ),
    Trouble.OPTION: (
        "an option in the ledger's URL is not usable ({reason})",
        "docs/ledgers.md lists the options that a URL may have after the `?`.",
    ),
    Trouble.TOO_LARGE: (
        "the ledger's server does not take packets of this size",
        "Raise max_allowed_packet of the server, to 64M for example.",
    ),
    Trouble.TORN: (
        "an upgrade of the ledger was interrupted, and cannot be taken up ({reason})",
        "Restore the ledger's database from a backup; or give Instep an empty one, and take over the indexes that the "
        "lost one made: instep adopt",
    ),
}
