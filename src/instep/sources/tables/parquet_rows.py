"""Rows of Parquet files as documents, read without Spark: a row group at a time, and text only where it is wanted."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.parquet import FileMetaData

from instep.domain.columns import ColumnType
from instep.domain.keys import Key, KeyValue
from instep.domain.rows import DocumentColumns
from instep.errors import Transient, UserError
from instep.sources.tables.arrow_rows import BATCH_ROWS, ArrowRows, batch_rows, types_of
from instep.sources.tables.folders import Folder, Listed, folders, shown
from instep.sources.tables.parquet import Footers
from instep.sources.tables.row_keys import values_at
from instep.sources.url_files import file_version


@dataclass(frozen=True)
class _File:
    folder: Folder
    listed: Listed
    footer: FileMetaData

    def schema(self) -> pa.Schema:
        return self.footer.schema.to_arrow_schema()

    def batches(self, group: int, columns: Sequence[str], rows: int) -> Iterator[pa.RecordBatch]:
        there = [name for name in columns if name in self.schema().names]
        try:
            with pq.ParquetFile(self.listed.path, filesystem=self.folder.fs, metadata=self.footer) as file:
                yield from file.iter_batches(rows, row_groups=[group], columns=there)
        except (OSError, pa.ArrowException) as error:
            where = shown(self.listed.path)
            if self.stands():
                raise UserError(f"it cannot be read: {error}", where=where) from None
            raise Transient(f"{where} has changed while it was read") from None

    def stands(self) -> bool:
        """Whether it is still the file that was listed."""
        try:
            info = self.folder.fs.info(self.listed.path)
            version = file_version(self.folder.fs, self.listed.path, info)
        except OSError:
            return False
        return (int(info.get("size") or 0), version) == self.listed[1:]

    def text_bytes(self, column: str) -> int:
        """About so many in a row."""
        groups = [self.footer.row_group(at) for at in range(self.footer.num_row_groups)]
        places = [at for at in range(self.footer.num_columns) if self.footer.schema.column(at).path == column]
        held = sum(group.column(at).total_uncompressed_size for group in groups for at in places)
        return int(held // max(1, self.footer.num_rows))


@dataclass(frozen=True)
class ParquetRows:
    """Implements `row_table.RowTable` for Parquet files under `path` (absolute, or URLs)."""

    path: tuple[str, ...]
    _footers: Footers = field(default_factory=Footers, init=False, repr=False, compare=False)

    @property
    def text(self) -> str:
        return ", ".join(map(shown, self.path))

    def key_types(self, columns: DocumentColumns) -> Sequence[ColumnType]:
        types = self._rows(self._files(), columns).types
        return [types[name] for name in columns.key]

    def listed(self, columns: DocumentColumns) -> Iterator[pa.RecordBatch]:
        files = self._files()
        rows = self._rows(files, columns)
        for file in files:
            for group in range(file.footer.num_row_groups):
                yield from _listed_group(file, group, rows)

    def count(self, columns: DocumentColumns) -> int:
        """The number of rows, deleted ones among them, by the footers."""
        return sum(each.footer.num_rows for each in self._files())

    def portions(self, columns: DocumentColumns, most: int) -> list[ParquetPortion]:
        """Row groups that lie together, of about so many rows, for tasks that list them."""
        files = self._files()
        rows = self._rows(files, columns)
        found: list[ParquetPortion] = []
        for each in files:
            counts = [each.footer.row_group(at).num_rows for at in range(each.footer.num_row_groups)]
            found += [ParquetPortion(rows, each.folder.fs, each.listed, groups) for groups in _together(counts, most)]
        return found

    def row_ranges(self, columns: DocumentColumns) -> list[_Group]:
        """All row groups: see `ScannedTable`."""
        files = self._files()
        rows = self._rows(files, columns)
        return [_Group(rows, each, group) for each in files for group in range(each.footer.num_row_groups)]

    def rows(self, columns: DocumentColumns, keys: Sequence[Key]) -> Iterator[pa.RecordBatch]:
        files = self._files()
        rows = self._rows(files, columns)
        wanted, first = rows.sets(keys), columns.key[0]
        values = values_at(keys)
        for file in files:
            count = batch_rows(file.text_bytes(columns.text))
            for group in _groups(file.footer, first, values):
                # Its keys are read first: they are small.
                if not any(map(len, rows.wanted(file.batches(group, columns.key, BATCH_ROWS), wanted))):
                    continue
                for batch in rows.wanted(file.batches(group, columns.named, count), wanted):
                    if batch.num_rows:
                        yield rows.read(rows.undeleted(batch))

    # -- what there is ------------------------------------------------------------------------------

    def _files(self) -> list[_File]:
        places = folders(self.path, "parquet")
        found: list[_File] = []
        for place in places or ():
            footers = self._footers.of(place, place.files)
            if footers is None:
                file = self._footers.unreadable(place, place.files)
                where = self.text if file is None else shown(file.path)
                raise UserError(
                    "it cannot be read as Parquet", where=where, hint="Check that it is whole, and may be read."
                )
            found += [_File(place, each, footer) for each, footer in zip(place.files, footers, strict=True)]
        if places is None or not found:
            raise UserError(
                "no Parquet files can be listed",
                where=self.text,
                hint="Check the path of the source. What only Spark can reach is read by it if the source has `sql`.",
            )
        return found

    def _rows(self, files: Sequence[_File], columns: DocumentColumns) -> ArrowRows:
        schemas = [(each.listed.path, each.schema()) for each in files]
        hint = "Cast it with `sql`: then Spark reads the table."
        return ArrowRows(columns, types_of(columns, schemas, self.text, hint=hint), self.text)


@dataclass(frozen=True)
class _Group:
    """A row group that is read from its beginning to its end: implements `scanned_table.RowRange`."""

    _rows: ArrowRows
    _file: _File
    _group: int

    def key_columns(self) -> Iterator[pa.RecordBatch]:
        columns = self._rows.columns
        for batch in self._file.batches(self._group, [*columns.key, *filter(None, [columns.deleted])], BATCH_ROWS):
            there = self._rows.undeleted(batch)
            keys = [self._rows.values(there, name) for name in columns.key]
            yield pa.RecordBatch.from_arrays(keys, list(columns.key))

    def rows(self, most: int) -> Iterator[pa.RecordBatch]:
        columns = self._rows.columns
        at_once = min(most, batch_rows(self._file.text_bytes(columns.text)))
        for batch in self._file.batches(self._group, columns.named, at_once):
            yield self._rows.read(self._rows.undeleted(batch))


@dataclass(frozen=True)
class ParquetPortion:
    """Row groups of a file, for a task: implements `row_documents.Portion`."""

    rows: ArrowRows
    fs: Any
    file: Listed
    groups: Sequence[int]

    def listed(self) -> Iterator[pa.RecordBatch]:
        try:
            footer = pq.read_metadata(self.file.path, filesystem=self.fs)
        except (OSError, pa.ArrowException) as error:
            raise Transient(f"{shown(self.file.path)} cannot be read any more: {error}") from None
        file = _File(Folder("", self.fs, ()), self.file, footer)
        if not file.stands():
            raise Transient(f"{shown(self.file.path)} has changed while it was read")
        for group in self.groups:
            yield from _listed_group(file, group, self.rows)


def _listed_group(file: _File, group: int, rows: ArrowRows) -> Iterator[pa.RecordBatch]:
    usual = file.text_bytes(rows.columns.text)
    # Text is read only where nothing else tells whether a row has changed.
    if _versions_are_known(file.footer.row_group(group), rows.columns):
        for batch in file.batches(group, rows.marks, BATCH_ROWS):
            yield rows.listed(rows.undeleted(batch), usual)
    else:
        for batch in file.batches(group, rows.columns.named, batch_rows(usual)):
            yield rows.listed(rows.undeleted(batch), None)


def _together(rows: Sequence[int], most: int) -> Iterator[list[int]]:
    """Places that follow each other, of at most so many rows if there is more than one."""
    here: list[int] = []
    for at, count in enumerate(rows):
        if here and sum(rows[each] for each in here) + count > most:
            yield here
            here = []
        here.append(at)
    if here:
        yield here


def _groups(footer: FileMetaData, column: str, values: Sequence[KeyValue]) -> Iterator[int]:
    """Row groups that may have one of the values, which are in order."""
    places = [at for at in range(footer.num_columns) if footer.schema.column(at).path == column]
    for group in range(footer.num_row_groups):
        statistics = footer.row_group(group).column(places[0]).statistics if places else None
        if not (statistics and statistics.has_min_max) or not _outside(values, statistics):
            yield group


def _versions_are_known(group: pq.RowGroupMetaData, columns: DocumentColumns) -> bool:
    """Whether the statistics prove that all rows have a version."""
    places = [at for at in range(group.num_columns) if group.column(at).path_in_schema == columns.version]
    statistics: Any = group.column(places[0]).statistics if places else None
    return bool(statistics and statistics.has_null_count and not statistics.null_count)


def _outside(values: Sequence[KeyValue], statistics: pq.Statistics) -> bool:
    """Whether none of the values, which are in order, is between the least and the greatest. Only of types that compare
    in the statistics as they do here.
    """
    try:
        least, most = _in_utc(statistics.min), _in_utc(statistics.max)
    except UnicodeDecodeError:
        return False  # A text of other bytes is among them: nothing can be told of the rest.
    plain = type(least) is type(values[0]) and isinstance(least, int | str | date)
    if not plain or isinstance(least, bool):
        return False
    ordered: Any = values
    at = bisect_left(ordered, least)
    return at == len(ordered) or ordered[at] > most


def _in_utc(value: Any) -> Any:
    """A moment of a column without a time zone, as keys have it; another value as it is."""
    return value.replace(tzinfo=UTC) if isinstance(value, datetime) and value.tzinfo is None else value
