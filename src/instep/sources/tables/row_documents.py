"""Documents that are rows of a table, and the port of such tables, read without Spark."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from instep.arrow.order import sorted_by_first
from instep.document_state.columns import ListedColumns, listed_schema
from instep.domain.columns import ColumnType, TypeName
from instep.domain.keys import Key
from instep.domain.manifest import SourceDocument
from instep.domain.rows import NULL, DocumentColumns, RowColumns, Selection, Window
from instep.domain.table_versions import CHANGED, Between, TableVersion
from instep.errors import UserError
from instep.sources.document_source import Answer, Content, Listing, Row, Unreadable, Vanished
from instep.sources.local_files import check_size
from instep.sources.tables.table_source import TableSource

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa
    from pyspark.sql import DataFrame


#: Assumed bytes of text in a row whose size is unknown: only the work is estimated by it.
ROW_BYTES = 2_000
#: Documents that are Python objects at once, where their columns are made.
_AT_ONCE = 1_000

#: The version of a document that cannot be read: what `RowDocuments._flaw` says.
_FLAW = re.compile(r"[\d,]+ rows? ha(?:s|ve) (?:a null in the key|this key) ")


class RowTable(Protocol):
    """A table in which `columns` say what makes a document of a row. Deleted rows are not there. What is wrong with it
    is a `UserError`; `Transient` when it changed while it was read.
    """

    @property
    def text(self) -> str:
        """The place of the table, for people; without secrets."""

    def key_types(self, columns: DocumentColumns) -> Sequence[ColumnType]:
        """The types of the columns of the key, as they come."""

    def listed(self, columns: DocumentColumns) -> Iterator[pa.RecordBatch]:
        """List all rows: the columns of the key; the version as text; the size (int64; negative if it is an
        estimate).
        """

    def rows(self, columns: DocumentColumns, keys: Sequence[Key]) -> Iterator[pa.RecordBatch]:
        """Read the rows with these keys (of the first columns, at least), and perhaps others, a few megabytes at once:
        the columns of the key; the version as it is stored, and the title, as far as there are columns for them; the
        text; the declared columns as they are stored. Title and text as bytes.
        """


class Portion(Protocol):
    """Some rows of a table. Picklable: a task lists them."""

    def listed(self) -> Iterator[pa.RecordBatch]:
        """As `RowTable.listed`."""


@runtime_checkable
class CountedTable(RowTable, Protocol):
    """A table whose rows tasks can list."""

    def count(self, columns: DocumentColumns) -> int:
        """The number of rows, about, without reading them."""


@runtime_checkable
class FramedTable(CountedTable, Protocol):
    """A table that only Spark reads, and so lists in its tasks."""

    def frame(self, columns: DocumentColumns) -> DataFrame:
        """All rows, in columns of which `spark_rows.rows_of` makes what `listed` has."""

    def told(self) -> AbstractContextManager[None]:
        """Errors of Spark while it reads the table are told as errors of its source, without secrets."""


@runtime_checkable
class PortionedTable(CountedTable, Protocol):
    """A table that tasks list by themselves, each some of its rows."""

    def portions(self, columns: DocumentColumns, most: int) -> Sequence[Portion]:
        """All rows, in portions of so many, about."""


@runtime_checkable
class LakeTable(RowTable, Protocol):
    """A table whose versions tell what has changed. Picklable: tasks read it."""

    @property
    def unit(self) -> str:
        """The word for one of its versions."""

    def version(self) -> TableVersion:
        """The version that it has now."""

    def demand_past(self, before: TableVersion) -> None:
        """Raises `Unfollowable` where this version is none of its past."""

    def size(self) -> int:
        """The number of rows, about, without reading them."""

    def note(self) -> str | None:
        """Something that a user may want to know of how its changes are read."""

    def changed(self, columns: DocumentColumns, between: Between) -> Iterator[pa.RecordBatch]:
        """The changes of rows: the columns of the key; the version as text; the size (see `RowTable.listed`); and the
        `order` (int64) of the change: the greatest one of a key is its last, even for a row that is gone, odd for one
        that is there; and by how many `rows` (int64) of this key the table has more. Raises `Unfollowable`.
        """

    def rows_between(self, columns: DocumentColumns, keys: Sequence[Key], between: Between) -> Iterator[pa.RecordBatch]:
        """Read rows that are there after these changes: as `RowTable.rows`, or as they are now if these versions are
        gone.
        """


def selection(keys: Sequence[Key] = ()) -> Selection:
    """Rows that are not deleted; with these keys."""
    return Selection(window=Window(None, 0), keys=tuple(keys))


def row_columns(columns: DocumentColumns, keys: Sequence[Key] = ()) -> RowColumns:
    """Those that are asked for: with keys, as many of the columns of the key as they have."""
    named = columns.key[: len(keys[0].values)] if keys else columns.key
    return RowColumns(named, deleted=columns.deleted)


def demand_types(columns: DocumentColumns, types: Mapping[str, ColumnType], where: str) -> None:
    """Check the types of columns. Raises `UserError` for a column that cannot be what it is named for."""
    for name in columns.key:
        if not types[name].keys:
            raise UserError(f"{name!r} is {types[name]}, and cannot be in a key", where=where)
    for text in filter(None, (columns.text, columns.title)):
        if types[text].name not in (TypeName.STRING, TypeName.BYTES):
            hint = "Make text of it in `sql`."
            raise UserError(f"{text!r} is {types[text]}, and has to be text", where=where, hint=hint)
    flags = (TypeName.BOOL, TypeName.INT32, TypeName.INT64)
    if columns.deleted and types[columns.deleted].name not in flags:
        raise UserError(f"{columns.deleted!r} is {types[columns.deleted]}, and has to be a flag", where=where)


def _listed(rows: pa.Table, versions: Any, flaws: Any) -> ListedColumns:
    import pyarrow as pa

    return ListedColumns(pa.Table.from_arrays([rows["uri"], rows["size"], versions, flaws], schema=listed_schema()))


def _told(documents: Iterable[SourceDocument]) -> tuple[Any, Any]:
    """The URIs of documents, and what the listing says is wrong with them: in columns, a few at a time."""
    import pyarrow as pa

    waiting, uris, flaws = iter(documents), [], []
    while some := list(islice(waiting, _AT_ONCE)):
        uris.append(pa.array([each.uri for each in some], pa.string()))
        flaws.append(pa.array([each.locator for each in some], pa.string()))
    return pa.chunked_array(uris, pa.string()), pa.chunked_array(flaws, pa.string())


def sound(locators: Any) -> Any:
    """Flags of the documents without a flaw: a locator says it, or between which versions of the table it changed."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.or_(pc.equal(locators, pa.scalar("")), pc.starts_with(locators, CHANGED))


