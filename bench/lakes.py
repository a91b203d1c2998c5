"""The look of a refresh at a Delta table of which one row in a thousand has changed: `python -m bench.lakes`.

As documents: by its change data feed, and as all other tables are looked at, where keys and a column of versions are
read of all rows: of the Delta table itself, and of the same rows in plain Parquet files. As rows of a table: by the net
changes of the same feed, read with all columns, and by a window of watermarks over the same Parquet. Everything is in
this process, without Spark, by the product's own code; the ledger's part is left out on all sides.
At last a window of nearly all rows, as tasks of Spark read it portion by portion.
"""

from __future__ import annotations

import argparse
import itertools
import pickle
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from instep.domain.rows import DocumentColumns, RowColumns, Selection, Window
from instep.domain.table_versions import Between, VersionWindow
from instep.sources.tables.delta_rows import DeltaRows
from instep.sources.tables.lake_table import LakeTable
from instep.sources.tables.lakes import plain
from instep.sources.tables.parquet_rows import ParquetRows
from instep.sources.tables.row_documents import RowDocuments
from instep.sources.tables.spark_tables import SparkTable

ROWS: Final = 10_000_000
GOAL: Final = 0.2
_BATCH: Final = 500_000
#: Batches of deltalake (8,192 rows) in a file.
_BATCHES: Final = 64
_SHARE: Final = 1_000
_COLUMNS: Final = DocumentColumns(("id",), "body", version="at")


def _rows(at: Any, moment: int) -> pa.Table:
    """Rows with texts of eighty letters."""
    times: Any = pa.array(np.full(len(at), moment)).cast(pa.timestamp("us", "UTC"))
    bodies = pa.array(np.char.zfill(at.astype(str), 80))
    return pa.table({"id": pa.array(at), "body": bodies, "at": times})


def _tables(rows: int) -> Iterator[pa.Table]:
    for start in range(0, rows, _BATCH):
        yield _rows(np.arange(start, min(rows, start + _BATCH)), 1)


def written(folder: Path, rows: int) -> int:
    """Both tables, before and after the change; the number of rows that have changed."""
    (folder / "parquet").mkdir()
    delta = str(folder / "delta")
    for number, table in enumerate(_tables(rows)):
        pq.write_table(table, folder / "parquet" / f"{number:04}.parquet")
        write_deltalake(delta, table, mode="append", configuration={"delta.enableChangeDataFeed": "true"})
    changed = np.sort(np.random.default_rng(1).choice(rows, rows // _SHARE, replace=False))
    merge = DeltaTable(delta).merge(_rows(changed, 2), "t.id = s.id", source_alias="s", target_alias="t")
    merge.when_matched_update_all().execute()
    # Watermarks are looked for where the change has been written, as Spark would have left it.
    (folder / "after").mkdir()
    scanned = plain(DeltaTable(delta).scan())
    for number in itertools.count():
        some = list(itertools.islice(scanned, _BATCHES))
        if not some:
            break
        pq.write_table(pa.Table.from_batches(some), folder / "after" / f"{number:05}.parquet")
    return len(changed)


def timed(what: str, look: Callable[[], int]) -> tuple[float, int]:
    began, busy, read = time.perf_counter(), time.process_time(), bytes_read()
    rows = look()
    seconds = time.perf_counter() - began
    busy, read = time.process_time() - busy, (bytes_read() - read) // 1_000_000
    print(f"{what}: {seconds:.2f} s ({busy:.2f} s of processors), {read:,} MB, {rows:,} rows", flush=True)
    return seconds, rows


def bytes_read() -> int:
    """Bytes that this process has read from files, as Linux counts them."""
    return int(Path("/proc/self/io").read_text().split()[1])


def judged(what: str, feed: float, scan: float) -> None:
    met = "met" if feed <= GOAL * scan else "MISSED"
    print(f"{what}: {feed / scan:.3f} of a scan (goal: at most {GOAL}): {met}", flush=True)


def of_documents(folder: Path, changed: int) -> None:
    lake = DeltaRows(str(folder / "delta"))
    delta = RowDocuments("Row", _COLUMNS, lake, None)
    parquet = RowDocuments("Row", _COLUMNS, ParquetRows((str(folder / "parquet"),)), None)
    now = lake.version().number
    between = Between(now - 1, now)
    feed, found = timed("changes by the feed", lambda: len(delta.changed(lake, between).listing.documents))
    assert found == changed, "rows read are rows changed"
    scan, _ = timed("versions of all rows, Parquet", lambda: len(parquet.list().documents))
    timed("versions of all rows, Delta", lambda: len(delta.list().documents))
    judged("documents", feed, scan)


def of_rows(folder: Path, changed: int) -> None:
    lake = LakeTable(DeltaRows(str(folder / "delta")))
    now = lake.rows.version().number
    window, rows = Selection(versions=VersionWindow(now - 1, now)), RowColumns(("id",))
    table = lake.reading(lake.columns())
    feed, found = timed("net changes", lambda: sum(each.num_rows for each, _ in table.read(rows, window, 0)))
    assert found == changed, "rows read are rows changed"
    # What changed went and came: two rows of the feed for each.
    assert table.net(rows, window).read == 2 * changed, "no other rows are looked at"
    parquet = SparkTable("parquet", (str(folder / "after"),))
    marks = RowColumns(("id",), watermark="at")
    newer = parquet.keys(marks, Selection(window=Window(1, 2)), ("id", "body", "at"))
    assert newer is not None, "Parquet is read here"
    scan, found = timed("a window of watermarks, Parquet", lambda: sum(each.num_rows for each in newer))
    assert found == changed
    judged("rows of a table", feed, scan)


def of_windows(folder: Path) -> None:
    """All that came after the first version, as tasks read it: a portion each, with the driver's sum."""
    lake = LakeTable(DeltaRows(str(folder / "delta")))
    window, rows = Selection(versions=VersionWindow(0, lake.rows.version().number)), RowColumns(("id",))
    table = lake.reading(lake.columns())
    _, all_rows = timed("a large window, its sum", lambda: table.net(rows, window).rows)
    net, found = table.net(rows, window), 0
    for number in range(table.portions(window)):
        task: LakeTable = pickle.loads(pickle.dumps(table))
        read = partial(task.read, rows, window, number, net)
        found += timed(f"portion {number}", lambda: sum(each.num_rows for each, _ in read()))[1]  # noqa: B023 - called at once
    assert found == all_rows, "each row is in one portion"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--folder", type=Path, default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        changed = written(folder, given.rows)
        of_documents(folder, changed)
        of_rows(folder, changed)
        of_windows(folder)


if __name__ == "__main__":
    main()
