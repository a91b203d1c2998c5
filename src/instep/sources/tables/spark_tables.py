"""Tables that Spark reads: files, catalogs, lakes, databases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyarrow.parquet import FileMetaData

from instep.domain.columns import TIMESTAMP, Column, ColumnType, TypeName
from instep.domain.keys import Key
from instep.domain.refs import GLOBAL, Scope
from instep.domain.rows import Histogram, RowColumns, Selection
from instep.errors import UserError
from instep.sources.tables import database_probe, parquet, samples
from instep.sources.tables.folders import Folder, Listed, digest, folders, shown
from instep.sources.tables.predicates import above, conditions, in_ranges
from instep.sources.tables.samples import FEWEST_KEYS, KEYS_PER_BIN, binned, keys
from instep.sources.tables.spark_jdbc import JdbcTable
from instep.sources.tables.spark_reading import over_source, told
from instep.sources.tables.spark_types import SparkDialect, as_ours, collated, column_type, columns_of, quoted
from instep.sources.tables.table_source import Sessions, Transform, Unseen, demand, transformed
from instep.sources.url_files import is_url

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructType

_ANY = Selection()


@dataclass(frozen=True, slots=True)
class SparkTable:
    """A table that `spark.read` reads: files in `path` (absolute, or URLs), or the `table` of a catalog or, with the
    format `jdbc`, of a database.

    `sql` is a query over `source`: in Spark's SQL, or with `jdbc` in that of the database, which runs it. The
    transform comes last, after the rows are selected: a selection is asked of the source.
    """

    format: str
    path: tuple[str, ...] = field(default=(), repr=False)
    table: str | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    sql: str | None = field(default=None, repr=False)
    transform: Transform | None = None
    transform_name: str = "transform"
    _footers: parquet.Footers = field(default_factory=parquet.Footers, init=False, repr=False, compare=False)
    _latest: parquet.LatestByScope = field(default_factory=parquet.LatestByScope, init=False, repr=False, compare=False)

    @property
    def text(self) -> str:
        if self._in_database:
            url = next((value for key, value in self.options.items() if key.lower() == "url"), "")
            where = shown(url.removeprefix("jdbc:"))
            return f"{where} {self.table}" if self.table else where
        return self.table or ", ".join(map(shown, self.path)) or self.format

    @property
    def missing_extra(self) -> str | None:
        return database_probe.missing_extra(self._jdbc) if self._in_database else None

    def columns(self, spark: Sessions) -> tuple[Column, ...]:
        # What the options change is for Spark to say.
        plain = None if self.transform else self._plain()
        if plain is not None:
            return tuple(Column(name, kind) for name, kind in plain[1].items())
        with told(self.text, self.options):
            return self._named(self._finished(self._rows(spark(), None, _ANY)).schema)

    def state(self) -> str | None:
        if self._in_database or self.table or not self.path:
            return None
        places = folders(self.path, self.format.lower())
        return None if places is None else digest(places)

    def changed(
        self, spark: Sessions, rows: RowColumns, scope: Scope, floor: int, others: tuple[Scope, ...] | None = None
    ) -> bool:
        if rows.watermark is None:
            return True
        found = None if self.sql else self._parquet()
        if found is not None:
            known = parquet.later(found[1], rows, scope, floor)
            if known is False and others is not None:
                known = self._later_outside(*found, rows, (scope, *others), floor)
            if known is not None:
                return known
        selection = Selection(scope, others=others)
        if self._in_database:
            known = database_probe.changed(self._jdbc, rows, selection, floor)
            if known is not None:
                return known
        return self._changed(spark(), rows, rows.watermark, selection, floor)

    def _later_outside(
        self,
        places: Sequence[Folder],
        footers: Sequence[FileMetaData],
        rows: RowColumns,
        scopes: Sequence[Scope],
        floor: int,
    ) -> bool | None:
        """Whether rows in none of these namespaces have a later watermark. Files that have rows of many namespaces side
        by side say little of it in their footers: so two columns are read of what they do not rule out.
        """
        files = [(place, each) for place in places for each in place.files]
        for (place, each), footer in zip(files, footers, strict=True):
            for group in parquet.later_outside(footer, rows, scopes, floor):
                found = self._latest.of(place, each, footer, group, rows)
                if found is None:
                    return None
                if found.outside(scopes, floor):
                    return True
        return False

    def newer(self, spark: Sessions, rows: RowColumns, selection: Selection) -> int | None:
        """Footers say how many rows there are in groups that have later ones; a database counts."""
        window = selection.window
        assert window is not None
        assert window.floor is not None
        if self._in_database:
            known = database_probe.count(self._jdbc, rows, selection)
            return self._counted_there(spark(), rows, selection) if known is None else known
        found = None if self.sql else self._parquet()
        return None if found is None else parquet.most_later(found[1], rows, selection.scope, window.floor)

    def unseen(self, rows: RowColumns, floor: int) -> Unseen | None:
        found = None if self.sql or self.transform else self._parquet()
        if found is None or rows.watermark is None:
            return None
        places, footers = found
        files = [(place, each) for place in places for each in place.files]
        without = late = 0
        for (place, each), footer in zip(files, footers, strict=True):
            nulls = parquet.without_watermark(footer, rows.watermark)
            without += nulls
            if parquet.later([footer], rows, GLOBAL, floor) is False and place.written(each) > floor:
                late += footer.num_rows - nulls
        return Unseen(without, late)

    def without_watermark(self, spark: Sessions, rows: RowColumns, selection: Selection) -> int:
        """Footers say it of a whole table, and of any that there is none; else a database counts, or Spark."""
        if rows.watermark is None:
            return 0
        found = None if self.sql else self._parquet()
        if found is not None:
            nulls = [parquet.without_watermark(each, rows.watermark) for each in found[1]]
            if not any(nulls) or (selection.scope.is_global and rows.deleted is None):
                return sum(nulls)
        with told(self.text, self.options):
            session = spark()
            read = self._rows(session, rows, selection)
            number, keyed = self._counted(session, read, rows, selection, (rows.watermark,))
            return number - keyed

    def count(self, spark: Sessions, rows: RowColumns, selection: Selection) -> int:
        """The number of selected rows."""
        with told(self.text, self.options):
            session = spark()
            number, _ = self._counted(session, self._rows(session, rows, selection), rows, selection, rows.key)
            return number

    def histogram(
        self, spark: Sessions, rows: RowColumns, selection: Selection, columns: tuple[str, ...], *, bins: int
    ) -> Histogram:
        known = self._sampled(rows, selection, columns, bins)
        if known is not None:
            return known
        with told(self.text, self.options):
            session = spark()
            read = self._rows(session, rows, selection, columns)
            self._demand_keys({name: column_type(name, read.schema[name].dataType) for name in columns})
            number, with_key = self._counted(session, read, rows, selection, columns)
            share = max(bins * KEYS_PER_BIN, FEWEST_KEYS) / max(with_key, 1)
            if share < 1:
                read = self._rows(session, rows, selection, columns, share=share)
            sample = read.where(_keyed(columns)).selectExpr(
                *(as_ours(name, read.schema[name].dataType) for name in columns)
            )
            return Histogram(number, binned(sample.toArrow(), with_key, bins))

    def extremes(self, spark: Sessions, rows: RowColumns, selection: Selection, column: str) -> tuple[Key, Key] | None:
        with told(self.text, self.options):
            read = self._rows(spark(), rows, selection, (column,))
            self._demand_keys({column: column_type(column, read.schema[column].dataType)})
            ours = read.selectExpr(as_ours(column, read.schema[column].dataType))
            found = ours.selectExpr(f"min({quoted(column)}) AS low", f"max({quoted(column)}) AS high").toArrow()
            if found.column("low")[0].as_py() is None:
                return None
            low, high = (keys(found.select([name]))[0] for name in ("low", "high"))
            return low, high

    def frame(self, spark: Sessions, rows: RowColumns, selection: Selection) -> DataFrame:
        with told(self.text, self.options):
            found = self._finished(self._rows(spark(), rows, selection, selection.cut_by))
            if self.transform is not None:
                demand(rows.named, found.columns, self.text, after=self.transform_name)
            self._named(found.schema)
            fields = found.schema.fields
            wanted = [as_ours(each.name, each.dataType) for each in fields]
            # Every step of a frame has its price: Spark looks through all that it has, for some ten milliseconds.
            return found if wanted == [quoted(each.name) for each in fields] else found.selectExpr(*wanted)

    # -- rows of the source -------------------------------------------------------------------------

    @property
    def _in_database(self) -> bool:
        return self.format.lower() == "jdbc"

    @property
    def _jdbc(self) -> JdbcTable:
        return JdbcTable.of(self.options, self.table, self.sql)

    def _rows(
        self,
        session: SparkSession,
        rows: RowColumns | None,
        selection: Selection,
        columns: Sequence[str] = (),
        *,
        share: float = 1,
        floor: int | None = None,
    ) -> DataFrame:
        """The selected rows, or a share of them, before the transform. `columns` are needed beside those of `rows`. A
        database leaves out those that are not above the `floor`, if it can.
        """
        if self._in_database:
            table = self._jdbc
            stored = table.plain(session).schema
            if rows is None:
                return _by_bytes(self._exactly(table, session, stored))
            self._demand(stored, rows, columns)
            asked = table.asked(session, stored, rows, selection, floor=floor)
            read = _by_bytes(self._exactly(table, session, stored, asked.parts(share)))
            share = 1 if asked.exact else share
        else:
            paths, selection = self._narrowed(rows, selection)
            read = _by_bytes(self._files_or_table(session, paths))
            if rows is None:
                return read
            self._demand(read.schema, rows, columns)
        dialect = SparkDialect(read.schema)
        asked_for = conditions(dialect, rows, selection)
        if ranges := in_ranges(dialect, selection.cut_by, selection.ranges):
            asked_for.append(ranges)
        if asked_for:
            read = read.where(" AND ".join(f"({each})" for each in asked_for))
        return read if share >= 1 else read.sample(fraction=share, seed=0)

    def _exactly(
        self, table: JdbcTable, session: SparkSession, stored: StructType, parts: Sequence[str] = ()
    ) -> DataFrame:
        try:
            return table.frame(session, stored, parts)
        except UserError as error:
            raise UserError(error.what, where=self.text, hint=error.hint) from None

    def _counted_there(self, session: SparkSession, rows: RowColumns, selection: Selection) -> int | None:
        """The database's own count; None if it cannot be asked for exactly these rows."""
        with told(self.text, self.options):
            table = self._jdbc
            stored = table.plain(session).schema
            self._demand(stored, rows, ())
            found = table.counted(session, table.asked(session, stored, rows, selection), rows.key)
            return None if found is None else int(found.collect()[0][0])

    def _counted(
        self, session: SparkSession, read: DataFrame, rows: RowColumns, selection: Selection, columns: Sequence[str]
    ) -> tuple[int, int]:
        """The number of selected rows, and of those with a value in all of the columns."""
        found = None
        if self._in_database:
            table = self._jdbc
            asked = table.asked(session, table.plain(session).schema, rows, selection)
            found = table.counted(session, asked, columns)
        if found is None:
            found = read.selectExpr("count(*) AS number", f"count_if({_keyed(columns)}) AS keyed")
        number, keyed = found.collect()[0]
        return number, keyed

    def _narrowed(self, rows: RowColumns | None, selection: Selection) -> tuple[Sequence[str], Selection]:
        """A reader of the table, and the conditions for its rows. Of files on this machine only those are read that may
        have rows above the floor, since each one that Spark has to look into costs it a task. Where all of their rows
        are in the window, it is not asked for: a condition with constants that it had not before is compiled.
        """
        window = selection.window
        known = None if rows is None or window is None or any(map(is_url, self.path)) else self._plain()
        if rows is None or window is None or window.floor is None or rows.watermark is None or known is None:
            return self.path, selection
        files = known[0]
        later = [
            (each.path, footer)
            for _, each, footer in files
            if parquet.may_have_later(footer, rows, selection, window.floor)
        ]
        if not later:
            return [files[0][1].path], selection
        if parquet.within([footer for _, footer in later], rows.watermark, window):
            selection = replace(selection, window=None)
        return [path for path, _ in later], selection

    def _files_or_table(self, session: SparkSession, paths: Sequence[str]) -> DataFrame:
        reader = session.read.options(**self.options)
        if self.table:
            # To a catalog that is a database: see `spark_jdbc`.
            read = reader.option("pushDownPredicate", "false").table(self.table)
        else:
            reader, times = self._of_all_files(reader.format(self.format))
            read = reader.load(list(paths)) if paths else reader.load()
            if times:
                names = [each.name for each in read.schema.fields]
                read = read.selectExpr(
                    *(f"{times[name]} AS {quoted(name)}" if name in times else quoted(name) for name in names)
                )
        return read if self.sql is None else over_source(session, self.sql, read)

    def _finished(self, read: DataFrame) -> DataFrame:
        if self.transform is None:
            return read
        return transformed(read, self.transform, self.transform_name, self.text)

    def _changed(
        self, session: SparkSession, rows: RowColumns, watermark: str, selection: Selection, floor: int
    ) -> bool:
        with told(self.text, self.options):
            read = self._rows(session, rows, selection, floor=floor)
            return not read.where(above(SparkDialect(read.schema), watermark, floor)).limit(1).isEmpty()

    # -- what must be there -------------------------------------------------------------------------

    def _named(self, schema: StructType) -> tuple[Column, ...]:
        try:
            return columns_of(schema)
        except UserError as error:
            raise UserError(error.what, where=self.text, hint=error.hint) from None

    def _demand(self, read: StructType, rows: RowColumns, columns: Sequence[str]) -> None:
        from pyspark.sql.types import StructType

        demand((*rows.named, *columns), read.names, self.text)
        named = {name.lower() for name in rows.named}
        schema = StructType([each for each in read.fields if each.name.lower() in named])
        types = {each.name: each.type for each in self._named(schema)}
        if rows.watermark and types[rows.watermark] != TIMESTAMP:
            raise UserError(
                f"the watermark {rows.watermark!r} is {types[rows.watermark]}, and has to be a timestamp",
                where=self.text,
            )
        if rows.scope and types[rows.scope].name is not TypeName.STRING:
            raise UserError(f"the scope {rows.scope!r} is {types[rows.scope]}, and has to be text", where=self.text)

    def _demand_keys(self, types: Mapping[str, ColumnType]) -> None:
        for name, kind in types.items():
            if not kind.keys:
                raise UserError(f"{name!r} is {kind}: rows cannot be cut by it", where=self.text)

    # -- without Spark ------------------------------------------------------------------------------

    def _parquet(self) -> tuple[list[Folder], list[FileMetaData]] | None:
        """The footers of Parquet files; None for what is none, or where only Spark can look."""
        if self.format.lower() != "parquet" or self.table:
            return None
        places = folders(self.path, "parquet")
        if places is None:
            return None
        footers: list[FileMetaData] = []
        for place in places:
            _demand_content(place)
            found = self._footers.of(place, place.files)
            if found is None:
                return None
            footers += found
        return places, footers

    def _plain(self) -> tuple[list[tuple[Folder, Listed, FileMetaData]], dict[str, ColumnType]] | None:
        """The files with their footers and columns, if these are all that there is to know of the table."""
        found = None if self.sql or self.options else self._parquet()
        if found is None:
            return None
        places, footers = found
        if not footers or not all(each.plain for each in places) or not parquet.alike(footers):
            return None
        columns = parquet.columns_of(footers[0])
        if columns is None:
            return None
        files = [(place, each) for place in places for each in place.files]
        together = [(place, each, footer) for (place, each), footer in zip(files, footers, strict=True)]
        return together, {each.name: each.type for each in columns}

    def _sampled(self, rows: RowColumns, selection: Selection, columns: Sequence[str], bins: int) -> Histogram | None:
        plain = self._plain()
        if plain is None:
            return None
        files, types = plain
        demand((*rows.named, *columns), list(types), self.text)
        self._demand_keys({name: types[name] for name in columns})
        if selection.window is not None and (floor := selection.window.floor) is not None:
            files = [each for each in files if parquet.may_have_later(each[2], rows, selection, floor)]
        found = samples.sample(files, rows, selection, columns, max(bins * KEYS_PER_BIN, FEWEST_KEYS))
        return Histogram(found.rows, binned(found.keys, found.with_key, bins)) if found else None

    def _of_all_files(self, reader: DataFrameReader) -> tuple[DataFrameReader, Mapping[str, str]]:
        """A reader of the columns of all Parquet files: when they differ, Spark takes those of one for all. Beside it:
        expressions of times that Spark reads as numbers.
        """
        found = self._parquet()
        if found is None or not found[1]:
            return reader, {}
        places, footers = found
        same = parquet.alike(footers)
        for each in footers[:1] if same else footers:
            parquet.demand_readable(each, self.text)
        if any(each.lower() == "mergeschema" for each in self.options):
            return reader, {}
        times = parquet.in_nanoseconds(footers)
        # Told what there is, Spark has no job of its own to find that out.
        wanted = times or not same or all(each.plain for each in places)
        schema = parquet.merged(footers) if wanted else None
        if schema is not None:
            return reader.schema(schema), times
        return reader if same else reader.option("mergeSchema", "true"), {}


def _demand_content(place: Folder) -> None:
    """Raises `UserError` for a Parquet file of no bytes: Spark would take it for one without rows."""
    for each in place.files:
        if not each.size and each.path.endswith(".parquet"):
            raise UserError(
                "it is empty, and no Parquet file", where=shown(each.path), hint="Write it again, or remove it."
            )


def _keyed(columns: Sequence[str]) -> str:
    return " AND ".join(f"{quoted(name)} IS NOT NULL" for name in columns)


def _by_bytes(read: DataFrame) -> DataFrame:
    """Text of another collation would be compared by it."""
    fields = read.schema.fields
    if not any(collated(each.dataType) for each in fields):
        return read
    return read.selectExpr(*(_as_bytes(each.name, collates=collated(each.dataType)) for each in fields))


def _as_bytes(name: str, *, collates: bool) -> str:
    return f"CAST({quoted(name)} AS STRING) AS {quoted(name)}" if collates else quoted(name)
