"""Metadata of Parquet files without Spark: their columns and highest watermarks, from their footers."""

from __future__ import annotations

import json
import os
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.parquet import FileMetaData

from instep.arrow.types import arrow_type
from instep.domain.columns import (
    BOOL,
    BYTES,
    DATE,
    FLOAT32,
    FLOAT64,
    INT32,
    INT64,
    MAX_PRECISION,
    STRING,
    TIMESTAMP,
    Column,
    ColumnType,
    decimal_type,
    widens,
)
from instep.domain.refs import Scope, outside
from instep.domain.rows import RowColumns, Selection, Window
from instep.errors import UserError
from instep.sources import local_files
from instep.sources.tables.folders import Folder, Listed
from instep.sources.tables.predicates import within as within_namespaces
from instep.sources.tables.spark_types import quoted

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

#: Footers are read in so many threads: it is waiting, mostly.
_THREADS = 16

_TYPES: Mapping[pa.DataType, ColumnType] = {
    pa.bool_(): BOOL,
    pa.int8(): INT32,
    pa.int16(): INT32,
    pa.int32(): INT32,
    pa.int64(): INT64,
    pa.float32(): FLOAT32,
    pa.float64(): FLOAT64,
    pa.string(): STRING,
    pa.large_string(): STRING,
    pa.binary(): BYTES,
    pa.large_binary(): BYTES,
    pa.date32(): DATE,
    pa.uint8(): INT32,
    pa.uint16(): INT32,
    pa.uint32(): INT64,
    pa.uint64(): decimal_type(20, 0),
    # Nothing but nulls, kept as numbers.
    pa.null(): INT32,
}
#: A count of nanoseconds since 1970 as a time in microseconds, with a zone and without.
_MOMENT = "timestamp_micros({0} DIV 1000)"
_WALL = (
    "TIMESTAMP_NTZ '1970-01-01 00:00:00' + make_dt_interval(0, 0, 0, CAST({0} DIV 1000 AS DECIMAL(20, 0)) / 1000000)"
)
_MICROSECONDS = {"milliseconds": (1000, 1), "microseconds": (1, 1), "nanoseconds": (1, 1000)}


@dataclass(slots=True)
class Footers:
    """The footers of all files of a table. A file is read once, for as long as it stays what it is."""

    _known: dict[tuple[Listed, str], FileMetaData] = field(default_factory=dict)

    def of(self, folder: Folder, files: Sequence[Listed]) -> list[FileMetaData] | None:
        """None when one of them cannot be read from here. (It may be that Spark can.)"""
        try:
            # A listing does not tell a file from another one that was put in its place with its times (`cp -p`).
            asked = [(each, _identity(folder, each)) for each in files]
            missing = [each for each in asked if each not in self._known]
            with ThreadPoolExecutor(_THREADS) as pool:
                read = list(pool.map(lambda each: pq.read_metadata(each[0].path, filesystem=folder.fs), missing))
        except (OSError, ValueError):
            return None
        known = self._known | dict(zip(missing, read, strict=True))
        # One assignment: another thread sees either all or nothing of it. What is gone is forgotten.
        self._known = {each: known[each] for each in asked}
        return [self._known[each] for each in asked]

    def unreadable(self, folder: Folder, files: Sequence[Listed]) -> Listed | None:
        """The first of the files that cannot be read from here, if there is one."""
        return next((each for each in files if self.of(folder, [each]) is None), None)


def _identity(folder: Folder, file: Listed) -> str:
    return local_files.identity(os.stat(file.path)) if folder.is_local else ""  # noqa: PTH116 - may be no text


def alike(footers: Sequence[FileMetaData]) -> bool:
    """Whether all files have the same columns. (Of the footer; notes that a writer leaves beside them are its own.)"""
    return all(each.schema.equals(footers[0].schema) for each in footers)


def columns_of(footer: FileMetaData) -> tuple[Column, ...] | None:
    """The columns as Spark would read them; None when only Spark can tell."""
    try:
        schema = footer.schema.to_arrow_schema()
    except (pa.ArrowException, NotImplementedError):
        return None
    found = [(each.name, kind_of(each.type)) for each in schema]
    columns = tuple(Column(name, kind) for name, kind in found if kind is not None)
    return columns if len(columns) == len(found) == len({name.lower() for name, _ in found}) else None


