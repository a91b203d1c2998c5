"""Tables that Spark reads: files, catalogs, lakes, databases."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from instep.domain.columns import TIMESTAMP, Column, ColumnType, TypeName
from instep.domain.keys import Key
from instep.domain.refs import Scope
from instep.domain.rows import Histogram, RowColumns, Selection, Window
from instep.domain.seen import Look, RowMark
from instep.domain.table_files import Files, TableFile
from instep.errors import UserError
from instep.sources.tables import database_probe, parquet, samples
from instep.sources.tables.folders import shown
from instep.sources.tables.listed_files import Caches, ListedFiles
from instep.sources.tables.predicates import above, conditions, in_ranges
from instep.sources.tables.samples import FEWEST_KEYS, KEYS_PER_BIN, binned, keys
from instep.sources.tables.spark_jdbc import JdbcTable
from instep.sources.tables.spark_reading import over_source, told
from instep.sources.tables.spark_types import SparkDialect, as_ours, collated, column_type, columns_of, quoted
from instep.sources.tables.table_source import Sessions, Transform, demand, transformed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
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
    _caches: Caches = field(default_factory=Caches, init=False, repr=False, compare=False)

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
        plain = None if self.transform else self._listed.plain()
        if plain is not None:
            return tuple(Column(name, kind) for name, kind in plain[1].items())
        with told(self.text, self.options):
            return self._named(self._finished(self._rows(spark(), None, _ANY)).schema)

    def state(self) -> str | None:
        return self._listed.state()

    def files_digest(self) -> str | None:
        return None if self.transform else self._listed.files_digest()

    def files(self) -> list[TableFile] | None:
        return self._listed.all()

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
            return self._listed.newly_in(rows, scope, others, known)
        later = self._listed.later(rows, scope, floor, others)
        if later is not None:
            return later
        selection = Selection(scope, others=others)
        if self._in_database:
            later = database_probe.changed(self._jdbc, rows, selection, floor)
            if later is not None:
                return later
        return self._changed(spark(), rows, rows.watermark, selection, floor)

    def newer(self, spark: Sessions, rows: RowColumns, selection: Selection) -> int | None:
        """Footers say how many rows there are in groups that have later ones; a database counts."""
        window = selection.window
        assert window is not None
        assert window.floor is not None
        if self._in_database:
            known = database_probe.count(self._jdbc, rows, selection)
            return self._counted_there(spark(), rows, selection) if known is None else known
        return self._listed.most_newer(rows, selection, window.floor)

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
        whole = selection.scope.is_global and rows.deleted is None
        known = self._listed.without_watermark(rows.watermark, whole=whole)
        if known is not None:
            return known
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

    def _sampled(self, rows: RowColumns, selection: Selection, columns: Sequence[str], bins: int) -> Histogram | None:
        """The histogram of Parquet that is nothing else besides, without Spark."""
        plain = self._listed.plain()
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
        plain = None if self.transform else self._listed.plain()
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
    def _listed(self) -> ListedFiles:
        path = () if self.table or self._in_database else self.path
        return ListedFiles(self.format, path, self.options, self.sql, self.text, self._caches)

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
            paths, selection = self._listed.narrowed(rows, selection)
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

    def _files_or_table(self, session: SparkSession, paths: Sequence[str], *, some: bool = False) -> DataFrame:
        """The rows of these files, which are `some` of all; of none of them the columns alone are of use."""
        reader = session.read.options(**self.options)
        if self.table:
            # To a catalog that is a database: see `spark_jdbc`.
            read = reader.option("pushDownPredicate", "false").table(self.table)
        else:
            reader, times = self._listed.of_all_files(reader.format(self.format))
            if some:
                reader = self._listed.as_of_all(reader)
            read = reader.load(list(paths or self.path)) if self.path else reader.load()
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
