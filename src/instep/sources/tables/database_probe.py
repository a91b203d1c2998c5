"""Whether a table in a database has anything new, asked through the database's own driver: no JVM has to start.

The questions are those of `spark_jdbc`, in the same SQL. Only what is certain is answered: where a driver, an option, a
column or its type is not known here, or the server does not answer, Spark has to say, with its own errors.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import parse_qsl, unquote

from instep.domain.rows import RowColumns, Selection
from instep.domain.seen import Look, RowMark
from instep.sources.tables.spark_jdbc import ALL_ROWS, Asked, Flavour, JdbcTable, MySql

#: Runs a query; gives the names and the types of its columns, and its rows.
Ask: TypeAlias = Callable[[str], tuple[Mapping[str, Any], Sequence[Sequence[Any]]]]

_DRIVERS = {"postgresql": ("psycopg", "postgres"), "mysql": ("pymysql", "mysql")}

#: Seconds until a server has to have answered a greeting.
_GREETING = 10

_URL = re.compile(
    r"jdbc:[a-z]+:// (?P<host> [\w.-]+ | \[ [0-9a-fA-F:.]+ \] ) (?: : (?P<port> \d{1,5} ) )?"
    r" / (?P<database> [^/?&;]+ ) (?: \? (?P<given> .* ) )?",
    re.VERBOSE,
)
#: Options that change no answer. With any other that is not read here Spark has to ask.
_HARMLESS_OPTIONS = {
    "postgresql": "applicationname connecttimeout defaultrowfetchsize logintimeout preparethreshold readonly "
    "sockettimeout tcpkeepalive",
    "mysql": "allowpublickeyretrieval autoreconnect cacheprepstmts characterencoding connecttimeout defaultfetchsize "
    "permitmysqlscheme rewritebatchedstatements sockettimeout tcpkeepalive usecursorfetch useserverprepstmts "
    "useunicode",
}
_HARMLESS_SPARK_OPTIONS = frozenset({"driver", "fetchsize", "numpartitions", "pushdownpredicate", "querytimeout"})

#: Types that columns of ours have; Spark has to say whether another one is of use.
_OF_POSTGRES = frozenset(
    {
        *("smallint", "integer", "bigint", "numeric", "real", "double precision", "boolean", "bytea", "uuid"),
        *("text", "character varying", "character", "date"),
        *("timestamp with time zone", "timestamp without time zone"),
    }
)
_TEXTS = ("text", "character varying")
#: By PyMySQL's numbers of types; what Spark calls them matters only for those that a condition compares.
_OF_MYSQL = {
    1: "number",
    2: "number",
    3: "number",
    8: "number",
    9: "number",
    246: "number",
    10: "date",
    7: "timestamp",
    12: "timestamp_ntz",
    253: "string",
}
#: Whether TLS is used if the server has it, by `useSSL` and `sslMode`. Certificates are for Java to look at.
_TLS = {"": True, "preferred": True, "false": False, "disable": False, "disabled": False}


class _UnknownHere(Exception):
    """Spark has to say."""


def changed(table: JdbcTable, rows: RowColumns, selection: Selection, floor: int) -> bool | None:
    """Whether some selected row has a watermark above `floor` (µs); None: Spark has to say."""
    assert rows.watermark is not None
    try:
        with _asking(table) as ask:
            asked = Asked.of(_dialect(ask, table, rows), rows, selection, floor=floor)
            found = _exists(ask, table, asked.conditions)
    except _UnknownHere:
        return None
    # What is there may not be selected, when not all of the selection can be said in SQL; what is not there is not.
    return found if asked.exact or not found else None


def count(table: JdbcTable, rows: RowColumns, selection: Selection) -> int | None:
    """At most so many rows are selected; None: Spark has to say."""
    try:
        with _asking(table) as ask:
            asked = Asked.of(_dialect(ask, table, rows), rows, selection)
            _, ((found,),) = ask(f"SELECT count(*) FROM {table.table} WHERE {_where(asked.conditions)}")
    except _UnknownHere:
        return None
    return int(found)


def look(table: JdbcTable, rows: RowColumns, selection: Selection, *, floor: int | None, target: int) -> Look | None:
    """See `TableSource.look`; None: Spark has to look."""
    try:
        with _asking(table) as ask:
            relation = _marked(ask, table, rows, selection)
            below = "1 = 0" if floor is None else f"instep_at <= {floor}"
            margin = f"instep_at IS NULL OR {below}"
            _, ((latest, number, marked, there, digested, digest),) = ask(
                f"SELECT max(CASE WHEN instep_at <= {target} THEN instep_at END), count(*), count(instep_at), "
                f"count(CASE WHEN {margin} THEN 1 END), count(CASE WHEN {margin} THEN instep_digest END), "
                f"sum(CASE WHEN {margin} THEN instep_digest END) FROM {relation}"
            )
    except _UnknownHere:
        return None
    if there != digested:  # A row that is too long for the server's functions.
        return None
    return Look(None if latest is None else int(latest), number - marked, there, f"{table.server} {digest or 0}")


def marks(table: JdbcTable, rows: RowColumns, selection: Selection, limit: int) -> list[RowMark] | None:
    """The selected rows, one more than the limit at most; None: Spark has to say."""
    try:
        with _asking(table) as ask:
            relation = _marked(ask, table, rows, selection)
            keys = ", ".join(map(table.named, rows.key))
            _, found = ask(f"SELECT instep_at, instep_digest, {keys} FROM {relation} LIMIT {limit + 1}")
    except _UnknownHere:
        return None
    if any(digest is None for _, digest, *_ in found):
        return None
    return [
        RowMark(",".join(map(str, key)), None if at is None else int(at), int(digest)) for at, digest, *key in found
    ]


def _marked(ask: Ask, table: JdbcTable, rows: RowColumns, selection: Selection) -> str:
    """A query in brackets: the selected rows with their watermark in microseconds, and a digest of their contents."""
    assert rows.watermark is not None
    dialect = _dialect(ask, table, rows)
    asked = Asked.of(dialect, rows, selection)
    if not asked.exact:
        raise _UnknownHere
    nothing = "AS instep_nothing" if table.server == "mysql" else ""
    columns, _ = ask(f"SELECT * FROM (SELECT * FROM {table.table} LIMIT 0) {nothing}")
    at, digest = dialect.micros(rows.watermark), dialect.digest("instep_row", list(columns))
    return (
        f"(SELECT instep_row.*, {at} AS instep_at, {digest} AS instep_digest "
        f"FROM (SELECT * FROM {table.table}) AS instep_row WHERE {_where(asked.conditions)}) AS instep_marked"
    )


def missing_extra(table: JdbcTable) -> str | None:
    """The extra of Instep with which such a table would be asked without a JVM; None if there is none to install."""
    module, extra = _DRIVERS.get(table.server, ("", ""))
    return extra if module and find_spec(module) is None else None


def _exists(ask: Ask, table: JdbcTable, conditions: Sequence[str]) -> bool:
    _, ((found,),) = ask(f"SELECT EXISTS (SELECT 1 FROM {table.table} WHERE {_where(conditions)})")
    return bool(found)


def _where(conditions: Sequence[str]) -> str:
    return " AND ".join(f"({each})" for each in conditions) or "1 = 1"


def _dialect(ask: Ask, table: JdbcTable, rows: RowColumns) -> Flavour:
    """The dialect of the database, for its columns, which have to be there and fit for what they are named for."""
    nothing = "AS instep_nothing" if table.server == "mysql" else ""
    columns, _ = ask(f"SELECT * FROM (SELECT * FROM {table.table} LIMIT 0) {nothing}")
    if not columns.keys() >= set(rows.named):
        raise _UnknownHere
    return (_postgres if table.server == "postgresql" else _mysql)(ask, table, rows, columns)


def _postgres(ask: Ask, table: JdbcTable, rows: RowColumns, columns: Mapping[str, Any]) -> Flavour:
    names = [each for each in columns if each in rows.named]
    answer, (row,) = ask(f"SELECT * FROM {table.postgres_types(names)}")
    dialect = table.postgres_dialect(names, dict(zip(answer, row, strict=True)))
    types = dialect.types
    fit = str(types[rows.watermark or ""]).startswith("timestamp") and (not rows.scope or types[rows.scope] in _TEXTS)
    if not fit or not _OF_POSTGRES.issuperset(types.values()):
        raise _UnknownHere
    return dialect


def _mysql(ask: Ask, table: JdbcTable, rows: RowColumns, columns: Mapping[str, Any]) -> Flavour:
    types = {name: _OF_MYSQL.get(columns[name], "") for name in rows.named}
    fit = types[rows.watermark or ""].startswith("timestamp") and (not rows.scope or types[rows.scope] == "string")
    if not fit or not all(types.values()):
        raise _UnknownHere
    if rows.scope:
        # Bytes have the same number as text.
        name = "`" + rows.scope.replace("`", "``") + "`"
        nothing = f"(SELECT * FROM {table.table} LIMIT 0) AS instep_nothing"
        _, ((collation,),) = ask(f"SELECT COLLATION({name}) FROM (SELECT 1) AS one LEFT JOIN {nothing} ON 1 = 1")
        if not isinstance(collation, str) or collation == "binary":
            raise _UnknownHere
    return MySql(types)


# -- connections ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Login:
    host: str
    port: int | None
    database: str
    user: str
    password: str = field(repr=False)
    #: What the driver was told besides, by names in small letters.
    others: Mapping[str, str] = field(repr=False)


def _login(table: JdbcTable) -> _Login:
    """The parts of the URL and of the options; whatever could make another connection of it is for Java to read."""
    match = _URL.fullmatch(table.url)
    if match is None:
        raise _UnknownHere
    pairs = parse_qsl(match["given"] or "", keep_blank_values=True)
    given: dict[str, str] = {}
    for name, value in [*pairs, *table.options.items()]:
        if given.setdefault(name.lower(), value) != value:
            raise _UnknownHere
    if given.pop("prefertimestampntz", "true").lower() != "true":
        raise _UnknownHere
    if given.pop("sessioninitstatement", ALL_ROWS) != ALL_ROWS:
        raise _UnknownHere
    user, password = given.pop("user", ""), given.pop("password", "")
    if not user:
        raise _UnknownHere
    ignored = _HARMLESS_SPARK_OPTIONS.union(_HARMLESS_OPTIONS[table.server].split())
    return _Login(
        match["host"].strip("[]"),
        int(match["port"]) if match["port"] else None,
        unquote(match["database"]),
        user,
        password,
        {name: value for name, value in given.items() if name not in ignored},
    )


@contextmanager
def _asking(table: JdbcTable) -> Iterator[Ask]:
    opened = {"postgresql": _opened_postgres, "mysql": _opened_mysql}.get(table.server)
    if opened is None:
        raise _UnknownHere
    with opened(_login(table)) as ask:
        yield ask


@contextmanager
def _opened_postgres(login: _Login) -> Iterator[Ask]:
    try:
        import psycopg
    except ImportError:
        raise _UnknownHere from None
    others = dict(login.others)
    wants_tls = others.pop("ssl", "false").lower() != "false"
    sslmode = others.pop("sslmode", "verify-full" if wants_tls else "prefer")
    settings = {"TimeZone": _zone(), "search_path": others.pop("currentschema", None)}
    if others or any(name in os.environ for name in ("PGHOSTADDR", "PGSERVICE", "PGSERVICEFILE")):
        raise _UnknownHere
    try:
        with psycopg.connect(
            host=login.host,
            port=login.port or 5432,
            dbname=login.database,
            user=login.user,
            password=login.password or None,
            sslmode=sslmode,
            options="",
            connect_timeout=_GREETING,
            client_encoding="utf8",
            application_name="instep",
            autocommit=True,
        ) as connection:
            for name, value in settings.items():
                if value is not None:
                    connection.execute("SELECT set_config(%s, %s, false)", [name, value])

            def ask(sql: str) -> tuple[Mapping[str, Any], Sequence[Sequence[Any]]]:
                cursor = connection.execute(sql.encode())
                return {each.name: each.type_code for each in cursor.description or ()}, cursor.fetchall()

            yield ask
    except psycopg.Error:
        raise _UnknownHere from None


@contextmanager
def _opened_mysql(login: _Login) -> Iterator[Ask]:
    try:
        import pymysql
    except ImportError:
        raise _UnknownHere from None
    others = dict(login.others)
    tls = _TLS.get(f"{others.pop('usessl', '')} {others.pop('sslmode', '')}".lower().strip())
    if others or tls is None:
        raise _UnknownHere
    try:
        connection = pymysql.connect(
            host=login.host,
            port=login.port or 3306,
            database=login.database,
            user=login.user,
            password=login.password,
            ssl_disabled=not tls,
            connect_timeout=_GREETING,
            charset="utf8mb4",
            program_name="instep",
            init_command=ALL_ROWS,
            autocommit=True,
        )
    except (pymysql.Error, OSError, RuntimeError):
        raise _UnknownHere from None
    try:
        with connection, connection.cursor() as cursor:

            def ask(sql: str) -> tuple[Mapping[str, Any], Sequence[Sequence[Any]]]:
                cursor.execute(sql)
                return {each[0]: each[1] for each in cursor.description or ()}, cursor.fetchall()

            yield ask
    except (pymysql.Error, OSError):
        raise _UnknownHere from None


def _zone() -> str:
    """The zone of this machine, which Java has its sessions in."""
    if named := os.environ.get("TZ", "").lstrip(":"):
        return named
    found = Path("/etc/localtime")
    parts = found.resolve().parts
    if "zoneinfo" in parts:
        return "/".join(parts[parts.index("zoneinfo") + 1 :])
    if not found.exists():
        return "UTC"
    raise _UnknownHere