def kind_of(kind: Any) -> ColumnType | None:
    if pa.types.is_timestamp(kind):
        return TIMESTAMP
    if pa.types.is_decimal(kind) and 0 <= kind.scale <= kind.precision <= MAX_PRECISION:
        return decimal_type(kind.precision, kind.scale)
    if pa.types.is_dictionary(kind):
        return kind_of(kind.value_type)
    if pa.types.is_nested(kind):
        return STRING
    if pa.types.is_fixed_size_binary(kind):
        return BYTES
    return _TYPES.get(kind)


def merged(footers: Sequence[FileMetaData]) -> StructType | None:
    """The columns of all files, each in the widest type that it has, as Spark is to read them; None when only Spark can
    say.

    (Spark itself takes the columns of one file for those of all, refuses to merge `int` and `bigint`, and reads no
    times in nanoseconds.)
    """
    found: dict[str, tuple[ColumnType, pa.DataType]] = {}
    for footer in footers:
        columns = columns_of(footer)
        if columns is None:
            return None
        for column, stored in zip(columns, footer.schema.to_arrow_schema(), strict=True):
            here = (column.type, stored.type)
            there = found.setdefault(column.name, here)
            if _apart(there[1], here[1]):
                return None
            if widens(there[0], here[0]):
                found[column.name] = here
            elif there[0] != here[0] and not widens(here[0], there[0]):
                return None
    kinds = [stored for _, stored in found.values()]
    structures = [each for each in kinds if pa.types.is_nested(each)]
    if structures and (
        any(_has(each, _counts_nanoseconds) for each in structures) or not any(map(_counts_nanoseconds, kinds))
    ):
        return None
    return _in_spark(found)


def in_nanoseconds(footers: Sequence[FileMetaData]) -> dict[str, str]:
    """Expressions in microseconds for columns with times in nanoseconds, which `merged` has as numbers. What is below a
    microsecond is cut off, as Arrow does.
    """
    found = {}
    for footer in footers:
        for each in footer.schema.to_arrow_schema() if columns_of(footer) is not None else ():
            if _counts_nanoseconds(each.type):
                found[each.name] = (_WALL if each.type.tz is None else _MOMENT).format(quoted(each.name))
    return found


def demand_readable(footer: FileMetaData, where: str) -> None:
    """Raises `UserError` naming a column of a type that Spark has not: it would refuse the file, and not say why."""
    try:
        schema = footer.schema.to_arrow_schema()
    except (pa.ArrowException, NotImplementedError):
        return
    for each in schema:
        if pa.types.is_nested(each.type) and _has(each.type, _counts_nanoseconds):
            hint = "Write microseconds, as with coerce_timestamps='us' in pandas."
        elif _has(each.type, _unknown_to_spark):
            hint = "Write it as another one, such as text, or leave it out of the files."
        else:
            continue
        raise UserError(
            f"column {each.name!r} has the type {each.type}, which Spark cannot read", where=where, hint=hint
        )


def _unknown_to_spark(kind: Any) -> bool:
    wide = pa.types.is_decimal(kind) and kind.precision > MAX_PRECISION
    return bool(wide or pa.types.is_time(kind) or pa.types.is_float16(kind))


def _has(kind: Any, found: Callable[[Any], bool]) -> bool:
    """Whether it is found of the type, or of something in it, however deep."""
    return found(kind) or any(_has(kind.field(at).type, found) for at in range(kind.num_fields))


def _counts_nanoseconds(kind: Any) -> bool:
    return bool(pa.types.is_timestamp(kind) and kind.unit == "ns")


def _apart(there: Any, here: Any) -> bool:
    """Whether one column of Spark cannot be both: structures that differ, or times that are not of one kind."""
    if pa.types.is_nested(there) or pa.types.is_nested(here):
        return not there.equals(here)
    if pa.types.is_timestamp(there) and pa.types.is_timestamp(here):
        return (there.tz is None, there.unit == "ns") != (here.tz is None, here.unit == "ns")
    return False


