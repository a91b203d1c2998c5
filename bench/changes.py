"""Keys of a table compared with its index, as `instep reconcile` does: `python -m bench.changes`.

The source is Parquet in some files, the index Lance; from the source some rows are deleted for good, and a few come
much too late. Both sides are read as the product reads them, in this process; the rows in the index are staged and
committed by the target itself, without Spark. Memory is the highest resident size of the process while it compares,
above that before.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from instep.domain.columns import INT64, STRING, TIMESTAMP, Column
from instep.domain.rows import RowColumns, Selection
from instep.pipeline.tables.key_comparison import RANGES, compare_rows, in_ranges
from instep.pipeline.tables.sides import HereSide, KeyReader, stored_rows
from instep.sources.tables.spark_tables import SparkTable
from instep.targets.lance import LanceTableTarget
from instep.targets.ownership import Owner
from instep.targets.table_target import OWN, VERSION, TableChange, TableSpec, arrow_schema

ROWS, DELETED, LATE, FILES = 10_000_000, 100, 10, 8
GOAL_SECONDS, GOAL_BYTES = 60.0, 1_000_000_000
_STARTED = datetime(2026, 1, 1, tzinfo=UTC)
_BATCH = 250_000
SPEC = TableSpec(OWN, (Column("id", INT64), Column("name", STRING), Column("at", TIMESTAMP)), ("id",))
COLUMNS = RowColumns(("id",), watermark="at")


def batches(rows: int) -> Iterator[pa.RecordBatch]:
    """Ids that are scattered, names of forty letters, and watermarks that grow."""
    for start in range(0, rows, _BATCH):
        at = np.arange(start, min(rows, start + _BATCH))
        ids = (at.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(1)).astype(np.int64)
        marks = (at * 1_000).astype("timedelta64[us]") + np.datetime64(_STARTED.replace(tzinfo=None), "us")
        names = pa.array(np.char.zfill(at.astype(str), 40))
        columns: list[Any] = [pa.array(ids), names, pa.array(marks).cast(pa.timestamp("us", "UTC"))]
        yield pa.RecordBatch.from_arrays(columns, ["id", "name", "at"])


def written(folder: Path, rows: int) -> None:
    """The source, without every n-th row, and with some that came late."""
    folder.mkdir()
    every, gone = max(1, rows // DELETED), 0
    share = -(-rows // FILES)
    writer, number = None, 0
    for number, batch in enumerate(batches(rows)):
        at = np.arange(number * _BATCH, number * _BATCH + batch.num_rows)
        kept = at % every != every // 2
        gone += int((~kept).sum())
        table = pa.Table.from_batches([batch.filter(pa.array(kept))])
        file = folder / f"{number * _BATCH // share}.parquet"
        if writer is None or str(file) != writer[0]:
            if writer is not None:
                writer[1].close()
            writer = (str(file), pq.ParquetWriter(file, table.schema))
        writer[1].write_table(table)
    if writer is not None:
        writer[1].close()
    late = pa.table(
        {
            "id": pa.array(range(-LATE, 0), pa.int64()),
            "name": pa.array(["late"] * LATE),
            "at": pa.array([_STARTED - timedelta(days=1)] * LATE, pa.timestamp("us", "UTC")),
        }
    )
    pq.write_table(late.cast(pq.read_schema(file)), folder / "late.parquet")
    assert gone == DELETED, gone


def _repeated(text: str, count: int) -> Any:
    return pa.repeat(pa.scalar(text), count)


def indexed(target: LanceTableTarget, rows: int) -> None:
    schema = arrow_schema(SPEC)
    target.create("index", [SPEC])
    base = target.fence("index", 1)

    def changes() -> Iterator[TableChange]:
        for each in batches(rows):
            count = each.num_rows
            versions, there = each.column("at").cast(pa.int64()), pa.repeat(pa.scalar(False), count)
            books: list[Any] = [_repeated("Row@global", count), _repeated("i", count), versions, there]

            yield TableChange(OWN, pa.RecordBatch.from_arrays([*each.columns, *books], schema=schema))

    staged = target.writer("index", base).stage(changes())
    target.commit("index", base=base, epoch=1, attempt="a", staged=[staged], marks=[])


class Peak(threading.Thread):
    """The highest resident size of this process, sampled."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._process, self._over = psutil.Process(), threading.Event()
        self.before = self.highest = self._process.memory_info().rss

    def run(self) -> None:
        while not self._over.wait(0.05):
            self.highest = max(self.highest, self._process.memory_info().rss)

    def stop(self) -> int:
        self._over.set()
        self.join()
        return self.highest - self.before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--folder", type=Path, default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        written(folder / "source", given.rows)
        target = LanceTableTarget(str(folder / "target"), owner=Owner("bench"))
        indexed(target, given.rows)
        source = SparkTable("parquet", (str(folder / "source"),))
        reader = KeyReader((Column("id", INT64),), "at", None)

        def keys() -> Iterator[pa.RecordBatch]:
            found = source.keys(COLUMNS, Selection(), reader.names)
            assert found is not None
            return reader.read(found)

        ours = HereSide(keys, reader.schema)
        theirs = HereSide(lambda: stored_rows(target.versions("index"), reader.schema, ("id",), VERSION), reader.schema)
        peak, began = Peak(), time.perf_counter()
        peak.start()
        stored, there = theirs.sums(), ours.sums()
        first = time.perf_counter() - began
        ranges = stored.differing(there)
        found = compare_rows(ours.rows(in_ranges(ranges)), theirs.rows(in_ranges(ranges)))
        seconds, memory = time.perf_counter() - began, peak.stop()
        assert (found.gone.num_rows, found.missing.num_rows) == (DELETED, LATE)
        assert not found.behind.num_rows
        assert not found.ahead.num_rows
    met = "met" if seconds < GOAL_SECONDS and memory < GOAL_BYTES else "MISSED"
    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(
        f"{given.rows:,} keys, {DELETED} deleted for good and {LATE} late: {seconds:.1f} s ({first:.1f} s for the sums)"
    )
    print(f"{len(ranges):,} of {RANGES:,} ranges differ; {memory / 1e6:,.0f} MB more than before: {met}")
    print(f"highest resident size of all, with the making of the rows: {highest:,.0f} MB")


if __name__ == "__main__":
    main()
