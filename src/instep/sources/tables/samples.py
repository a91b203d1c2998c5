"""Samples of keys, in Arrow: histograms of them, and those of Parquet files, read without Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow.parquet import FileMetaData

from instep.arrow.values import not_utf8
from instep.domain.cuts import Bin
from instep.domain.keys import Key, key_of
from instep.domain.rows import RowColumns, Selection
from instep.sources.tables.folders import Folder, Listed
from instep.sources.tables.predicates import within

#: Keys that are taken for each bin. With 25 of them for each of 4,000 bins, four slices differ by less than a percent.
KEYS_PER_BIN = 25
#: And no fewer than these: of so many rows all keys are taken.
FEWEST_KEYS = 10_000


def binned(sample: pa.Table, rows: int, bins: int) -> list[Bin]:
    """At most about `bins` bins of a sample of keys without nulls, which stands for so many rows.

    One key is one bin, however many rows have it; neighbours that have few share one. A key of bytes that are not UTF-8
    bounds no bin.
    """
    for column in sample.columns:
        if pa.types.is_string(column.type) and (broken := not_utf8(column)) is not None:
            return binned(sample.filter(pc.invert(broken)), rows, bins)
    if not sample.num_rows:
        return []
    ordered = sample.sort_by([(name, "ascending") for name in sample.column_names]).combine_chunks()
    starts = _starts(ordered, bins)
    ends = np.append(starts[1:], ordered.num_rows)
    # Rounded at the ends, not one by one: the sum is exact.
    until = ends * rows // ordered.num_rows
    counts = np.diff(until, prepend=0)
    return [Bin(key, int(count)) for key, count in zip(keys(ordered.take(starts)), counts, strict=True)]


def keys(table: pa.Table) -> list[Key]:
    """The rows of a table as keys."""
    return [key_of(*values) for values in zip(*(_values(column) for column in table.columns), strict=True)]


def _values(column: pa.ChunkedArray[Any]) -> Sequence[object]:
    if pa.types.is_timestamp(column.type):
        # Without a zone it is one in UTC; with one, only what is shown changes. Nanoseconds are cut off.
        column = column.cast(pa.timestamp("us", "UTC"), safe=False)
    if column.type == pa.uint64():
        column = column.cast(pa.decimal128(20, 0))
    return column.to_pylist()


def _starts(ordered: pa.Table, bins: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The starts of bins: at the first row of a key, with a share of the rows or more since the last one, and before
    and after each key that has a share by itself.
    """
    rows = ordered.num_rows
    changes = np.zeros(rows, dtype=bool)
    changes[0] = True
    for column in ordered.columns:
        values = column.combine_chunks()
        changes[1:] |= pc.not_equal(values.slice(1), values.slice(0, rows - 1)).to_numpy(zero_copy_only=False)
    runs = np.flatnonzero(changes).astype(np.int64)
    if len(runs) <= bins:
        return runs
    share = -(-rows // bins)
    large = np.diff(runs, append=rows) >= share
    apart = np.zeros(len(runs), dtype=bool)
    apart[0] = True
    apart |= large
    apart[1:] |= large[:-1]
    apart[1:] |= runs[1:] // share != runs[:-1] // share
    return runs[apart]


#: Rows that are looked at, about: 2 cores take a fifth of a second for a column of numbers.
MOST_ROWS = 20_000_000
_BATCH = 1_000_000


File: TypeAlias = tuple[Folder, Listed, FileMetaData]


class Sample(NamedTuple):
    """A sample: the number of selected rows, the number of those with a value in all columns, and some of their
    `keys`.
    """

    rows: int
    with_key: int
    keys: pa.Table


def sample(
    files: Sequence[File],
    rows: RowColumns,
    selection: Selection,
    columns: Sequence[str],
    wanted: int,
) -> Sample | None:
    """None for no files: Spark looks there. Of files in which the columns are not plain nothing is known here."""
    if not files:
        return None
    total = sum(footer.num_rows for _, _, footer in files)
    every = max(1, -(-total // MOST_ROWS))
    stride = max(1, total // every // max(wanted, 1))
    found: list[pa.Table] = []
    read = selected = with_key = 0
    for batch in _batches(files, list(dict.fromkeys([*columns, *_conditions(rows, selection)])), every):
        read += batch.num_rows
        chosen = _selected(batch, rows, selection)
        selected += chosen.num_rows
        keyed = chosen.select(list(columns)).drop_null()
        at = np.arange(-with_key % stride, keyed.num_rows, stride)
        with_key += keyed.num_rows
        found.append(keyed.take(pa.array(at, pa.int64())))
    share = total / read if read else 1
    schema = files[0][2].schema.to_arrow_schema()
    empty = pa.schema([schema.field(name) for name in columns]).empty_table()
    return Sample(round(selected * share), round(with_key * share), pa.concat_tables([empty, *found]))


def selected(
    files: Sequence[File], rows: RowColumns, selection: Selection, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """These columns of all selected rows, a row group at a time."""
    for batch in _batches(files, list(dict.fromkeys([*columns, *_conditions(rows, selection)])), 1):
        yield from _selected(batch, rows, selection).select(list(columns)).to_batches()


def _conditions(rows: RowColumns, selection: Selection) -> Iterator[str]:
    if rows.scope and not selection.scope.is_global:
        yield rows.scope
    if selection.window is not None:
        yield from (name for name in (rows.watermark, rows.deleted) if name)


def _batches(
    files: Sequence[tuple[Folder, Listed, FileMetaData]], columns: list[str], every: int
) -> Iterator[pa.Table]:
    """Every so-many-th row group, starting with the first."""
    place = 0
    for folder, listed, footer in files:
        groups = [at for at in range(footer.num_row_groups) if (place + at) % every == 0]
        place += footer.num_row_groups
        if groups:
            with pq.ParquetFile(listed.path, filesystem=folder.fs, metadata=footer) as file:
                for batch in file.iter_batches(_BATCH, row_groups=groups, columns=columns):
                    yield pa.Table.from_batches([batch])


def _selected(batch: pa.Table, rows: RowColumns, selection: Selection) -> pa.Table:
    """The rows that are in the scope and in the window, and those of a first window that are not deleted."""
    kept = np.ones(batch.num_rows, bool)
    if rows.scope and not selection.scope.is_global:
        paths = batch.column(rows.scope).cast(pa.string())
        if selection.others is not None:
            kept &= ~_true(within(paths, selection.others))
        else:
            kept &= _true(pc.starts_with(paths, selection.scope.path))
    if selection.window is not None and rows.watermark:
        marks = batch.column(rows.watermark).cast(pa.timestamp("us", "UTC"), safe=False).cast(pa.int64())
        kept &= ~_true(pc.greater(marks, pa.scalar(selection.window.target)))
        if selection.window.floor is not None:
            later: Any = pc.greater(marks, pa.scalar(selection.window.floor))
            kept &= _true(pc.fill_null(later, selection.window.unmarked))
    if selection.window is not None and selection.window.undeleted and rows.deleted:
        kept &= ~_true(batch.column(rows.deleted).cast(pa.bool_()))
    return batch if kept.all() else batch.filter(pa.array(kept))


def _true(flags: Any) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """A null is not."""
    found: np.ndarray[Any, np.dtype[np.bool_]] = flags.fill_null(False).to_numpy(zero_copy_only=False)
    return found