def _in_spark(columns: Mapping[str, tuple[ColumnType, Any]]) -> StructType | None:
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import LongType, StructField, StructType

    fields = []
    for name, (kind, stored) in columns.items():
        own = pa.types.is_nested(stored) or pa.types.is_timestamp(stored)
        try:
            of_spark = from_arrow_type(stored if own else arrow_type(kind), prefer_timestamp_ntz=True)
        except PySparkException:  # A structure with something in it that only Spark has a type for.
            return None
        fields.append(StructField(name, LongType() if _counts_nanoseconds(stored) else of_spark))
    return StructType(fields)


def later(footers: Sequence[FileMetaData], rows: RowColumns, scope: Scope, floor: int) -> bool | None:
    """Whether some row in the scope may have a later watermark; None when the statistics do not say."""
    unknown = False
    for footer in footers:
        places = {footer.schema.column(at).path: at for at in range(footer.num_columns)}
        watermark = places.get(rows.watermark or "")
        if watermark is None:
            unknown = unknown or footer.num_rows > 0
            continue
        for group in _groups(footer, places.get(rows.scope or ""), scope):
            latest = _latest(footer, group, watermark)
            if latest is None:
                unknown = True
            elif latest > floor:
                return True
    return None if unknown else False


def most_later(footers: Sequence[FileMetaData], rows: RowColumns, scope: Scope, floor: int) -> int:
    """At most so many rows in the scope have a later watermark, by the statistics of their row groups."""
    found = 0
    for footer in footers:
        places = {footer.schema.column(at).path: at for at in range(footer.num_columns)}
        watermark = places.get(rows.watermark or "")
        for group in _groups(footer, places.get(rows.scope or ""), scope):
            latest = None if watermark is None else _latest(footer, group, watermark)
            if latest is None or latest > floor:
                found += group.num_rows
    return found


def later_outside(footer: FileMetaData, rows: RowColumns, scopes: Sequence[Scope], floor: int) -> Iterator[int]:
    """Row groups that may have rows in none of these namespaces with a later watermark."""
    places = {footer.schema.column(at).path: at for at in range(footer.num_columns)}
    watermark, scope = places.get(rows.watermark or ""), places.get(rows.scope or "")
    ranges = outside(scopes)
    for at in range(footer.num_row_groups):
        group = footer.row_group(at)
        latest = None if watermark is None else _latest(footer, group, watermark)
        if latest is not None and latest <= floor:
            continue
        found: Any = None if scope is None else group.column(scope).statistics
        known = found is not None and found.has_min_max and found.has_null_count and not found.null_count
        if not known or not isinstance(found.min, str) or _meets(ranges, found.min, found.max):
            yield at


def may_have_later(footer: FileMetaData, rows: RowColumns, selection: Selection, floor: int) -> bool:
    """Whether a file may have rows that are selected and have a later watermark."""
    if later([footer], rows, selection.scope, floor) is not False:
        return True
    if selection.others is None:
        return False
    return next(later_outside(footer, rows, (selection.scope, *selection.others), floor), None) is not None


def _meets(ranges: Sequence[tuple[str, str | None]], least: str, most: str) -> bool:
    """Whether something from the least to the greatest is in one of the ranges, which are in order."""
    first = max(0, bisect_right(ranges, least, key=lambda each: each[0]) - 1)
    return any(start <= most and (end is None or end > least) for start, end in ranges[first : first + 2])


class _Latest(NamedTuple):
    """The latest watermarks (µs) of a row group, by what the scope of the rows is."""

    paths: pa.Array[Any]
    moments: pa.Array[Any]

    def outside(self, scopes: Sequence[Scope], floor: int) -> bool:
        later = self.paths.filter(pc.greater(self.moments, pa.scalar(floor, pa.int64())))
        return not bool(pc.all(within_namespaces(later, scopes)).as_py()) if len(later) else False


