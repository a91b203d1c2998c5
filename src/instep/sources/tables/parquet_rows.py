"""Rows of Parquet files as documents, read without Spark: a row group at a time, and text only where it is wanted."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import reduce
from operator import and_
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.parquet import FileMetaData

from instep.arrow_sets import ValueSet
from instep.arrow_types import arrow_type
from instep.arrow_values import OtherType, demand_type
from instep.domain.columns import BOOL, BYTES, DATE, INT64, MAX_PRECISION, STRING, TIMESTAMP, ColumnType, decimal_type
from instep.domain.document_columns import DeclaredColumn
from instep.domain.keys import Key, KeyValue
from instep.domain.rows import DocumentColumns
from instep.errors import Transient, UserError
from instep.sources.tables.folders import Folder, Listed, folders, shown
from instep.sources.tables.parquet import Footers
from instep.sources.tables.row_documents import demand_types
from instep.sources.tables.rows import content_versions, declared_values, versions_of
from instep.sources.tables.table_source import demand
from instep.sources.url_files import file_version

#: Bytes of text and rows in a batch, about.
_BATCH_BYTES = 4 << 20
_BATCH_ROWS = 16_384


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
        types = self._types(self._files(), columns)
        return [types[name] for name in columns.key]

    def listed(self, columns: DocumentColumns) -> Iterator[pa.RecordBatch]:
        files = self._files()
        types = self._types(files, columns)
        for file in files:
            for group in range(file.footer.num_row_groups):
                yield from self._listed_group(file, group, columns, types)

    def count(self, columns: DocumentColumns) -> int:
        """The number of rows, deleted ones among them, by the footers."""
        return sum(each.footer.num_rows for each in self._files())

    def portions(self, columns: DocumentColumns, most: int) -> list[ParquetPortion]:
        """Row groups that lie together, of about so many rows, for tasks that list them."""
        files = self._files()
        types = self._types(files, columns)
        found: list[ParquetPortion] = []
        for each in files:
            rows = [each.footer.row_group(at).num_rows for at in range(each.footer.num_row_groups)]
            found += [
                ParquetPortion(self, each.folder.fs, each.listed, groups, columns, types)
                for groups in _together(rows, most)
            ]
        return found

    def _listed_group(
        self, file: _File, group: int, columns: DocumentColumns, types: Mapping[str, ColumnType]
    ) -> Iterator[pa.RecordBatch]:
        usual = file.text_bytes(columns.text)
        # Text is read only where nothing else tells whether a row has changed.
        if _versions_are_known(file.footer.row_group(group), columns):
            known = [*columns.key, *filter(None, (columns.version, columns.deleted))]
            for batch in file.batches(group, known, _BATCH_ROWS):
                yield self._listed(_undeleted(batch, columns), columns, types, usual)
        else:
            for batch in file.batches(group, columns.named, _batch_rows(usual)):
                yield self._listed(_undeleted(batch, columns), columns, types, None)

    def _listed(
        self, rows: pa.RecordBatch, columns: DocumentColumns, types: Mapping[str, ColumnType], usual: int | None
    ) -> pa.RecordBatch:
        """`usual`: so many bytes a text has, about, where it has not been read."""
        keys = [self._column(rows, name, types) for name in columns.key]
        texts: Any = pa.nulls(rows.num_rows, pa.binary()) if usual is not None else _bytes(rows, columns.text)
        titles = _bytes(rows, columns.title) if columns.title and usual is None else None
        facts = None
        if columns.columns and usual is None:
            facts = declared_values([_stored(rows, each.of) for each in columns.columns], columns.columns).facts
        if columns.version is None:
            versions = content_versions(titles, texts, facts)
        else:
            versions = versions_of(_typed(rows, columns.version, types), titles, texts, facts)
        if usual is None:
            sizes: Any = pc.fill_null(pc.binary_length(texts), 0).cast(pa.int64())
        else:
            sizes = pa.repeat(pa.scalar(-max(1, usual), pa.int64()), rows.num_rows)
        return pa.RecordBatch.from_arrays([*keys, versions, sizes], _names(len(keys) + 2))

    def rows(self, columns: DocumentColumns, keys: Sequence[Key]) -> Iterator[pa.RecordBatch]:
        files = self._files()
        types = self._types(files, columns)
        values = {name: sorted({key.values[at] for key in keys}) for at, name in enumerate(columns.key)}
        wanted = {name: ValueSet(pa.array(each, arrow_type(types[name]))) for name, each in values.items()}
        first = columns.key[0]
        for file in files:
            rows = _batch_rows(file.text_bytes(columns.text))
            for group in _groups(file.footer, first, values[first]):
                # Its keys are read first: they are small.
                if not any(map(len, self._wanted(file.batches(group, columns.key, _BATCH_ROWS), types, wanted))):
                    continue
                for batch in self._wanted(file.batches(group, columns.named, rows), types, wanted):
                    if batch.num_rows:
                        yield self._row_batch(_undeleted(batch, columns), columns, types)

    def _wanted(
        self,
        batches: Iterable[pa.RecordBatch],
        types: Mapping[str, ColumnType],
        values: Mapping[str, ValueSet],
    ) -> Iterator[pa.RecordBatch]:
        """Rows that have one of these values in each column, and perhaps others."""
        for batch in batches:
            chosen = [each.contains(self._column(batch, name, types)) for name, each in values.items()]
            yield batch.filter(pa.array(reduce(and_, chosen)))

    def _row_batch(
        self, batch: pa.RecordBatch, columns: DocumentColumns, types: Mapping[str, ColumnType]
    ) -> pa.RecordBatch:
        found = [self._column(batch, name, types) for name in columns.key]
        found += [_typed(batch, columns.version, types)] if columns.version else []
        found += [_bytes(batch, name) for name in (columns.title, columns.text) if name]
        found += [_stored(batch, each.of) for each in columns.columns]
        return pa.RecordBatch.from_arrays(found, _names(len(found)))

    def _column(self, batch: pa.RecordBatch, name: str, types: Mapping[str, ColumnType]) -> pa.Array[Any]:
        try:
            return _typed(batch, name, types)
        except pa.ArrowInvalid as error:
            raise UserError(f"{name!r} cannot be read: {error}", where=self.text) from None

    # -- what there is ------------------------------------------------------------------------------

    def _files(self) -> list[_File]:
        places = folders(self.path, "parquet")
        found: list[_File] = []
        for place in places or ():
            footers = self._footers.of(place, place.files)
            if footers is None:
                raise UserError("its files cannot be read as Parquet", where=self.text)
            found += [_File(place, each, footer) for each, footer in zip(place.files, footers, strict=True)]
        if places is None or not found:
            raise UserError(
                "no Parquet files can be listed",
                where=self.text,
                hint="Check the path of the source. What only Spark can reach is read by it if the source has `sql`.",
            )
        return found

    def _types(self, files: Sequence[_File], columns: DocumentColumns) -> dict[str, ColumnType]:
        """The types of the named columns; one that a file has not is null there. (Of one in which all is null, pandas
        writes no type.)
        """
        found: dict[str, ColumnType] = {}
        untyped: set[str] = set()
        own, there = replace(columns, columns=()).named, set[str]()
        for each in files:
            for stored in each.schema():
                there.add(stored.name)
                for column in columns.columns:
                    if column.of == stored.name:
                        self._demand_type(column, stored)
                if stored.name not in own:
                    continue
                if pa.types.is_null(stored.type):
                    untyped.add(stored.name)
                    continue
                kind = _kind(stored.type)
                if kind is None or found.setdefault(stored.name, kind) != kind:
                    raise UserError(
                        f"{stored.name!r} is {stored.type} in {each.listed.path}, which cannot be used here",
                        where=self.text,
                        hint="Cast it with `sql`: then Spark reads the table.",
                    )
        found |= {name: BOOL if name == columns.deleted else STRING for name in untyped - found.keys()}
        demand(columns.named, [*found, *there], self.text)
        demand_types(columns, found, self.text)
        return found

    def _demand_type(self, column: DeclaredColumn, stored: pa.Field[Any]) -> None:
        try:
            demand_type(column.column, stored.type)
        except OtherType as error:
            hint = "Declare another type, or cast it with `sql`: then Spark reads the table."
            raise UserError(str(error), where=self.text, hint=hint) from None


@dataclass(frozen=True)
class ParquetPortion:
    """Row groups of a file, for a task: implements `row_documents.Portion`."""

    table: ParquetRows
    fs: Any
    file: Listed
    groups: Sequence[int]
    columns: DocumentColumns
    types: Mapping[str, ColumnType]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "table": ParquetRows(self.table.path)}  # Without the footers of all files.

    def listed(self) -> Iterator[pa.RecordBatch]:
        try:
            footer = pq.read_metadata(self.file.path, filesystem=self.fs)
        except (OSError, pa.ArrowException) as error:
            raise Transient(f"{shown(self.file.path)} cannot be read any more: {error}") from None
        file = _File(Folder("", self.fs, ()), self.file, footer)
        if not file.stands():
            raise Transient(f"{shown(self.file.path)} has changed while it was read")
        for group in self.groups:
            yield from self.table._listed_group(file, group, self.columns, self.types)


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


def _kind(stored: pa.DataType) -> ColumnType | None:  # noqa: PLR0911 - one return for each type
    """Integers are of one type, whatever their length: it may differ between files."""
    if pa.types.is_dictionary(stored):
        return _kind(stored.value_type)
    if pa.types.is_integer(stored):
        return INT64
    if pa.types.is_string(stored) or pa.types.is_large_string(stored):
        return STRING
    if pa.types.is_binary(stored) or pa.types.is_large_binary(stored):
        return BYTES
    if pa.types.is_timestamp(stored):
        return TIMESTAMP
    if pa.types.is_decimal(stored) and 0 <= stored.scale <= stored.precision <= MAX_PRECISION:
        return decimal_type(stored.precision, stored.scale)
    return {pa.bool_(): BOOL, pa.date32(): DATE}.get(stored)


def _typed(batch: pa.RecordBatch, name: str, types: Mapping[str, ColumnType]) -> pa.Array[Any]:
    kind: Any = arrow_type(types[name])
    if name not in batch.schema.names:
        nothing: pa.Array[Any] = pa.nulls(batch.num_rows, kind)
        return nothing
    values: pa.Array[Any] = batch.column(name)
    if pa.types.is_timestamp(values.type) and values.type.tz is None:
        values = values.cast(pa.timestamp(values.type.unit, "UTC"))
    found: pa.Array[Any] = values.cast(kind, safe=not pa.types.is_timestamp(kind))
    return found


def _stored(batch: pa.RecordBatch, name: str) -> pa.Array[Any]:
    return batch.column(name) if name in batch.schema.names else pa.nulls(batch.num_rows)


def _bytes(batch: pa.RecordBatch, name: str) -> pa.Array[Any]:
    if name not in batch.schema.names:
        return pa.nulls(batch.num_rows, pa.binary())
    values = batch.column(name)
    plain = values.dictionary_decode() if isinstance(values, pa.DictionaryArray) else values
    return plain.cast(pa.binary())


def _undeleted(batch: pa.RecordBatch, columns: DocumentColumns) -> pa.RecordBatch:
    if columns.deleted is None or columns.deleted not in batch.schema.names:
        return batch
    gone: Any = batch.column(columns.deleted).cast(pa.bool_()).fill_null(False)
    return batch.filter(pc.invert(gone))


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
        least, most = statistics.min, statistics.max
    except UnicodeDecodeError:
        return False  # A text of other bytes is among them: nothing can be told of the rest.
    plain = type(least) is type(values[0]) and isinstance(least, int | str | date)
    if not plain or isinstance(least, bool):
        return False
    ordered: Any = values
    at = bisect_left(ordered, least)
    return at == len(ordered) or ordered[at] > most


def _batch_rows(text_bytes: int) -> int:
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(1, text_bytes)))


def _names(count: int) -> list[str]:
    return [f"c{at}" for at in range(count)]
