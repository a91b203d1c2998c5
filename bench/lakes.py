"""The look of a refresh at a Delta table of which one row in a thousand has changed: `python -m bench.lakes`.

By its change data feed, and as all other tables are looked at, where keys and a column of versions are read of all
rows: of the Delta table itself, and of the same rows in plain Parquet files. Everything is in this process, without
Spark, as documents of the product; the ledger's part is left out on all sides.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from instep.domain.rows import DocumentColumns
from instep.domain.table_versions import Between
from instep.sources.document_source import Listing
from instep.sources.tables.delta_rows import DeltaRows
from instep.sources.tables.parquet_rows import ParquetRows
from instep.sources.tables.row_documents import RowDocuments

ROWS: Final = 10_000_000
GOAL: Final = 0.2
_BATCH: Final = 500_000
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
    return len(changed)


def timed(what: str, look: Callable[[], Listing]) -> tuple[float, Listing]:
    began = time.perf_counter()
    found = look()
    seconds = time.perf_counter() - began
    print(f"{what}: {seconds:.2f} s, {len(found.documents):,} rows", flush=True)
    return seconds, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--folder", type=Path, default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        folder = Path(name)
        changed = written(folder, given.rows)
        lake = DeltaRows(str(folder / "delta"))
        delta = RowDocuments("Row", _COLUMNS, lake, None)
        plain = RowDocuments("Row", _COLUMNS, ParquetRows((str(folder / "parquet"),)), None)
        now = lake.version().number
        feed, found = timed("changes by the feed", lambda: delta.changed(lake, Between(now - 1, now)).listing)
        assert len(found.documents) == changed, "rows read are rows changed"
        scan, _ = timed("versions of all rows, Parquet", plain.list)
        timed("versions of all rows, Delta", delta.list)
    met = "met" if feed <= GOAL * scan else "MISSED"
    print(f"{feed / scan:.3f} of a scan (goal: at most {GOAL}): {met}")


if __name__ == "__main__":
    main()
