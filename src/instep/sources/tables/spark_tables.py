"""Tables that Spark reads: files, catalogs, lakes, databases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyarrow.parquet import FileMetaData

from instep.domain.columns import TIMESTAMP, Column, ColumnType, TypeName
from instep.domain.keys import Key
from instep.domain.refs import Scope
from instep.domain.rows import FIRST_MOMENT, Histogram, RowColumns, Selection, Window
from instep.domain.seen import Look, RowMark
from instep.domain.table_files import Files, TableFile
from instep.errors import UserError
from instep.sources.tables import database_probe, parquet, samples
from instep.sources.tables.folders import Folder, Listed, digest, folders, shown
from instep.sources.tables.predicates import above, conditions, in_ranges
from instep.sources.tables.row_wise import is_row_wise
from instep.sources.tables.samples import FEWEST_KEYS, KEYS_PER_BIN, binned, keys
from instep.sources.tables.spark_jdbc import JdbcTable
from instep.sources.tables.spark_reading import over_source, told
from instep.sources.tables.spark_types import SparkDialect, as_ours, collated, column_type, columns_of, quoted
from instep.sources.tables.table_source import Sessions, Transform, demand, transformed
from instep.sources.url_files import is_url

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import StructType

_ANY = Selection()
#: Formats whose files stand by themselves, and what has Spark leave out some of those that a listing has.
_FILES = frozenset({"parquet", "orc", "json", "csv", "avro", "xml", "text"})
_LEAVES_OUT = frozenset({"pathglobfilter", "modifiedbefore", "modifiedafter"})
_DEEP = "recursivefilelookup"


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
        if known is not None:
            return self._newly_in(rows, scope, others, known)
        found = None if self.sql else self._parquet()
        if found is not None:
            later = parquet.later(found[1], rows, scope, floor)
            if later is False and others is not None:
                later = self._later_outside(*found, rows, (scope, *others), floor)
            if later is not None:
                return later
        selection = Selection(scope, others=others)
        if self._in_database:
            later = database_probe.changed(self._jdbc, rows, selection, floor)
            if later is not None:
                return later
        return self._changed(spark(), rows, rows.watermark, selection, floor)

    def _newly_in(self, rows: RowColumns, scope: Scope, others: tuple[Scope, ...] | None, known: Files) -> bool:
        """Whether files that are not known may have rows that belong here. Those of Parquet say so in their footers."""
        files = self.files()
        if files is None:
            return True
        if not known.new(files):
            return False
        found = None if scope.is_global or self.sql else self._parquet()
        if found is None:
            return True
        places, footers = found
        new = [
            (place, footer)
            for place, footer in zip([each for place in places for each in place.files], footers, strict=True)
            if TableFile(*place).number not in known.numbers
        ]
        if parquet.later([footer for _, footer in new], rows, scope, FIRST_MOMENT - 1) is not False:
            return True
        if others is None:
            return False
        where = (scope, *others)
        return any(True for _, each in new for _ in parquet.later_outside(each, rows, where, FIRST_MOMENT - 1))

    def files(self) -> list[TableFile] | None:
        """Those of plain files, where `sql` looks at one row at a time."""
        leaves_out = {each.lower() for each in self.options} & _LEAVES_OUT
        if self.table or not self.path or self.format.lower() not in _FILES or leaves_out:
            return None
        if self.sql is not None and not is_row_wise(self.sql):
            return None
        places = folders(self.path, self.format.lower())
        deep = any(key.lower() == _DEEP and value.lower() == "true" for key, value in self.options.items())
        if places is None or not (deep or all(each.flat for each in places)):
            return None
        return [TableFile(*each) for place in places for each in place.files]

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
        if found is None:
            return None
        if selection.known is None:
            return parquet.most_later(found[1], rows, selection.scope, window.floor)
        files = [each for place in found[0] for each in place.files]
        return sum(
            footer.num_rows
            for file, footer in zip(files, found[1], strict=True)
            if TableFile(*file).number not in selection.known.numbers
        )

    def look(self, spark: Sessions, rows: RowColumns, selection: Selection, *, floor: int | None, target: int) -> Look:
        if self._in_database:
            known = database_probe.look(self._jdbc, rows, selection, floor=floor, target=target)
            if known is not None:
                return known
        with told(self.text, self.options):
            session = spark()
            at = f"max(CASE WHEN instep_at <= {target}L THEN instep_at END) AS latest"
            found = self._marked(session, rows, selection).selectExpr(at, "count_if(instep_at IS NULL) AS without")
            latest, without = found.collect()[0]
            if floor is None and not without:
                return Look(latest, without, 0, "spark 0")
            # By itself: what is digested is read with all of its columns.
            below = (
                replace(selection, window=Window(selection.window.floor, floor, unmarked=True))
                if (floor is not None and selection.window is not None)
                else selection
            )
            margin = "instep_at IS NULL" if floor is None else f"(instep_at IS NULL OR instep_at <= {floor}L)"
            digest = "CAST(sum(CAST(instep_digest AS DECIMAL(38, 0))) AS STRING) AS digest"
            read = self._marked(session, rows, below).where(margin)
            number, digest = read.selectExpr("count(*) AS number", digest).collect()[0]
            return Look(latest, without, number, f"spark {digest or 0}")

    def marks(self, spark: Sessions, rows: RowColumns, selection: Selection, limit: int) -> list[RowMark] | None:
        if self._in_database:
            known = database_probe.marks(self._jdbc, rows, selection, limit)
            if known is not None:
                return known if len(known) <= limit else None
        with told(self.text, self.options):
            key = ", ".join(f"CAST({quoted(name)} AS STRING)" for name in rows.key)
            read = self._marked(spark(), rows, selection)
            found = read.selectExpr(f"concat_ws(',', {key})", "instep_at", "instep_digest").limit(limit + 1).collect()
            return [RowMark(*row) for row in found] if len(found) <= limit else None

    def _marked(self, session: SparkSession, rows: RowColumns, selection: Selection) -> DataFrame:
        """The rows with their watermark in microseconds, and a digest of their contents."""
        assert rows.watermark is not None
        read = self._rows(session, rows, selection)
        ours = as_ours(rows.watermark, read.schema[rows.watermark].dataType).removesuffix(
            f" AS {quoted(rows.watermark)}"
        )
        return read.selectExpr(
            "*", f"unix_micros({ours}) AS instep_at", "xxhash64(to_json(struct(*))) AS instep_digest"
        )

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

    def keys(self, rows: RowColumns, selection: Selection, columns: Sequence[str]) -> Iterator[pa.RecordBatch] | None:
        """Only Parquet that is nothing else besides is read here."""
        plain = None if self.transform else self._plain()
        if plain is None:
            return None
        files, types = plain
        demand((*rows.named, *columns), list(types), self.text)
        return samples.selected(files, rows, selection, columns)

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
            some = selection.known is not None and list(paths) != list(self.path)
            read = _by_bytes(self._files_or_table(session, paths, some=some))
            if rows is None:
                return read
            if some and not paths:
                read = read.where("false")
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
        are in the window, it is not asked for: a condition with constants that it had not before is compiled. Of files
        that are known none is read, wherever they are.
        """
        if selection.known is not None:
            return self._unread(selection.known), selection
        window = selection.window
        known = None if rows is None or window is None or any(map(is_url, self.path)) else self._plain()
        if rows is None or window is None or window.floor is None or rows.watermark is None or known is None:
            return self.path, selection
        if window.unmarked:  # Rows without a watermark may be anywhere.
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

    def _unread(self, known: Files) -> Sequence[str]:
        """The files that are not known; the places themselves where that is not to be said in paths."""
        places = folders(self.path, self.format.lower())
        if places is None or (len(places) > 1 and not all(each.plain for each in places)):
            return self.path
        found = [
            place.named(given, each)
            for given, place in zip(self.path, places, strict=True)
            for each in place.files
            if TableFile(*each).number not in known.numbers
        ]
        return self.path if None in found else [each for each in found if each is not None]

    def _files_or_table(self, session: SparkSession, paths: Sequence[str], *, some: bool = False) -> DataFrame:
        """The rows of these files, which are `some` of all; of none of them the columns alone are of use."""
        reader = session.read.options(**self.options)
        if self.table:
            # To a catalog that is a database: see `spark_jdbc`.
            read = reader.option("pushDownPredicate", "false").table(self.table)
        else:
            reader, times = self._of_all_files(reader.format(self.format))
            if some:
                reader = self._as_of_all(reader)
            read = reader.load(list(paths or self.path)) if self.path else reader.load()
            if times:
                names = [each.name for each in read.schema.fields]
                read = read.selectExpr(
                    *(f"{times[name]} AS {quoted(name)}" if name in times else quoted(name) for name in names)
                )
        return read if self.sql is None else over_source(session, self.sql, read)

    def _as_of_all(self, reader: DataFrameReader) -> DataFrameReader:
        """A reader of some of the files that gives the columns of all: of what is in some, Spark would make others. It
        lists all files for that; of JSON it reads them.
        """
        found = self._parquet()
        places = folders(self.path, self.format.lower()) if found is None else found[0]
        plain = places is not None and all(each.plain for each in places)
        merges = any(each.lower() == "mergeschema" for each in self.options)
        if found is None or merges or not plain or parquet.merged(found[1]) is None:
            reader = reader.schema(reader.load(list(self.path)).schema)
        return reader if plain else reader.option("basePath", self.path[0])

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
        if selection.known is not None:
            files = [each for each in files if TableFile(*each[1]).number not in selection.known.numbers]
        elif (window := selection.window) is not None and (floor := window.floor) is not None and not window.unmarked:
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
