"""Tables of ClickHouse, in this process (chdb) or on a server. Everything but the rows is asked without Spark."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, pairwise
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from instep.clickhouse.location import Location
from instep.clickhouse.session import Session, in_part, quoted, records
from instep.domain.columns import Column
from instep.domain.cuts import KeyRange, balanced_cuts, cut_columns
from instep.domain.keys import Key
from instep.domain.refs import Scope
from instep.domain.rows import Histogram, RowColumns, Selection
from instep.domain.seen import Look, RowMark
from instep.domain.table_files import Files
from instep.errors import Away, UserError
from instep.sources.tables import predicates
from instep.sources.tables.clickhouse_types import ClickHouseDialect, SourceColumn, source_column
from instep.sources.tables.spark_types import as_ours, columns_of
from instep.sources.tables.table_source import Sessions, Transform, demand, transformed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from instep.sources.tables.clickhouse_reader import Query

#: A frame has at most so many partitions: neighbouring ranges are read together. In a folder (chdb) one is read at a
#: time, whatever their number.
_PARTITIONS, _PARTITIONS_OF_A_FOLDER = 32, 8

#: A frame whose rows were not cut has a partition for each so many.
_PARTITION_ROWS = 1_000_000

#: A name that Spark knows a frame by is used again after so many others: Spark forgets none, nor what it stood for.
_NAMES = 1_000
_NUMBERS = count()

Pick: TypeAlias = Callable[[Mapping[str, SourceColumn]], Sequence[tuple[Column, str]]]


def _all(columns: Mapping[str, SourceColumn]) -> Sequence[tuple[Column, str]]:
    return [(each.column, each.value) for each in columns.values()]


def _none() -> NoReturn:
    raise AssertionError("ranges of rows are asked of ClickHouse")


_MERGING = re.compile(r"(Replacing|Collapsing|Summing|Aggregating|Coalescing)MergeTree\Z")


@dataclass(frozen=True)
class ClickHouseTable:
    """`uri` is a folder (chdb), or `http://user:password@host:8123/database`; `table` is a name, or `database.name`. In
    `sql`, a SELECT that runs in ClickHouse, the table is called `source`. The transform comes after everything: it
    leaves alone the columns that say what a row is.

    A table whose engine merges rows (ReplacingMergeTree and the like) is read with FINAL when all of it is read: a
    version that a deleted one has replaced would come back otherwise. In an incremental window its versions come as
    they are, which is a lot cheaper: the latest watermark wins where they are written.
    """

    uri: str = field(repr=False)
    table: str
    sql: str | None = None
    transform: Transform | None = None
    transform_name: str = "transform"

    @property
    def text(self) -> str:
        return f"{self._place.shown}: {self.table}"

    @property
    def _place(self) -> Location:
        return Location.of(self.uri)

    @property
    def _named(self) -> dict[str, str]:
        """Database and table, as parameters."""
        database, _, table = self.table.partition(".") if "." in self.table else (self._place.database, "", self.table)
        return {"database": database, "table": table}

    def narrowed(self, names: Iterable[str]) -> ClickHouseTable:
        """The table with these columns only: Spark is given no others to read."""
        relation = f"(\n{self.sql.strip().rstrip(';')}\n)" if self.sql else "source"
        return replace(self, sql=f"SELECT {', '.join(map(quoted, names))} FROM {relation}")

    @property
    def missing_extra(self) -> None:
        """Changes are asked without Spark."""

    def columns(self, spark: Sessions) -> tuple[Column, ...]:
        with self._place.session() as session:
            columns = tuple(each.column for each in self._described(session).values())
        if self.transform is None:
            return columns
        return columns_of(self._frame(spark, columns, []).schema)

    def files_digest(self) -> None:
        """Nothing: merges cannot be told from changes."""

    def state(self) -> str | None:
        """A digest of its parts. A merge changes it too, without need: then the table is read once more."""
        if self.sql is not None:
            return None
        with self._place.session() as session:
            engine, made = self._made(session)
            if not engine.endswith("MergeTree"):
                return None
            sql = (
                "SELECT toString(cityHash64(arraySort(groupArray(hash_of_all_files)), {made:String})) AS digest "
                "FROM system.parts WHERE database = {database:String} AND table = {table:String} AND active"
            )
            (found,) = records(session, sql, **self._named, made=made)
        return str(found["digest"])

    def changed(
        self,
        spark: Sessions,
        rows: RowColumns,
        scope: Scope,
        floor: int,
        others: tuple[Scope, ...] | None = None,
        *,
        known: Files | None = None,
    ) -> bool:
        if rows.watermark is None:
            return True
        with self._place.session() as session:
            asked = self._asked(session, rows, Selection(scope, others=others))
            later = predicates.above(asked.dialect, rows.watermark, floor)
            return bool(records(session, f"{asked.select('1', later)} LIMIT 1", **asked.dialect.values))

    def newer(self, spark: Sessions, rows: RowColumns, selection: Selection) -> int:
        with self._place.session() as session:
            asked = self._asked(session, rows, selection)
            (found,) = records(session, asked.select("count() AS rows"), **asked.dialect.values)
        return int(found["rows"])

    def files(self) -> None:
        """None: it is a table."""

    def look(self, spark: Sessions, rows: RowColumns, selection: Selection, *, floor: int | None, target: int) -> Look:
        assert rows.watermark is not None
        with self._place.session() as session:
            asked = self._asked(session, rows, selection)
            at, digest = asked.columns[rows.watermark].micros, _digest(asked.columns)
            margin = f"({at} IS NULL OR {'0' if floor is None else f'{at} <= {floor:d}'})"
            what = (
                f"maxOrNullIf({at}, {at} <= {target:d}) AS instep_latest, countIf({at} IS NULL) AS instep_without, "
                f"countIf({margin}) AS instep_rows, toString(sumIf({digest}, {margin})) AS instep_digest"
            )
            (found,) = records(session, asked.select(what), **asked.dialect.values)
        latest = None if found["instep_latest"] is None else int(found["instep_latest"])
        return Look(
            latest, int(found["instep_without"]), int(found["instep_rows"]), f"clickhouse {found['instep_digest']}"
        )

    def marks(self, spark: Sessions, rows: RowColumns, selection: Selection, limit: int) -> list[RowMark] | None:
        assert rows.watermark is not None
        with self._place.session() as session:
            asked = self._asked(session, rows, selection)
            keys = ", ".join(f"ifNull(toString({quoted(name)}), '')" for name in rows.key)
            what = (
                f"arrayStringConcat([{keys}], ',') AS instep_key, {asked.columns[rows.watermark].micros} AS instep_at, "
                f"toString({_digest(asked.columns)}) AS instep_digest"
            )
            sql = f"{asked.select(what)} LIMIT {limit + 1:d}"
            found = records(session, sql, **asked.dialect.values)
        if len(found) > limit:
            return None
        return [
            RowMark(
                each["instep_key"],
                None if each["instep_at"] is None else int(each["instep_at"]),
                int(each["instep_digest"]),
            )
            for each in found
        ]

    def without_watermark(self, spark: Sessions, rows: RowColumns, selection: Selection) -> int:
        """Versions that FINAL would hide are counted, as in a histogram."""
        if rows.watermark is None:
            return 0
        with self._place.session() as session:
            asked = self._asked(session, rows, selection)
            missing = f"NOT ({asked.dialect.keyed(rows.watermark)})"
            (found,) = records(session, asked.select("count() AS rows", missing), **asked.dialect.values)
        return int(found["rows"])

    def histogram(
        self, spark: Sessions, rows: RowColumns, selection: Selection, columns: tuple[str, ...], *, bins: int
    ) -> Histogram:
        """Versions that FINAL would hide are counted: they have to be read, and are evenly about."""
        from instep.sources.tables.samples import KEYS_PER_BIN, binned

        with self._place.session() as session:
            asked = self._asked(session, rows, selection, columns)
            keyed = " AND ".join(map(asked.dialect.keyed, columns))
            (found,) = records(
                session, asked.select(f"count() AS rows, countIf({keyed}) AS keyed"), **asked.dialect.values
            )
            # The same rows at every look: by a hash of what tells them apart.
            every = max(1, found["keyed"] // (bins * KEYS_PER_BIN))
            hashed = ", ".join(quoted(name) for name in dict.fromkeys((*rows.sorted_by, *rows.key)))
            taken = [keyed] if every == 1 else [keyed, f"cityHash64({hashed}) % {every:d} = 0"]
            wanted = [asked.columns[name] for name in columns]
            sample = session.arrow(asked.select(_values(wanted), *taken), **asked.dialect.values)
        return Histogram(found["rows"], binned(_in_our_types(wanted, sample), found["keyed"], bins))

    def extremes(self, spark: Sessions, rows: RowColumns, selection: Selection, column: str) -> tuple[Key, Key] | None:
        from instep.sources.tables.samples import keys

        with self._place.session() as session:
            asked = self._asked(session, rows, selection, (column,))
            found = asked.columns[column]
            ends = f"minOrNull({found.value}), maxOrNull({found.value})"
            answer = session.arrow(asked.select(ends, asked.dialect.keyed(column)), **asked.dialect.values)
        if answer.column(0).null_count:
            return None
        least, greatest = (keys(_in_our_types([found], answer.select([at])))[0] for at in range(2))
        return least, greatest

    def frame(self, spark: Sessions, rows: RowColumns, selection: Selection) -> DataFrame:
        columns, queries = self.queries(spark, rows, selection)
        found = self._frame(spark, columns, queries)
        if self.transform is not None:
            demand(rows.named, found.columns, self.text, after=self.transform_name)
        return found

    def keys(self, rows: RowColumns, selection: Selection, columns: Sequence[str]) -> Iterator[pa.RecordBatch] | None:
        if self.transform is not None:
            return None
        return self.picked(rows, selection, lambda found: [(found[each].column, found[each].value) for each in columns])

    def picked(self, rows: RowColumns, selection: Selection, pick: Pick) -> Iterator[pa.RecordBatch]:
        """The selected rows without Spark: these expressions of their columns."""
        from instep.sources.tables.clickhouse_reader import QueryReader

        columns, queries = self.queries(_none, rows, selection, pick)
        for query in queries:
            yield from QueryReader(self._place, columns).read(query)

    def queries(
        self, spark: Sessions, rows: RowColumns, selection: Selection, pick: Pick = _all
    ) -> tuple[tuple[Column, ...], list[Query]]:
        """The queries of the partitions of a frame, and the columns of their answers."""
        from instep.sources.tables.clickhouse_reader import Query

        with self._place.session() as session:
            columns = self._described(session)
            final = _whole(selection) and _MERGING.search(self._made(session)[0]) is not None
            relation = self._relation(final=final)
            found = []
            for part in self._parts(spark, rows, selection):
                asked = _Select.of(relation, columns, rows, part, part.cut_by, where=self.text)
                condition = predicates.in_ranges(asked.dialect, part.cut_by, part.ranges)
                sql = asked.select(", ".join(value for _, value in pick(columns)), *filter(None, [condition]))
                found.append(Query(sql, asked.dialect.values))
        return tuple(column for column, _ in pick(columns)), found

    def _parts(self, spark: Sessions, rows: RowColumns, selection: Selection) -> Sequence[Selection]:
        """The selection that each partition reads."""
        groups = predicates.key_groups(selection.keys)
        if 0 < len(groups) <= _PARTITIONS:
            return [replace(selection, cut_by=(), ranges=(), keys=tuple(group)) for group in groups]
        cut_by, ranges = self._groups(spark, rows, replace(selection, keys=()))
        return [replace(selection, cut_by=cut_by, ranges=tuple(group), keys=()) for group in ranges]

    def _groups(
        self, spark: Sessions, rows: RowColumns, selection: Selection
    ) -> tuple[tuple[str, ...], list[Sequence[KeyRange]]]:
        """Ranges, of these columns, by the partitions that read them."""
        cut_by, ranges = selection.cut_by, predicates.in_order(selection.ranges)
        most = _PARTITIONS if self._place.remote else _PARTITIONS_OF_A_FOLDER
        if _whole(selection) and set(ranges) <= {KeyRange()}:
            cut_by = cut_columns(rows.key, (rows.scope,) if rows.scope else (), dominated=False)[:1]
            found = self.histogram(spark, rows, replace(selection, cut_by=(), ranges=()), cut_by, bins=10 * most)
            parts = min(most, 1 + found.rows // _PARTITION_ROWS)
            ranges = [each.range for each in balanced_cuts(found.bins, parts)]
        groups = max(1, min(most, len(ranges)))
        edges = [len(ranges) * at // groups for at in range(groups + 1)]
        return cut_by, [ranges[first:after] for first, after in pairwise(edges)]

    def _frame(self, spark: Sessions, columns: tuple[Column, ...], queries: Sequence[Query]) -> DataFrame:
        from instep.sources.tables.clickhouse_datasource import data_source
        from instep.sources.tables.clickhouse_reader import QueryReader

        session = spark()
        name = f"instep_clickhouse_{next(_NUMBERS) % _NAMES}"
        session.dataSource.register(data_source(name, QueryReader(self._place, columns), queries))
        frame = session.read.format(name).load()
        if self.transform is None:
            return frame
        found = transformed(frame, self.transform, self.transform_name, self.text)
        return found.selectExpr(*(as_ours(each.name, each.dataType) for each in found.schema.fields))

    def _asked(self, session: Session, rows: RowColumns, selection: Selection, columns: Sequence[str] = ()) -> _Select:
        return _Select.of(
            self._relation(final=False), self._described(session), rows, selection, columns, where=self.text
        )

    def _relation(self, *, final: bool) -> tuple[str, str]:
        """The text before a SELECT, and its FROM clause."""
        table = quoted(*self._named.values()) + (" FINAL" if final else "")
        if self.sql is None:
            return "", table
        # On lines of its own: it may end with a comment.
        return f"WITH source AS (SELECT * FROM {table}) ", f"(\n{self.sql.strip().rstrip(';')}\n)"

    def _demand_whole(self, session: Session) -> None:
        """Settings that stand in a query, a view or a Distributed table overrule those that are sent."""
        for what, text in (("`sql`", self.sql or ""), (f"the definition of {self.table}", self._made(session)[1])):
            if setting := in_part(text):
                raise UserError(
                    f"{what} has the setting {setting}: ClickHouse would return only a part of the rows",
                    where=self.text,
                    hint="Leave it out there: what is missing in an answer would be taken for deleted.",
                )

    def _described(self, session: Session) -> dict[str, SourceColumn]:
        self._demand_whole(session)
        before, relation = self._relation(final=False)
        try:
            found = records(session, f"DESCRIBE ({before}SELECT * FROM {relation})")
        except UserError as error:
            if isinstance(error, Away):
                raise
            raise UserError(error.what, where=self.text, hint="Check `table` and `sql` of the source.") from None
        columns: dict[str, SourceColumn] = {}
        for each in found:
            column = source_column(each["name"], each["type"])
            if column is None:
                raise UserError(
                    f"column {each['name']!r} has the type {each['type']}, which is not supported",
                    where=self.text,
                    hint="Leave it out, or convert it, with `sql`: SELECT toString(…) AS … FROM source",
                )
            if any(other.lower() == column.name.lower() for other in columns):
                raise UserError(
                    f"it has two columns called {column.name!r}",
                    where=self.text,
                    hint="Name them apart, with AS in `sql`.",
                )
            columns[column.name] = column
        return columns

    def _made(self, session: Session) -> tuple[str, str]:
        """Engine and definition of the table; empty for what is none, such as a view of the server's own."""
        found = records(
            session,
            "SELECT engine, create_table_query AS made FROM system.tables "
            "WHERE database = {database:String} AND name = {table:String}",
            **self._named,
        )
        return (found[0]["engine"], found[0]["made"]) if found else ("", "")


