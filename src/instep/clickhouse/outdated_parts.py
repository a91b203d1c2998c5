"""Removing outdated parts: what merges and mutations have replaced, which an engine that lives shortly never removes.

A server removes them eight minutes later, in the background and when it ends. In process it has hardly a background,
and nothing happens at its end: every run would leave the parts that it merged, for ever.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from instep.clickhouse.session import DATABASE, quoted

#: Outdated parts of a table that may wait: removing them takes about 10 ms, whatever their number.
_MOST = 10

#: The system has written by itself what is older than so many seconds.
_WRITTEN_BACK = 120

#: Only of tables that Instep made: others may have settings of their own.
_OF_INSTEP = f"(database = '{DATABASE}' OR startsWith(table, 'instep_'))"

_CROWDED = f"""SELECT database, table FROM system.parts WHERE NOT active AND {_OF_INSTEP}
GROUP BY database, table HAVING count() > {_MOST:d} ORDER BY database, table"""  # noqa: S608 - of constants
_FRESH = f"""SELECT path FROM system.parts WHERE database = {{database:String}} AND table = {{table:String}} AND active
AND modification_time > now() - {_WRITTEN_BACK:d}"""  # noqa: S608 - of constants


def remove_outdated(connection: Any) -> None:
    """Remove the outdated parts of each table that has many of them."""
    for database, table in _rows(connection, _CROWDED):
        _sync(connection, database, table)
        name = quoted(database, table)
        connection.query(f"ALTER TABLE {name} MODIFY SETTING old_parts_lifetime = 0")
        try:
            # No partition is called that, so nothing is dropped. But what is outdated goes with it.
            connection.query(f"ALTER TABLE {name} DROP PARTITION ID 'none'")
        finally:
            connection.query(f"ALTER TABLE {name} RESET SETTING old_parts_lifetime")


def _sync(connection: Any, database: str, table: str) -> None:
    """Bring to the disk what stands in the place of the outdated parts, before they go: ClickHouse does not, and relies
    on their being there for some minutes.
    """
    for (path,) in _rows(connection, _FRESH, database=database, table=table):
        part = Path(path)
        for each in (*part.iterdir(), part, part.parent):
            handle = os.open(each, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)


def _rows(connection: Any, sql: str, **parameters: str) -> list[tuple[str, ...]]:
    import pyarrow as pa

    settings = "SETTINGS output_format_arrow_string_as_string = 1"
    answer = connection.query(f"{sql} {settings}", "ArrowStream", params=parameters).bytes()
    return [tuple(each.values()) for each in pa.ipc.open_stream(pa.py_buffer(answer)).read_all().to_pylist()]
