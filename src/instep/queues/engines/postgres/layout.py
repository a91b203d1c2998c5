"""Names of a queue's objects in PostgreSQL, SQL fragments on the user's tables, and the columns of offers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from instep.domain.pending_queue import MAX_TEXT, KeyKind, KeyRange, QueueKey, QueueSpec
from instep.errors import UserError
from instep.postgres.connection import Session
from instep.postgres.location import MAX_NAME
from instep.queues.engines.queue_engine import wrong_type
from instep.queues.engines.triggered import TriggeredLayout, held, literal, quoted


def moment(at: datetime) -> str:
    return f"{literal(at.isoformat())}::timestamptz"


def numbers(keys: Iterable[int]) -> str:
    """Whole numbers need no quoting."""
    return f"'{{{','.join(map(str, map(int, keys)))}}}'::bigint[]"


def beyond(key: str, highest: str) -> str:
    """Whether a key is higher than the highest there is, if there is any."""
    return f"{highest} IS NULL OR {key} > {highest}"


_COLLATED = ' COLLATE "C"'
_BYTEWISE = "'pg_catalog.\"C\"'::regcollation"


@dataclass(frozen=True)
class Layout(TriggeredLayout):
    """`schema` is where the queue is, and tables whose name says none."""

    schema: str
    spec: QueueSpec

    def own(self, kind: str) -> str:
        """A name of the queue. The kind comes first, so that no two queues can share one."""
        name = f"pending_{kind}_{self.spec.name}"
        if len(name.encode()) > MAX_NAME:
            raise UserError(f"the name of the queue {self.spec.name!r} is too long", hint="30 letters fit.")
        return name

    def placed(self, kind: str) -> str:
        return f"{quoted(self.schema)}.{quoted(self.own(kind))}"

    @property
    def type(self) -> str:
        """The type of the key in the queue's own tables: texts are in the order of their bytes."""
        return {KeyKind.INTEGER: "bigint", KeyKind.TEXT: f"text{_COLLATED}", KeyKind.UUID: "uuid"}[self.spec.kind]

    def column(self, rows: str, key: str | None = None) -> str:
        """The key of some rows of the user, as an index has it."""
        column = f"{rows}.{key or self.key}"
        return f"{column}::{self.type}" if self.spec.kind is KeyKind.TEXT else column

    def typed(self, rows: str, key: str | None = None) -> str:
        """The key of some rows of the user, as the queue has it."""
        return f"{rows}.{key or self.key}::{self.type}"

    def possible(self, column: str) -> list[str]:
        return [f"octet_length({column}) <= {MAX_TEXT}"] if self.spec.kind is KeyKind.TEXT else []

    def array(self, keys: Iterable[QueueKey]) -> str:
        if self.spec.kind is KeyKind.INTEGER:
            return numbers(keys)
        quoted_keys = ('"' + each.replace("\\", r"\\").replace('"', r"\"") + '"' for each in keys)
        listed = literal("{" + ",".join(quoted_keys) + "}")
        return f"{listed}::uuid[]" if self.spec.kind is KeyKind.UUID else f"({listed}::text[]{_COLLATED})"

    def extreme(self, function: str) -> str:
        """The lowest (`min`) or highest (`max`) key of some rows. Of UUIDs older servers know none."""
        return f'{function}(key::text COLLATE "C")::uuid' if self.spec.kind is KeyKind.UUID else f"{function}(key)"

    @property
    def acknowledged(self) -> str:
        return f"{self.schema}.{self.own('acks')}"

    def parts(self, table: str) -> tuple[str, str]:
        """Schema and name of a table."""
        schema, _, name = table.rpartition(".")
        return schema or self.schema, name

    def table(self, table: str) -> str:
        return ".".join(map(quoted, self.parts(table)))

    def called(self, table: str) -> str:
        """The alias of a table, whatever its rows are read from: conditions may name it."""
        return quoted(self.parts(table)[1])

    @property
    def event_time(self) -> str | None:
        expression = self.spec.source.event_time
        return None if expression is None else f"{held(expression)}::timestamptz"

    @property
    def settling(self) -> str:
        """The time at which an offer begins to count its settle time. In the index by which offers are read, so that
        those that are not settled yet are passed over there, and their rows are not fetched. Without a time, its source
        row may be on the way.
        """
        return "coalesce(event_time, '-infinity')"

    def source_rows(self, key: str, *conditions: str) -> str:
        """A FROM clause for the rows of the source with this key."""
        source = self.spec.source
        found = [f"{self.column(self.called(source.table))} = {key}", held(source.where), *conditions]
        return f"FROM {self.table(source.table)} AS {self.called(source.table)} WHERE {' AND '.join(found)}"

    def present(self, key: str, settled: datetime | None = None) -> str:
        """Whether the source has the key; a queue without event times has nothing to wait for."""
        if settled is None or self.event_time is None:
            return f"EXISTS (SELECT {self.source_rows(key)})"
        return f"(SELECT {self.settled(settled)} {self.source_rows(key)} HAVING count(*) > 0)"

    def settled(self, until: datetime) -> str:
        """The condition that some rows of a key have settled; rows without an event time have nothing to wait for."""
        return f"coalesce(min({self.event_time}), '-infinity') <= {moment(until)}"

    def uncovered(self, key: str, keys: KeyRange | None = None) -> str:
        """Whether no cover holds: for many keys, as joins. That covers have only keys of the range is for PostgreSQL,
        which would not conclude it, to read no others. Nothing else is said of them: where a table was never analyzed,
        each condition is taken for one that hardly any row fulfils, and a loop over all rows for the quickest way.
        """
        columns = (self.column(self.called(each.table), self.key_of(each)) for each in self.covers)
        return "\n    AND ".join(
            f"NOT EXISTS ({' AND '.join([each, *self.ends(column, keys)])})"
            for column, each in zip(columns, self._covering(key), strict=True)
        )

    def uncovered_each(self, key: str) -> str:
        """The same for a few keys, or an unknown number: by the index for each, and by no other plan."""
        return "\n    AND ".join(f"({each} LIMIT 1) IS NULL" for each in self._covering(key))

    def uncovered_beyond(self, key: str, highest: str) -> str:
        """The same for keys of which many are higher than any that is covered: those are not looked up. `highest` is a
        row of what `highest_known` gives.
        """
        return "\n    AND ".join(
            f"({beyond(key, f'{highest}.covered{number}')} OR ({each} LIMIT 1) IS NULL)"
            for number, each in enumerate(self._covering(key))
        )

    def highest_known(self, keys: str) -> list[str]:
        """Columns `offered`, `covered0`, …: the highest key that the offers and each cover have in the range of `keys`,
        a row with the `lowest` and the `highest`. In no other: what was deleted there would be walked over.
        """
        known = [("offered", self.offers, self.column("_known", "key"))]
        known += [
            (f"covered{number}", self.table(cover.table), self.column("_known", self.key_of(cover)))
            for number, cover in enumerate(self.covers)
        ]
        return [
            f"(SELECT {column} FROM {table} AS _known WHERE {column} >= {keys}.lowest AND {column} <= {keys}.highest"
            f" ORDER BY {column} DESC LIMIT 1) AS {name}"
            for name, table, column in known
        ]

    def _covering(self, key: str) -> list[str]:
        return [
            f"SELECT 1 FROM {self.table(each.table)} AS {self.called(each.table)}"
            f" WHERE {self.column(self.called(each.table), self.key_of(each))} = {key} AND {held(each.where)}"
            for each in self.covers
        ]

    @property
    def legacy_comment(self) -> str:
        return f"/* instep:queue:{self.spec.name}:legacy */"


