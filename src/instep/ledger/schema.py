"""The version of the ledger's schema: checked against this code's, created and upgraded.

A new ledger is made from `tables.metadata` and stamped: importing Alembic costs as much as a small
run. A test proves that the migrations lead to the very same schema.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Column, Connection, Engine, MetaData, String, Table, insert, inspect, select

from instep.errors import UserError
from instep.ledger import verification
from instep.ledger.dialects import collations
from instep.ledger.tables import HEAD, event_head, metadata

_version = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True, nullable=False))
#: Tables of each version of a ledger. Other applications have tables of versions by Alembic, too.
_ALWAYS: Final = ("checkpoints", "jobs", "leases", "slices")
#: Databases that make each table in a transaction of its own.
_TABLE_BY_TABLE: Final = ("mariadb", "mysql")


def version_of(connection: Connection, where: str) -> str | None:
    """The schema's revision, None for an empty database; refuses one of another application."""
    # One look: between two, others may bring it up.
    tables = inspect(connection).get_table_names()
    if _version.name in tables:
        version: str | None = connection.scalar(select(_version.c.version_num))
        if version is None and connection.dialect.name in _TABLE_BY_TABLE:
            return None  # Another process brings it up, or has died in that.
        # A look before there was a version may have missed some.
        if version is not None and set(_ALWAYS) <= set(inspect(connection).get_table_names()):
            return version
    if tables:
        raise UserError(
            "this database has tables, but is not an Instep ledger",
            where=where,
            hint="Give the ledger a database (for SQLite: a file) of its own.",
        )
    return None


def refuse_newer(version: str, where: str) -> None:
    if version > HEAD:
        raise UserError(
            f"the ledger was written by a newer Instep (schema {version}; this one knows {HEAD})",
            where=where,
            hint="Upgrade with: pip install --upgrade instep",
        )


def older(version: str | None, where: str) -> UserError:
    """The error for an older ledger that is opened for reading only."""
    return UserError(
        f"the ledger was written by an older Instep (schema {version}; this one needs {HEAD})",
        where=where,
        hint="Bring it up to date: instep ledger migrate (whatever writes does so too, as a run).",
    )


def bring_up(engine: Engine, where: str) -> None:
    """Create the schema, or migrate it to `HEAD`."""
    with engine.connect() as connection:
        version = version_of(connection, where)
    if version == HEAD:
        return
    if version is None:
        _create(engine, where)
        return
    refuse_newer(version, where)
    upgrade(engine)


def _create(engine: Engine, where: str) -> None:
    with engine.execution_options(write=True).begin() as connection:
        # Another process may have been first.
        if version_of(connection, where) is None:
            metadata.create_all(connection, checkfirst=False)
            _version.create(connection)
            connection.execute(insert(_version).values(version_num=HEAD))
            begin(connection)


def begin(connection: Connection) -> None:
    """Write the first rows of a new ledger: its id."""
    connection.execute(insert(event_head).values(id=1, last=0, at=0, ledger=str(uuid.uuid4()), since=0))


def upgrade(engine: Engine, revision: str = "head") -> None:
    """Run the migrations, in one transaction. Texts are then kept as they all are, and projections are made from the
    log: no migration has to.
    """
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "instep.ledger:migrations")
    writer = engine.execution_options(write=True)
    with writer.connect() as connection, _foreign_keys_at_rest(connection), connection.begin():
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
        if revision == "head":
            collations.convert(connection)
            verification.rebuild(connection)


@contextmanager
def _foreign_keys_at_rest(connection: Connection) -> Iterator[None]:
    """SQLite changes a table by making it anew, and dropping the old one would drop the rows that refer to it.

    The switch only works outside a transaction.
    """
    if connection.dialect.name != "sqlite":
        yield
        return
    driver = connection.connection.dbapi_connection
    assert isinstance(driver, sqlite3.Connection)
    driver.execute("PRAGMA foreign_keys = OFF")
    try:
        yield
    finally:
        driver.execute("PRAGMA foreign_keys = ON")