@dataclass(frozen=True)
class _Select:
    """A query about selected rows of any range."""

    relation: tuple[str, str]
    columns: Mapping[str, SourceColumn]
    dialect: ClickHouseDialect
    conditions: tuple[str, ...]

    @classmethod
    def of(
        cls,
        relation: tuple[str, str],
        columns: Mapping[str, SourceColumn],
        rows: RowColumns,
        selection: Selection,
        cut_by: Sequence[str],
        *,
        where: str,
    ) -> _Select:
        demand((*rows.named, *cut_by), tuple(columns), where)
        for name in cut_by:
            if not columns[name].column.type.keys:
                raise UserError(f"{name!r} is {columns[name].stored}: rows cannot be cut by it", where=where)
        dialect = ClickHouseDialect(columns)
        return cls(relation, columns, dialect, tuple(predicates.conditions(dialect, rows, selection)))

    def select(self, what: str, *more: str) -> str:
        before, relation = self.relation
        where = " AND ".join(f"({each})" for each in (*self.conditions, *more)) or "1"
        return f"{before}SELECT {what} FROM {relation} WHERE {where}"


def _whole(selection: Selection) -> bool:
    """Whether it is not only what has changed."""
    return selection.window is None or selection.window.first


def _digest(columns: Mapping[str, SourceColumn]) -> str:
    """A whole number that differs when the contents of a row do."""
    return f"cityHash64(toString(tuple({', '.join(quoted(each) for each in columns)})))"


def _values(columns: Iterable[SourceColumn]) -> str:
    """Expressions without names: one that is a column's too would be taken for it in conditions. Answers go by their
    order.
    """
    return ", ".join(each.value for each in columns)


def _in_our_types(columns: Sequence[SourceColumn], answer: pa.Table) -> pa.Table:
    import pyarrow as pa

    from instep.arrow.types import arrow_schema
    from instep.sources.tables.clickhouse_reader import as_ours

    schema = arrow_schema([each.column for each in columns])
    return pa.Table.from_batches([as_ours(each, schema) for each in answer.to_batches()], schema)
