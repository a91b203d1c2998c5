"""Tables in databases, over JDBC: queries in the database's own SQL.

Spark would push down its comparisons as they are, and the database then compares text by its own collation: rows whose
keys it orders in another way would be lost. So Spark pushes down nothing, and what is asked of the database is written
here, with text compared by its bytes. What cannot be said exactly is left to Spark, which filters in any case.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Protocol
from urllib.parse import unquote

from instep.clickhouse.session import in_part
from instep.domain.keys import KeyValue
from instep.domain.rows import RowColumns, Selection
from instep.errors import UserError
from instep.sources.tables.jdbc_types import carried
from instep.sources.tables.predicates import (
    Dialect,
    above,
    in_keys,
    in_order,
    in_range,
    in_scope,
    in_window,
    key_groups,
    undeleted,
)
from instep.sources.tables.spark_reading import statement
from instep.sources.tables.spark_types import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

#: Ours; the partitions are made by ranges of the key.
_OURS = frozenset({"url", "dbtable", "query", "pushdownpredicate", "partitioncolumn", "lowerbound", "upperbound"})
_EVERYTHING = "1 = 1"
#: Rows are asked for by their keys in at most so many partitions; of more, ranges are read.
_MOST_GROUPS = 64
#: PostgreSQL's driver would hold all rows at once.
_FETCH = "10000"
#: A server of MySQL or MariaDB may cut every answer off after so many rows.
ALL_ROWS = "SET SESSION sql_select_limit = 18446744073709551615"
#: What has a driver or a database leave out the rest of an answer, without an error.
_IN_PART = re.compile(r"\b(maxRows)\s*=\s*[1-9]|\b(sql_select_limit)\b|\bSET\s+(ROWCOUNT)\s+[1-9]", re.IGNORECASE)
#: Java finds the driver of a jar that is named in the settings only when it is told the class.
_DRIVERS = {
    "postgresql": "org.postgresql.Driver",
    "mysql": "com.mysql.cj.jdbc.Driver",
    "mariadb": "org.mariadb.jdbc.Driver",
    "sqlserver": "com.microsoft.sqlserver.jdbc.SQLServerDriver",
    "oracle": "oracle.jdbc.OracleDriver",
    "sqlite": "org.sqlite.JDBC",
    "duckdb": "org.duckdb.DuckDBDriver",
}
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")


class NotExact(Exception):
    """The database would not compare this as we do."""


class Flavour(Dialect, Protocol):
    #: A number from 0 on and below 1, another one for each row.
    random: str

    def micros(self, name: str) -> str:
        """A time as a whole number: microseconds since 1970."""

    def digest(self, row: str, columns: Sequence[str]) -> str:
        """A whole number that differs when the contents of a row do; `columns` are all that it has."""


@dataclass(frozen=True, slots=True)
class JdbcTable:
    """`table` is a table, or a query in brackets with a name. `options` are the other ones of Spark's reader."""

    url: str
    table: str
    options: Mapping[str, str]

    @classmethod
    def of(cls, options: Mapping[str, str], table: str | None, sql: str | None) -> JdbcTable:
        given = {key.lower(): value for key, value in options.items()}
        named = [each for each in (table, given.get("dbtable"), _query(given.get("query"))) if each]
        if "url" not in given or len(named) != 1:
            raise UserError("a jdbc source needs the option `url`, and one `table`")
        others = {key: value for key, value in options.items() if key.lower() not in _OURS}
        # A timestamp without a zone is one in UTC; else it would be one in the zone of the Java that reads it.
        own = {"pushDownPredicate": "false", "preferTimestampNTZ": "true", "fetchsize": _FETCH}
        driver = _DRIVERS.get(_server(given["url"]))
        own |= {"driver": driver} if driver else {}
        own = {key: value for key, value in own.items() if key.lower() not in {each.lower() for each in others}}
        demand_whole([*options.values(), sql or ""])
        if _server(given["url"]) in ("mysql", "mariadb") and "sessioninitstatement" not in given:
            own["sessionInitStatement"] = ALL_ROWS
        source = named[0]
        if sql is not None:
            source = (
                f"(WITH source AS (SELECT * FROM {source}) SELECT * FROM (\n{statement(sql)}\n) AS instep_rows) "
                "AS instep_source"
            )
        return cls(_as_spark_knows(given["url"]), source, {**others, **own})

    def frame(self, session: SparkSession, stored: StructType, parts: Sequence[str] = ()) -> DataFrame:
        """A frame with a partition for each of the conditions, in the database's SQL. `stored` is the schema of
        `plain`: what Spark would not read exactly is read another way. Raises `UserError` for what cannot be.
        """
        others = carried(self.server, stored, self.named)
        if not others:
            return self.plain(session, parts)
        aside = {name: f"instep_exact_{at}" for at, name in enumerate(others)}
        asked = ", ".join(f"{others[name].asked} AS {aside[name]}" for name in others)
        table = replace(self, table=f"(SELECT *, {asked} FROM {self.table}) AS instep_exact")
        return table.plain(session, parts).selectExpr(
            *(
                f"{others[name].made(aside[name])} AS {quoted(name)}" if name in others else quoted(name)
                for name in stored.names
            )
        )

    def named(self, name: str) -> str:
        """A column, quoted."""
        return "`" + name.replace("`", "``") + "`" if self.server == "mysql" else _doubled(name)

    def plain(self, session: SparkSession, parts: Sequence[str] = ()) -> DataFrame:
        """The same with each column as Spark reads it."""
        properties = dict(self.options)
        found: DataFrame = session.read.jdbc(
            self.url, self.table, predicates=list(parts) or None, properties=properties
        )
        return found

    def counted(self, session: SparkSession, asked: Asked, columns: Sequence[str]) -> DataFrame | None:
        """The database's own count of rows, and of those with a value in all columns. None if Spark has to count."""
        dialect = asked.dialect
        if dialect is None or not asked.exact:
            return None
        try:
            keyed = " AND ".join(f"{dialect.column(name)} IS NOT NULL" for name in columns)
        except NotExact:
            return None
        where = " AND ".join(asked.conditions) or _EVERYTHING
        count = f"count(*) AS number, count(CASE WHEN {keyed} THEN 1 END) AS keyed"
        query = f"(SELECT {count} FROM {self.table} WHERE {where}) AS instep_count"
        return replace(self, table=query).plain(session)

    @property
    def server(self) -> str:
        """The kind of database: that of MariaDB is `mysql`."""
        return _server(self.url)

    def asked(
        self,
        session: SparkSession,
        schema: StructType,
        rows: RowColumns,
        selection: Selection,
        *,
        floor: int | None = None,
    ) -> Asked:
        return Asked.of(self._dialect(session, schema, {*rows.named, *selection.cut_by}), rows, selection, floor=floor)

    def _dialect(self, session: SparkSession, schema: StructType, names: set[str]) -> Flavour | None:
        if self.server == "postgresql":
            return self._postgres(session, [each for each in schema.names if each in names])
        if self.server == "mysql":
            return MySql({field.name: field.dataType.simpleString() for field in schema.fields if not field.metadata})
        return None

    def _postgres(self, session: SparkSession, names: Sequence[str]) -> Postgres:
        row = replace(self, table=self.postgres_types(names)).plain(session).collect()[0]
        return self.postgres_dialect(names, row.asDict())

    def postgres_types(self, names: Sequence[str]) -> str:
        """A query in brackets: the database says of which types the columns really are, many of which are text to
        Spark.
        """
        types = "".join(f"pg_typeof(x.{_doubled(name)})::text AS c{at}, " for at, name in enumerate(names))
        return (
            f"(SELECT {types}current_setting('server_encoding') AS encoding FROM (SELECT 1) AS one "
            f"LEFT JOIN LATERAL (SELECT * FROM {self.table} LIMIT 0) AS x ON true) AS instep_types"
        )

    def postgres_dialect(self, names: Sequence[str], types: Mapping[str, object]) -> Postgres:
        found = {name: str(types[f"c{at}"]) for at, name in enumerate(names)}
        return Postgres(found, types["encoding"] == "UTF8")