class ChangedRows(NamedTuple):
    """Rows that were changed between two versions of a table, as a listing. `uris` are those of all their documents:
    the table has so many `more` rows of each, and after the last change the row is `there`.
    """

    listing: Listing
    uris: pa.Array[Any]
    more: npt.NDArray[np.int64]
    there: npt.NDArray[np.bool_]


class FoundRows(NamedTuple):
    """Rows of some documents that were asked for: `at` says which; `places` has for each of them the place of its row
    among all, -1 where there is none, and less where there are more: minus so many. `rows` (`said_schema`) are those of
    documents that have one.
    """

    at: slice
    places: npt.NDArray[np.int64]
    rows: pa.RecordBatch


class Member(NamedTuple):
    """A table that has rows of documents: as it is listed and read without Spark where that can be; for Spark; and its
    columns.
    """

    table: RowTable
    frames: TableSource | None
    columns: DocumentColumns


@dataclass(frozen=True)
class RowDocuments:
    """Implements `sources.document_source.DocumentSource`. `table` lists and reads without Spark where that can be;
    `frames` is the same table for Spark. Tasks of Spark are given the rows: both stay behind. Without `frames`, tasks
    read the table.
    """

    entity: str
    columns: DocumentColumns
    table: RowTable
    frames: TableSource | None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "table": None, "frames": None} if self.frames else self.__dict__

    @property
    def text(self) -> str:
        """The place of the documents, for people; without secrets."""
        return self.table.text

    def list(self, progress: Callable[[int], None] | None = None) -> Listing:
        """Everything, sorted by URI. Rows that share a key, or have none, are one document that cannot be read."""
        import pyarrow as pa

        self.check()
        found, rows = [], 0
        for number, member in enumerate(self.members):
            for batch in member.table.listed(member.columns):
                found.append(self.named(batch, number))
                rows += batch.num_rows
                if progress:
                    progress(rows)
        listed = [pa.Table.from_batches(found, named_schema())]
        found.clear()
        documents = self.documents(sorted_by_first(listed))
        return Listing(documents, [], orphans=documents.orphans)

    @property
    def lake(self) -> LakeTable | None:
        """The table, if its versions tell what has changed."""
        return self.table if isinstance(self.table, LakeTable) else None

    def files_digest(self) -> str | None:
        """A digest that differs whenever documents may have changed; None if files do not tell that."""
        digests = [each.frames.files_digest() if each.frames else None for each in self.members]
        known = [each for each in digests if each is not None]
        if len(known) < len(digests):
            return None
        declared = repr([each.columns for each in self.members])
        return hashlib.sha256("\0".join([*known, declared]).encode()).hexdigest()[:32]

    def changed(self, lake: LakeTable, between: Between) -> ChangedRows:
        """The documents that were changed between two versions, and those that were deleted. Raises `Unfollowable`."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        from instep.sources.tables.lakes import is_there, last_changes

        found: list[pa.RecordBatch] = []
        orders: list[Any] = []
        numbers: list[Any] = []
        for batch in lake.changed(self.columns, between):
            orders.append(batch.column("order"))
            numbers.append(batch.column("rows"))
            found.append(self.named(batch.select(batch.schema.names[:-2])))
        rows = pa.Table.from_batches(found, named_schema()).combine_chunks()
        order: Any = pa.chunked_array(orders, pa.int64()).combine_chunks()
        last = last_changes(rows["uri"].combine_chunks(), order)
        there = is_there(order)
        gone: Any = pc.unique(rows["uri"].filter(pc.and_(last, pc.invert(there))))
        documents = self.documents(sorted_by_first([rows.filter(pc.and_(last, there))])).table
        locators = pc.if_else(pc.equal(documents["locator"], pa.scalar("")), between.locator, documents["locator"])
        at = documents.schema.get_field_index("locator")
        listed = ListedColumns(documents.set_column(at, documents.schema.field(at), locators))
        coded: Any = rows["uri"].combine_chunks().dictionary_encode()
        codes, uris = coded.indices.to_numpy(), coded.dictionary
        more = np.zeros(len(uris), np.int64)
        np.add.at(more, codes, pa.chunked_array(numbers, pa.int64()).to_numpy())
        stays = np.zeros(len(uris), np.bool_)
        stays[codes[pc.and_(last, there).to_numpy(zero_copy_only=False)]] = True
        return ChangedRows(Listing(listed, [], gone.to_pylist(), exhaustive=False), uris, more, stays)

    @property
    def members(self) -> tuple[Member, ...]:
        """The tables that have rows of these documents; the first one that has a row of each."""
        return (Member(self.table, self.frames, self.columns),)

    def check(self) -> None:
        """Check that the tables fit each other, before they are listed. Raises `UserError` if they do not."""

    def counted(self) -> int | None:
        """The number of all rows, about, without reading them; None where tasks cannot list them."""
        tables = [(each.table, each.columns) for each in self.members]
        counts = [table.count(columns) for table, columns in tables if isinstance(table, CountedTable)]
        return sum(counts) if len(counts) == len(tables) else None

    def named(self, batch: pa.RecordBatch, member: int = 0) -> pa.RecordBatch:
        """Rows as a table of the `members` lists them, with the URIs that their keys give them (`named_schema`)."""
        from instep.sources.tables.rows import row_uris

        *keys, versions, sizes = batch.columns
        return batch.from_arrays([row_uris(self.entity, keys), versions, sizes], schema=named_schema())

    def documents(self, ordered: pa.Table) -> ListedColumns:
        """The documents of rows (`named_schema`). All rows with one URI are in it, and lie together."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        uris: Any = ordered["uri"]
        other: Any = pc.not_equal(uris[1:], uris[:-1])
        nulls = pc.match_substring(uris, NULL)
        flaws: Any = pa.repeat("", ordered.num_rows)
        if pc.all(other, min_count=0).as_py() and not pc.any(nulls, min_count=0).as_py():  # As a rule.
            return _listed(ordered, ordered["version"], flaws)
        starts = np.append(0, np.flatnonzero(other.to_numpy()) + 1) if len(uris) else np.empty(0, np.int64)
        counts = np.diff(starts, append=len(uris))
        if len(starts) < len(uris):
            ordered = ordered.take(pa.array(starts))
        null = pc.match_substring(ordered["uri"], NULL).to_numpy()
        flawed = null | (counts > 1)
        said = [self._flaw(int(counts[at]), null=bool(null[at])) for at in np.flatnonzero(flawed)]
        flaws = pc.replace_with_mask(flaws[: ordered.num_rows], pa.array(flawed), pa.array(said))
        return _listed(ordered, pc.if_else(pa.array(flawed), flaws, ordered["version"]), flaws)

    def _flaw(self, count: int, *, null: bool) -> str:
        named = ", ".join(self.columns.key)
        if null:
            return f"{count:,} row{'s have' if count > 1 else ' has'} a null in the key ({named})"
        return f"{count:,} rows have this key ({named})"

    def contents(self, documents: Iterable[SourceDocument], *, max_bytes: int) -> Iterator[Answer]:
        """Read all of these documents in one look at the table; its rows wait in a file."""
        uris, flaws = _told(documents)
        for found in self.looked_up(uris, flaws):
            read = self.contents_of(found.rows, max_bytes=max_bytes)
            said = flaws[found.at.start : found.at.stop].to_pylist()
            for place, flaw in zip(found.places.tolist(), said, strict=True):
                content = next(read) if place >= 0 else None
                flawed = flaw and not flaw.startswith(CHANGED)
                yield content if content is not None and not flawed else self._absent(place, flaw)

    def looked_up(self, uris: pa.ChunkedArray[Any], flaws: pa.ChunkedArray[Any]) -> Iterator[FoundRows]:
        """The rows of documents with these URIs, a few megabytes at once, in one look at the table. `flaws`: what the
        listing knows to be wrong with each, or between which versions of the table it changed, or nothing.
        """
        from instep.sources.tables.rows import RowSpool

        with RowSpool(self.entity, self.columns) as spool:
            spool.keep(self._rows_of(uris, flaws), uris.filter(sound(flaws)))
            places = spool.places(uris)
            for some in spool.portions(places):
                here = places[some]
                yield FoundRows(some, here, spool.rows(here[here >= 0]))

    def _rows_of(self, uris: pa.ChunkedArray[Any], locators: pa.ChunkedArray[Any]) -> Iterator[pa.RecordBatch]:
        """The rows of documents without a flaw, and perhaps others."""
        import pyarrow as pa
        import pyarrow.compute as pc

        from instep.sources.tables.rows import row_uris

        lake = self.lake
        known: Any = pc.unique(locators.filter(sound(locators)))
        for locator in known.to_pylist():
            asked = uris.filter(pc.equal(locators, pa.scalar(locator)))
            if keys := self._keys(asked):
                if locator and lake:
                    rows = lake.rows_between(self.columns, keys, Between.of(locator))
                else:
                    rows = self.table.rows(self.columns, keys)
                for batch in rows:
                    # Those of another version than is wanted may come as well.
                    named = row_uris(self.entity, batch.columns[: len(self.columns.key)])
                    yield batch.filter(pc.is_in(named, value_set=asked)) if lake else batch

    def absent(self, places: npt.NDArray[np.int64], flaws: Sequence[str | None]) -> Iterator[Answer]:
        """Answers for documents without a row that can be read: see `FoundRows.places`."""
        return map(self._absent, places.tolist(), flaws)

    def _absent(self, place: int, flaw: str | None) -> Answer:
        if flaw and not flaw.startswith(CHANGED):
            return Unreadable(flaw)
        return Vanished() if place == -1 else Unreadable(self._flaw(-place, null=False))

    def _keys(self, uris: pa.ChunkedArray[Any]) -> Sequence[Key]:
        from instep.sources.tables.row_keys import row_keys

        return row_keys(uris, self.table.key_types(self.columns)) if len(uris) else ()

    def said(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Make rows of `said_schema` of rows whose last columns are version, title, text and declared ones."""
        from instep.sources.tables.rows import said_by

        return said_by(rows, self.columns)

    def contents_of(self, said: pa.RecordBatch, *, max_bytes: int) -> Iterator[Answer]:
        """Rows of `said_schema` as documents."""
        from instep.sources.tables.rows import FACTS, WRONG

        declared = bool(self.columns.columns)
        for at, (version, title, text) in enumerate(zip(*said.columns[:3], strict=True)):
            row = Row(said, at, said[WRONG][at].as_py(), said[FACTS][at].as_py()) if declared else None
            yield self._content(version.as_py(), title.as_py(), text.as_py(), max_bytes, row)

    def _content(
        self, version: str, title: bytes | None, text: bytes | None, max_bytes: int, row: Row | None
    ) -> Answer:
        """A text that is null is empty."""
        data = text or b""
        try:
            check_size(len(data), max_bytes)
        except Unreadable as answer:
            return answer
        shown = (title or b"").decode(errors="replace") if self.columns.title else None
        return Content(data, len(data), version, shown, text=True, fields=row)


def is_flaw(version: str) -> bool:
    """Whether a document of this version is none, since rows share a key, or have none."""
    return _FLAW.match(version) is not None


def named_schema() -> pa.Schema:
    import pyarrow as pa

    columns: list[tuple[str, pa.DataType]] = [("uri", pa.string()), ("version", pa.string()), ("size", pa.int64())]
    return pa.schema(columns)