@dataclass(slots=True)
class LatestByScope:
    """The latest watermarks of row groups that were looked into: once, for as long as their files stay unchanged."""

    _known: dict[tuple[Listed, int], _Latest | None] = field(default_factory=dict)

    def of(self, folder: Folder, file: Listed, footer: FileMetaData, group: int, rows: RowColumns) -> _Latest | None:
        """None when only Spark can say."""
        if (file, group) not in self._known:
            self._known[file, group] = self._read(folder, file, footer, group, rows)
        return self._known[file, group]

    @staticmethod
    def _read(folder: Folder, file: Listed, footer: FileMetaData, group: int, rows: RowColumns) -> _Latest | None:
        assert rows.scope is not None
        assert rows.watermark is not None
        try:
            with pq.ParquetFile(file.path, filesystem=folder.fs, metadata=footer) as opened:
                read = opened.read_row_group(group, columns=[rows.scope, rows.watermark])
            paths = read.column(rows.scope).cast(pa.string())
            moments = read.column(rows.watermark)
            if not pa.types.is_timestamp(moments.type):
                return None
            # Rounded up, as footers are.
            micros = pc.ceil_temporal(moments, unit="microsecond").cast(pa.timestamp("us", moments.type.tz))
        except (OSError, KeyError, pa.ArrowException):
            return None
        table = pa.table({"path": paths, "at": micros.cast(pa.int64())}).group_by("path").aggregate([("at", "max")])
        found = table.combine_chunks()
        return _Latest(found.column("path").combine_chunks(), found.column("at_max").combine_chunks())


def without_watermark(footer: FileMetaData, watermark: str) -> int:
    """The number of rows with a null for it, as far as the statistics tell."""
    found = 0
    for group in range(footer.num_row_groups):
        for at in range(footer.num_columns):
            column: Any = footer.row_group(group).column(at)
            if column.path_in_schema == watermark and column.statistics and column.statistics.has_null_count:
                found += column.statistics.null_count
    return found


def within(footers: Sequence[FileMetaData], watermark: str, window: Window) -> bool:
    """Whether the statistics prove that all rows are in a window that has a floor."""
    for footer in footers:
        places = {footer.schema.column(at).path: at for at in range(footer.num_columns)}
        unit = _unit(footer.schema.column(places[watermark])) if watermark in places else None
        if unit is None or window.floor is None:
            return False
        times, parts = unit
        for at in range(footer.num_row_groups):
            found: Any = footer.row_group(at).column(places[watermark]).statistics
            if found is None or not (found.has_min_max and found.has_null_count) or found.null_count:
                return False
            least, most = found.min_raw * times // parts, -(-found.max_raw * times // parts)
            if least <= window.floor or most > window.target:
                return False
    return True


def _groups(footer: FileMetaData, column: int | None, scope: Scope) -> Iterator[pq.RowGroupMetaData]:
    """Row groups that may have rows in the scope."""
    for at in range(footer.num_row_groups):
        group = footer.row_group(at)
        statistics = group.column(column).statistics if column is not None and not scope.is_global else None
        if statistics is None or not statistics.has_min_max or _overlaps(statistics, scope):
            yield group


def _overlaps(statistics: pq.Statistics, scope: Scope) -> bool:
    least, most = statistics.min, statistics.max
    if not isinstance(least, str) or not isinstance(most, str):
        return True
    return least < scope.after and most >= scope.path


def _latest(footer: FileMetaData, group: pq.RowGroupMetaData, column: int) -> int | None:
    """The latest watermark of a row group, in µs, rounded up; -1 when all are null; None when it is not known."""
    if not group.num_rows:
        return -1
    statistics = group.column(column).statistics
    if statistics is None:
        return None
    if not statistics.has_min_max:
        return -1 if statistics.null_count == group.num_rows else None
    unit = _unit(footer.schema.column(column))
    raw: Any = statistics.max_raw
    if unit is None or not isinstance(raw, int):
        return None
    times, parts = unit
    return -(-raw * times // parts)


def _unit(column: pq.ColumnSchema) -> tuple[int, int] | None:
    if column.physical_type != "INT64" or column.logical_type.type != "TIMESTAMP":
        return None
    return _MICROSECONDS.get(json.loads(column.logical_type.to_json()).get("timeUnit", ""))
