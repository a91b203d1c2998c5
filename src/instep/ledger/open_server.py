"""Opens ledgers on PostgreSQL and on MariaDB or MySQL."""

from __future__ import annotations

from importlib import import_module

from sqlalchemy import Engine
from sqlalchemy.exc import DBAPIError

from instep.domain.clock import TIMING, Clock, Timing
from instep.errors import Away, InstepError, Transient, UserError
from instep.ledger import event_log
from instep.ledger.dialects.server import Server
from instep.ledger.ledger import Ledger
from instep.ledger.schema import older, refuse_newer, upgrade, version_of
from instep.ledger.state_files import state_files
from instep.ledger.tables import HEAD
from instep.ledger.transaction import IN_TRANSACTION
from instep.servers.address import ServerAddress


def server_at(address: ServerAddress) -> Server:
    """Load the adapter of a server. Raises `UserError` when its driver is not installed."""
    driver, extra = {"postgresql": ("psycopg", "postgres"), "mysql": ("pymysql", "mysql")}[address.kind]
    try:
        import_module(driver)
    except ImportError as error:
        raise UserError(
            f"the driver for ledgers on {address.scheme} is not installed",
            where=address.label,
            hint=f"Install it with: pip install 'instep[{extra}]'",
        ) from error
    if address.kind == "postgresql":
        from instep.ledger.dialects.postgres import Postgres

        return Postgres(address)
    from instep.ledger.dialects.mysql import Mysql

    return Mysql(address)


def open_server(
    address: ServerAddress,
    *,
    read_only: bool = False,
    timing: Timing = TIMING,
    clock: Clock | None = None,
    server: Server | None = None,
    state: str | None = None,
) -> Ledger | None:
    """The ledger there; None for one that is only to be read, and does not exist yet. Its state files are at the URL
    `state`; without one, all is in its rows.

    Its clock is the server's. A test may give another one, or a server of other settings.
    """
    where = address.label
    server = server or server_at(address)
    dialect = server.dialect(clock)
    engine = server.engine(read_only=read_only)
    try:
        with engine.connect() as connection:
            server.demand_suitable(connection)
            version = version_of(connection, where)
        if version is None and read_only:
            engine.dispose()
            return None
        if version is not None:
            refuse_newer(version, where)
        if version != HEAD:
            _bring_up(server, engine, version, where, read_only=read_only)
        files = None
        if state is not None:
            with engine.connect() as connection:
                files = state_files(state, event_log.head(connection).naming.ledger)
    except DBAPIError as error:
        engine.dispose()
        known = dialect.explain(error, committing=False)
        if known is None:
            raise
        # Without the driver's own error: that may repeat the URL's user.
        raise _as_user_error(known, where) from None
    except BaseException:
        engine.dispose()
        raise
    return Ledger(engine, dialect, timing, files)


def _bring_up(server: Server, engine: Engine, version: str | None, where: str, *, read_only: bool) -> None:
    if read_only:
        raise older(version, where)
    with server.lock(engine):
        with engine.connect() as connection:
            version = version_of(connection, where)
        if version == HEAD:
            return  # Another process was first.
        server.clear_torn_schema(engine)
        # Always by migrations: indexes differ from those of SQLite.
        upgrade(engine.execution_options(**IN_TRANSACTION))


def _as_user_error(error: InstepError, where: str) -> InstepError:
    if not isinstance(error, Transient):
        return error
    return Away(
        str(error).removeprefix(f"{where}: "),
        where=where,
        hint="Check host and port in `ledger:`, and that the server runs and can be reached from here.",
    )