@dataclass(frozen=True, slots=True)
class Asked:
    """The conditions of a query to a database. `exact`: there is nothing left for Spark to filter (ranges aside, and
    keys in their place).
    """

    conditions: tuple[str, ...] = ()
    ranges: tuple[str, ...] = ()
    exact: bool = False
    dialect: Flavour | None = None

    @classmethod
    def of(cls, dialect: Flavour | None, rows: RowColumns, selection: Selection, *, floor: int | None = None) -> Asked:
        """With a floor: those of the selected rows that have a watermark above it."""
        if dialect is None:
            return cls()
        asked: list[Sequence[str] | None] = [
            _tried(lambda: in_scope(dialect, rows, selection)),
            _tried(lambda: in_window(dialect, rows, selection)),
            _tried(lambda: undeleted(dialect, rows, selection)),
            _tried(lambda: [] if floor is None or not rows.watermark else [above(dialect, rows.watermark, floor)]),
        ]
        conditions = tuple(each for some in asked for each in some or ())
        # Neighbours stay apart: each range is one partition, which one connection reads.
        groups = key_groups(selection.keys)
        if 0 < len(groups) <= _MOST_GROUPS:
            ranges = _tried(lambda: [in_keys(dialect, rows.key, each) for each in groups])
        else:
            ranges = _tried(
                lambda: [in_range(dialect, selection.cut_by, one) or "" for one in in_order(selection.ranges)]
            )
        return cls(conditions, tuple(filter(None, ranges or ())), None not in asked, dialect)

    def parts(self, share: float = 1) -> list[str]:
        """A condition for each partition; of a share of the rows, if there is nothing for Spark to filter."""
        conditions = list(self.conditions)
        if share < 1 and self.exact and self.dialect is not None:
            conditions.append(f"{self.dialect.random} < {share!r}")
        always = " AND ".join(conditions)
        if not self.ranges:
            return [always] if always else []
        return [f"{always} AND ({one})" if always else one for one in self.ranges]


