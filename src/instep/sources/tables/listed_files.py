"""The files of a table that Spark reads, and what their names and footers say without it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyarrow.parquet import FileMetaData

from instep.domain.columns import ColumnType
from instep.domain.refs import Scope
from instep.domain.rows import FIRST_MOMENT, RowColumns, Selection
from instep.domain.table_files import Files, TableFile
from instep.errors import UserError
from instep.sources.tables import parquet
from instep.sources.tables.folders import Folder, Listed, digest, digest_of_writes, folders, shown
from instep.sources.tables.row_wise import is_deterministic, is_row_wise
from instep.sources.url_files import is_url

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader

#: Formats whose files stand by themselves, and what has Spark leave out some of those that a listing has.
_FILES = frozenset({"parquet", "orc", "json", "csv", "avro", "xml", "text"})
_LEAVES_OUT = frozenset({"pathglobfilter", "modifiedbefore", "modifiedafter"})
_DEEP = "recursivefilelookup"
#: Options by which more than the files decides which rows there are: another file, or what could not be read for once.
_BESIDE_FILES = frozenset({"avroschemaurl", "rowvalidationxsdpath", "ignorecorruptfiles", "ignoremissingfiles"})


@dataclass(frozen=True, slots=True)
class Caches:
    """Footers that were read, and the latest watermarks of row groups."""

    footers: parquet.Footers = field(default_factory=parquet.Footers)
    latest: parquet.LatestByScope = field(default_factory=parquet.LatestByScope)


@dataclass(frozen=True, slots=True)
class ListedFiles:
    """The files in `path`, or none where the table is one of a catalog or a database. `sql` is run over
    their rows. `text` names the table in errors.
    """

    format: str
    path: tuple[str, ...]
    options: Mapping[str, str] = field(repr=False)
    sql: str | None = field(repr=False)
    text: str
    caches: Caches = field(repr=False, compare=False)

    def state(self) -> str | None:
        """A digest of the listing; None where only Spark can list."""
        places = folders(self.path, self.format.lower()) if self.path else None
        return None if places is None else digest(places)

    def files_digest(self) -> str | None:
        """A digest of all that decides which rows there are; None where files do not tell, as with a query that looks
        at the clock.
        """
        if not self.path or self.format.lower() not in _FILES or not (self.sql is None or is_deterministic(self.sql)):
            return None
        if not _BESIDE_FILES.isdisjoint(map(str.lower, self.options)):
            return None
        files = digest_of_writes(self.path, self.format.lower())
        read = repr((self.format.lower(), self.path, sorted(self.options.items()), self.sql))
        return None if files is None else f"{files}{hashlib.sha256(read.encode()).hexdigest()[:32]}"

    def all(self) -> list[TableFile] | None:
        """Those of plain files, where `sql` looks at one row at a time."""
        leaves_out = {each.lower() for each in self.options} & _LEAVES_OUT
        if not self.path or self.format.lower() not in _FILES or leaves_out:
            return None
        if self.sql is not None and not is_row_wise(self.sql):
            return None
        places = folders(self.path, self.format.lower())
        deep = any(key.lower() == _DEEP and value.lower() == "true" for key, value in self.options.items())
        if places is None or not (deep or all(each.flat for each in places)):
            return None
        return [TableFile(*each) for place in places for each in place.files]

    def later(self, rows: RowColumns, scope: Scope, floor: int, others: tuple[Scope, ...] | None) -> bool | None:
        """Whether rows of the scope, or in none of the namespaces, have a later watermark; None: footers do not say."""
        found = None if self.sql else self.footers()
        if found is None:
            return None
        later = parquet.later(found[1], rows, scope, floor)
        if later is False and others is not None:
            return self._later_outside(*found, rows, (scope, *others), floor)
        return later

    def newly_in(self, rows: RowColumns, scope: Scope, others: tuple[Scope, ...] | None, known: Files) -> bool:
        """Whether files that are not known may have rows that belong here. Those of Parquet say so in their footers."""
        files = self.all()
        if files is None:
            return True
        if not known.new(files):
            return False
        found = None if scope.is_global or self.sql else self.footers()
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
                found = self.caches.latest.of(place, each, footer, group, rows)
                if found is None:
                    return None
                if found.outside(scopes, floor):
                    return True
        return False

    def most_newer(self, rows: RowColumns, selection: Selection, floor: int) -> int | None:
        """At most so many rows are later, or in files that are not known; None if footers do not say."""
        found = None if self.sql else self.footers()
        if found is None:
            return None
        if selection.known is None:
            return parquet.most_later(found[1], rows, selection.scope, floor)
        files = [each for place in found[0] for each in place.files]
        return sum(
            footer.num_rows
            for file, footer in zip(files, found[1], strict=True)
            if TableFile(*file).number not in selection.known.numbers
        )

    def without_watermark(self, watermark: str, *, whole: bool) -> int | None:
        """The number of rows without one, of the `whole` table or where there is none; None if footers do not say."""
        found = None if self.sql else self.footers()
        if found is None:
            return None
        nulls = [parquet.without_watermark(each, watermark) for each in found[1]]
        return sum(nulls) if whole or not any(nulls) else None

    def narrowed(self, rows: RowColumns | None, selection: Selection) -> tuple[Sequence[str], Selection]:
        """The paths to read, and the conditions for their rows. Of files on this machine only those are read that may
        have rows above the floor, since each one that Spark has to look into costs it a task. Where all of their rows
        are in the window, it is not asked for: a condition with constants that it had not before is compiled. Of files
        that are known none is read, wherever they are.
        """
        if selection.known is not None:
            return self._unread(selection.known), selection
        window = selection.window
        known = None if rows is None or window is None or any(map(is_url, self.path)) else self.plain()
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

    def as_of_all(self, reader: DataFrameReader) -> DataFrameReader:
        """A reader of some of the files that gives the columns of all: of what is in some, Spark would make others. It
        lists all files for that; of JSON it reads them.
        """
        found = self.footers()
        places = folders(self.path, self.format.lower()) if found is None else found[0]
        plain = places is not None and all(each.plain for each in places)
        merges = any(each.lower() == "mergeschema" for each in self.options)
        if found is None or merges or not plain or parquet.merged(found[1]) is None:
            reader = reader.schema(reader.load(list(self.path)).schema)
        return reader if plain else reader.option("basePath", self.path[0])

    def footers(self) -> tuple[list[Folder], list[FileMetaData]] | None:
        """The footers of Parquet files; None for what is none, or where only Spark can look."""
        if self.format.lower() != "parquet" or not self.path:
            return None
        places = folders(self.path, "parquet")
        if places is None:
            return None
        footers: list[FileMetaData] = []
        for place in places:
            _demand_content(place)
            found = self.caches.footers.of(place, place.files)
            if found is None:
                return None
            footers += found
        return places, footers

    def plain(self) -> tuple[list[tuple[Folder, Listed, FileMetaData]], dict[str, ColumnType]] | None:
        """The files with their footers and columns, if these are all that there is to know of the table."""
        found = None if self.sql or self.options else self.footers()
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

    def of_all_files(self, reader: DataFrameReader) -> tuple[DataFrameReader, Mapping[str, str]]:
        """A reader of the columns of all Parquet files: when they differ, Spark takes those of one for all. Beside it:
        expressions of times that Spark reads as numbers.
        """
        found = self.footers()
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