#: Infinitely long ago where the rows have none, since there is nothing to wait for; null where there are no rows yet.
_EARLIEST = "CASE WHEN count(*) > 0 THEN coalesce(min(event_time), '-infinity') END"
_CONCERNED = "coalesce(array_agg(DISTINCT participant) FILTER (WHERE participant IS NOT NULL), '{}')"


def source_keys(layout: Layout, rows: str, keys: KeyRange | None = None) -> str:
    """Keys of some rows, with what they offer."""
    source = layout.spec.source
    called = layout.called(source.table)
    return (
        f"SELECT {layout.typed(called)} AS key, {_columns(layout)}\n"
        f"    FROM {rows} AS {called} WHERE {held(source.where)} AND {layout.between(layout.column(called), keys)}"
    )


def _columns(layout: Layout) -> str:
    participant = f"{quoted(layout.spec.participants)}::bigint" if layout.spec.participants else "NULL::bigint"
    return f"{layout.event_time or 'NULL::timestamptz'} AS event_time, {participant} AS participant"


def gathered(layout: Layout) -> tuple[list[str], str]:
    """Columns of the offers, and what they are for the rows of one key."""
    columns, values = ["key"], "key"
    if layout.event_time:
        columns, values = [*columns, "event_time"], f"{values}, {_EARLIEST} AS event_time"
    if layout.spec.participants:
        columns.append("participants")
        values += f", {_CONCERNED} AS participants"
    return columns, values