def demand_whole(texts: Sequence[str]) -> None:
    """Check options and SQL. Raises `UserError` for any under which the database would return only some rows."""
    for text in map(unquote, texts):
        found = _IN_PART.search(text)
        if setting := next(filter(None, found.groups())) if found else in_part(text):
            raise UserError(
                f"a jdbc source with {setting}: the database would return only a part of the rows",
                hint="Leave it out: what is missing in an answer would be taken for deleted.",
            )


def _tried(condition: Callable[[], list[str]]) -> list[str] | None:
    try:
        return condition()
    except NotExact:
        return None


def _as_spark_knows(url: str) -> str:
    """Spark does not know MariaDB, and would put names in quotation marks, which make a text of them there."""
    if _server(url) != "mariadb":
        return url
    return f"jdbc:mysql:{url.split(':', 2)[2]}{'&' if '?' in url else '?'}permitMysqlScheme"


def _server(url: str) -> str:
    return url.lower().removeprefix("jdbc:").partition(":")[0]


def _query(query: str | None) -> str | None:
    return f"(\n{statement(query)}\n) AS instep_query" if query else None


def _doubled(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _wall(value: datetime) -> str:
    return value.replace(tzinfo=None).isoformat(" ", "microseconds")


@dataclass(frozen=True, slots=True)
class Postgres:
    """PostgreSQL's SQL, by the database's own names of the types. A `char(n)` is not among them: its spaces count in
    some places only.
    """

    types: Mapping[str, str]
    utf8: bool
    random = "random()"

    def column(self, name: str) -> str:
        if self.types.get(name) in ("text", "character varying"):
            return f'{_doubled(name)} COLLATE "C"'
        return _doubled(name)

    def same(self, name: str) -> str:
        """A column as the database compares it: an index of its own order is of use, and texts equal by bytes are
        equal.
        """
        return _doubled(name)

    def micros(self, name: str) -> str:
        return f"floor(extract(epoch FROM {_doubled(name)}) * 1000000)::bigint"

    def digest(self, row: str, columns: Sequence[str]) -> str:
        return f"hashtextextended({row}::text, 0)::numeric"

    def flag_unset(self, name: str) -> str:
        match self.types.get(name):
            case "boolean":
                return f"({_doubled(name)} IS NOT TRUE)"
            case "smallint" | "integer" | "bigint":
                return f"({_doubled(name)} = 0 OR {_doubled(name)} IS NULL)"
        raise NotExact

    def constant(self, name: str, value: KeyValue) -> str:  # noqa: PLR0911 - one return for each type
        match self.types.get(name), value:
            case "boolean", bool():
                return "TRUE" if value else "FALSE"
            case "smallint" | "integer" | "bigint", int():
                return f"({value})::bigint" if value > -(2**63) else "('-9223372036854775808')::bigint"
            case "text" | "character varying", str() if self.utf8 and "\0" not in value:
                # In hexadecimal: whatever is in it, and however the server reads backslashes.
                return f"convert_from(decode('{value.encode().hex()}', 'hex'), 'UTF8')"
            case "uuid", str() if _UUID.match(value):
                return f"'{value}'::uuid"
            case "bytea", bytes():
                return f"decode('{value.hex()}', 'hex')"
            case "timestamp with time zone", datetime():
                return f"'{_wall(value)}+00'::timestamptz"
            case "timestamp without time zone", datetime():
                return f"'{_wall(value)}'::timestamp"
            case "date", date() if not isinstance(value, datetime):
                return f"'{value.isoformat()}'::date"
            case "numeric", Decimal():
                return f"({value:f})::numeric"
        raise NotExact


@dataclass(frozen=True, slots=True)
class MySql:
    """MySQL and MariaDB, by Spark's names of the types. Bytes of text are compared, not text: the collation that would
    do is called otherwise by each of them.
    """

    types: Mapping[str, str]
    random = "RAND()"

    def column(self, name: str) -> str:
        column = "`" + name.replace("`", "``") + "`"
        match self.types.get(name):
            case "string":
                return f"CAST(CONVERT({column} USING utf8mb4) AS BINARY)"
            case "timestamp":
                # A moment: what is shown of it depends on the session's zone.
                return f"UNIX_TIMESTAMP({column})"
            case "int" | "bigint" | "date" | "timestamp_ntz":
                return column
        raise NotExact

    same = column

    def micros(self, name: str) -> str:
        column = "`" + name.replace("`", "``") + "`"
        if self.types.get(name) == "timestamp":
            return f"CAST(UNIX_TIMESTAMP({column}) * 1000000 AS SIGNED)"
        return f"TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {column})"

    def digest(self, row: str, columns: Sequence[str]) -> str:
        names = ("`" + each.replace("`", "``") + "`" for each in columns)
        values = ", ".join(f"IF({each} IS NULL, 'n', CONCAT('v', HEX({each})))" for each in names)
        return f"CAST(CONV(LEFT(MD5(CONCAT_WS(',', {values})), 15), 16, 10) AS UNSIGNED)"

    def flag_unset(self, name: str) -> str:
        if self.types.get(name) in ("boolean", "int", "bigint"):
            column = "`" + name.replace("`", "``") + "`"
            return f"({column} = 0 OR {column} IS NULL)"
        raise NotExact

    def constant(self, name: str, value: KeyValue) -> str:
        match self.types.get(name), value:
            case "int" | "bigint", int():
                return f"({value})"
            case "string", str():
                return f"X'{value.encode().hex()}'"
            case "timestamp", datetime():
                since = value - datetime(1970, 1, 1, tzinfo=UTC)
                return f"({since.days * 86_400 + since.seconds}.{since.microseconds:06})"
            case "timestamp_ntz", datetime():
                return f"TIMESTAMP '{_wall(value)}'"
            case "date", date() if not isinstance(value, datetime):
                return f"DATE '{value.isoformat()}'"
        raise NotExact
