"""Text columns of servers: compared by their bytes, as Python and SQLite do, and as long as they may be.

A database's own collation finds `a` and `A` equal, or `a` and `a` with a space behind it (MariaDB, MySQL), and puts
`~` before letters (PostgreSQL). TEXT of MariaDB and MySQL ends at 64 KB.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, inspect, text
from sqlalchemy.schema import AddConstraint

from instep.ledger.tables import metadata

_ON_POSTGRES = text("""
SELECT table_name, column_name, character_maximum_length AS length FROM information_schema.columns
WHERE table_schema = current_schema() AND data_type IN ('character varying', 'text')
  AND collation_name IS DISTINCT FROM 'C'
ORDER BY table_name, ordinal_position
""")
_TABLES_ON_MYSQL = text("""
SELECT DISTINCT TABLE_NAME AS table_name FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA = DATABASE() AND COLLATION_NAME <> :collation ORDER BY TABLE_NAME
""")
_SHORT_ON_MYSQL = text("""
SELECT TABLE_NAME AS table_name, COLUMN_NAME AS column_name, IS_NULLABLE AS nullable FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA = DATABASE() AND DATA_TYPE = 'text' ORDER BY TABLE_NAME, ORDINAL_POSITION
""")

_REFERENCES_ON_MYSQL = text("""
SELECT TABLE_NAME AS table_name, CONSTRAINT_NAME AS name FROM information_schema.REFERENTIAL_CONSTRAINTS
WHERE CONSTRAINT_SCHEMA = DATABASE() ORDER BY TABLE_NAME, CONSTRAINT_NAME
""")


def nopad(connection: Connection) -> str:
    """The collation of MariaDB, or of MySQL, that compares bytes, spaces at the end among them."""
    return "utf8mb4_nopad_bin" if getattr(connection.dialect, "is_mariadb", False) else "utf8mb4_0900_bin"


def table_options(connection: Connection) -> dict[str, Any]:
    """The options of a new table on MariaDB or MySQL: its texts compare as those of the other tables."""
    options = {"engine": "InnoDB", "charset": "utf8mb4", "collate": nopad(connection)}
    return {f"{kind}_{name}": value for kind in ("mysql", "mariadb") for name, value in options.items()}


def convert(connection: Connection) -> None:
    """Bring the ledger's tables to that, whichever migration made them. Again it changes nothing.

    A migration does so before its revision is written, and `schema.upgrade` after the last one.
    """
    match connection.dialect.name:
        case "postgresql":
            _convert_postgres(connection)
        case "mysql" | "mariadb":
            _convert_mysql(connection)


def _convert_postgres(connection: Connection) -> None:
    changes: dict[str, list[str]] = defaultdict(list)
    for row in connection.execute(_ON_POSTGRES):
        kind = "text" if row.length is None else f"varchar({row.length})"
        changes[row.table_name].append(f'ALTER COLUMN "{row.column_name}" TYPE {kind} COLLATE "C"')
    for table in _ours(changes):
        connection.execute(text(f'ALTER TABLE "{table}" {", ".join(changes[table])}'))


def _convert_mysql(connection: Connection) -> None:
    """Convert the columns on MySQL, where every ALTER TABLE is a transaction of its own. After an interruption it
    starts again, and finds the rest.
    """
    collation = nopad(connection)
    if tables := _ours(connection.scalars(_TABLES_ON_MYSQL, {"collation": collation}).all()):
        # Columns that refer to each other can only be changed one after the other.
        for table, name in connection.execute(_REFERENCES_ON_MYSQL).all():
            connection.execute(text(f"ALTER TABLE `{table}` DROP FOREIGN KEY `{name}`"))
        for table in tables:
            connection.execute(text(f"ALTER TABLE `{table}` CONVERT TO CHARACTER SET utf8mb4 COLLATE {collation}"))
    changes: dict[str, list[str]] = defaultdict(list)
    for row in connection.execute(_SHORT_ON_MYSQL):
        null = "NULL" if row.nullable == "YES" else "NOT NULL"
        kind = f"LONGTEXT CHARACTER SET utf8mb4 COLLATE {collation} {null}"
        changes[row.table_name].append(f"MODIFY `{row.column_name}` {kind}")
    for table in _ours(changes):
        connection.execute(text(f"ALTER TABLE `{table}` {', '.join(changes[table])}"))
    _restore_references(connection)


def _restore_references(connection: Connection) -> None:
    """Recreate the foreign keys of tables and columns that exist: later migrations may make more."""
    there = {(each.table_name, each.name) for each in connection.execute(_REFERENCES_ON_MYSQL)}
    inspector = inspect(connection)
    made = set(inspector.get_table_names())
    for table in metadata.sorted_tables:
        columns = {each["name"] for each in inspector.get_columns(table.name)} if table.name in made else set()
        for each in table.foreign_key_constraints:
            known = (table.name, f"{table.name}_{each.column_keys[0]}_fk") in there
            if not known and columns.issuperset(each.column_keys) and each.referred_table.name in made:
                # It is still to be made with its table elsewhere.
                connection.execute(AddConstraint(each, isolate_from_table=False))


def _ours(tables: Iterable[str]) -> list[str]:
    return [each for each in tables if each in metadata.tables]