def unoffered(layout: Layout, fresh: str) -> str:
    """The condition that no offer holds all that the new one would. One that is about to go for lack of a source does
    not count.
    """
    same = [f"_offer.key = {fresh}.key", "_offer.absent_since IS NULL"]
    same += [f"_offer.event_time <= {fresh}.event_time"] if layout.event_time else []
    same += [f"_offer.participants @> {fresh}.participants"] if layout.spec.participants else []
    return f"(SELECT 1 FROM {layout.offers} AS _offer WHERE {' AND '.join(same)} LIMIT 1) IS NULL"


def reoffer(layout: Layout, keys: str) -> str:
    """An INSERT of these keys with what the source says of them, if it has them."""
    columns, values = gathered(layout)
    found = ", ".join(f"_found.{each}" for each in columns[1:])
    lateral = f" CROSS JOIN LATERAL (SELECT {values.replace('key, ', '', 1)} FROM (SELECT {_columns(layout)} "
    lateral += f"{layout.source_rows('_again.key')}) AS _row) AS _found"
    if not found:
        return f"INSERT INTO {layout.offers} (key) SELECT DISTINCT key FROM ({keys}) AS _again"
    return (
        f"INSERT INTO {layout.offers} ({', '.join(columns)}) SELECT _again.key, {found}\n"
        f"  FROM (SELECT DISTINCT key FROM ({keys}) AS _row) AS _again{lateral}"
    )


_TYPES = {
    KeyKind.INTEGER: ("smallint", "integer", "bigint"),
    KeyKind.TEXT: ("text", "character varying"),
    KeyKind.UUID: ("uuid",),
}


def demand_usable(session: Session, layout: Layout) -> None:
    """Raises `UserError` for tables that are not there or cannot be captured, keys that are not of its type or have no
    index, and conditions that PostgreSQL does not understand.
    """
    source = layout.spec.source
    for table in (source.table, *(each.table for each in layout.spec.covers)):
        _demand_table(session, layout, table)
    if layout.spec.participants:
        _demand_type(session, layout, source.table, layout.spec.participants, KeyKind.INTEGER)
    session.ask(f"{source_keys(layout, layout.table(source.table))} LIMIT 0")
    for cover in layout.spec.covers:
        if cover.uncovered is not None:
            raise UserError(
                f"{cover.table}: `uncovered` is for databases whose rows are only ever inserted",
                where=session.place.shown,
                hint="Here a row that is deleted, or changed so that `where` holds no more, uncovers its key.",
            )
        session.ask(
            f"SELECT FROM {layout.table(cover.table)} AS {layout.called(cover.table)} WHERE {held(cover.where)} LIMIT 0"
        )


def _demand_table(session: Session, layout: Layout, table: str) -> None:
    schema, name = map(literal, layout.parts(table))
    found = session.ask(
        "SELECT c.relkind::text, c.oid FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace"
        f" WHERE n.nspname = {schema} AND c.relname = {name}"
    )
    if not found:
        raise UserError(f"there is no table {table} in the schema {layout.parts(table)[0]}", where=session.place.shown)
    ((kind, oid),) = found
    if kind not in ("r", "p"):
        raise UserError(f"{table} is not a table", where=session.place.shown, hint="Only tables have triggers of rows.")
    _demand_type(session, layout, table, layout.spec.key, layout.spec.kind)
    bytewise = layout.spec.kind is KeyKind.TEXT
    indexed = session.ask(
        "SELECT 1 FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]"
        f" WHERE i.indrelid = {oid} AND i.indisvalid AND i.indpred IS NULL AND a.attname = {literal(layout.spec.key)}"
        + (f" AND i.indcollation[0] = {_BYTEWISE}" if bytewise else "")
    )
    if not indexed:
        raise UserError(
            f"{table} has no index that begins with {layout.spec.key}{' in the order of bytes' if bytewise else ''}:"
            " each change would read all of it",
            where=session.place.shown,
            hint=f"CREATE INDEX CONCURRENTLY ON {layout.table(table)} ({layout.key}{_COLLATED if bytewise else ''})",
        )


def _demand_type(session: Session, layout: Layout, table: str, column: str, kind: KeyKind) -> None:
    found = session.ask(
        "SELECT format_type(a.atttypid, NULL) FROM pg_attribute AS a WHERE a.attnum > 0 AND NOT a.attisdropped"
        f" AND a.attrelid = {literal(layout.table(table))}::regclass AND a.attname = {literal(column)}"
    )
    if not found:
        raise UserError(f"{table} has no column {quoted(column)}", where=session.place.shown)
    if found[0][0] not in _TYPES[kind]:
        raise wrong_type(column, table, found[0][0], kind, session.place.shown)
