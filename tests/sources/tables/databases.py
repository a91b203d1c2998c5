"""Tables in databases."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
import pyarrow as pa
from psycopg import sql

from tests.servers.mariadb import MariadbServer
from tests.servers.postgres import PostgresServer

_TYPES = {
    pa.int64(): "bigint",
    pa.int32(): "integer",
    pa.string(): "text",
    pa.timestamp("us", "UTC"): "timestamptz",
    pa.timestamp("us"): "timestamp",
    pa.bool_(): "boolean",
    pa.decimal128(12, 3): "numeric(12,3)",
    pa.date32(): "date",
    pa.float64(): "double precision",
    pa.binary(): "bytea",
}


def put(server: PostgresServer, name: str, table: pa.Table, *, text: str = "text") -> None:
    """`text` is the type of columns of text, with its collation."""
    kinds = _TYPES | {pa.string(): text}
    columns = sql.SQL(", ").join(
        sql.SQL("{} {}").format(sql.Identifier(each.name), sql.SQL(kinds[each.type])) for each in table.schema
    )
    with psycopg.connect(server.url("postgres"), autocommit=True) as connection:
        connection.execute(sql.SQL("DROP TABLE IF EXISTS {}").format(sql.Identifier(name)))
        connection.execute(sql.SQL("CREATE TABLE {} ({})").format(sql.Identifier(name), columns))
        with connection.cursor().copy(sql.SQL("COPY {} FROM STDIN").format(sql.Identifier(name))) as copy:
            for row in table.to_pylist():
                copy.write_row(list(row.values()))


def options(server: PostgresServer) -> dict[str, str]:
    return {
        "url": f"jdbc:postgresql://127.0.0.1:{server.port}/postgres",
        "user": server.user,
        "password": server.password,
    }


def put_in_mariadb(server: MariadbServer, name: str, texts: Sequence[str], collation: str) -> dict[str, str]:
    """Numbered texts, and the options to read them with."""
    server.execute("CREATE DATABASE IF NOT EXISTS sources")
    server.execute(f"DROP TABLE IF EXISTS sources.{name}")
    kind = f"varchar(80) CHARACTER SET utf8mb4 COLLATE {collation}"
    server.execute(f"CREATE TABLE sources.{name} (id bigint, name {kind}, wall datetime(6), at timestamp(6) NULL)")
    values = ", ".join(
        f"({at}, X'{text.encode().hex()}', '2024-03-31 02:30:00.000001', FROM_UNIXTIME(1711852200.000001 + {at}))"
        for at, text in enumerate(texts)
    )
    server.execute(f"INSERT INTO sources.{name} VALUES {values}")
    return {
        "url": f"jdbc:mariadb://127.0.0.1:{server.port}/sources",
        "user": server.user,
        "password": server.password,
    }
