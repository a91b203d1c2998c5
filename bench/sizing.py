"""Bytes that a corpus takes in processes, ledger and state, and what larger ones would: `python -m bench.sizing`.

Rows of a Parquet table (`bench.scale`) are planned, indexed and compared, once for each size: in this process, or with
`--engine spark` on `local[2]`, whose processes (JVM, Python workers) count as one. What grows with
the corpus is fitted by a line through the two largest sizes; a size that was not run is on that line, and said to be.
With one size there is nothing to fit.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path

import pyarrow.parquet as pq

from bench import measure, report
from bench.environment import EXTRAS, virtual_environment
from bench.scale import table

SIZES, LARGE = (100_000, 1_000_000), (1_000_000, 100_000_000, 1_000_000_000)
PLANNING, BUILDING, COMPARING = "process, plan of a first build", "process, first run", "process, nothing changed"
DIFFERING = "process, compared with the target"
LEDGER, BASE, PLAN, INDEX = "ledger", "state: base file", "state: plan file", "target (Lance)"
#: One entity; all of a first build in one job. The index is as `table` fills it: 200 characters, 64 dimensions.
PROJECT = """\
name: sizing
engine: ENGINE
spark: {master: 'local[2]'}
targets: {index: {type: lance, uri: index}}
entities:
  Document:
    source: {type: spark, path: data}
    document: {key: id, text: text, version: version}
    embed: {type: hashing, dimensions: 64}
"""


class _Largest(threading.Thread):
    """The most bytes that plan files took while it looked."""

    def __init__(self, folder: Path) -> None:
        super().__init__(daemon=True)
        self._folder = folder
        self._ended = threading.Event()
        self.bytes = 0

    def run(self) -> None:
        while not self._ended.wait(0.2):
            self.bytes = max(self.bytes, _bytes(self._folder, "*.plan"))

    def stop(self) -> None:
        self._ended.set()
        self.join()


def sizes(bin: Path, folder: Path, documents: int, engine: str = "inline") -> dict[str, int]:
    """Bytes, by what takes them."""
    (folder / "data").mkdir(parents=True)
    (folder / "instep.yaml").write_text(PROJECT.replace("ENGINE", engine))
    pq.write_table(table(documents), folder / "data" / "rows.parquet", row_group_size=100_000)
    beside = folder / ".instep" / "ledger-documents"
    planned: list[str | Path] = [bin / "python", "-c", "import instep; assert instep.load('.').plan()[0].pending"]
    found = {PLANNING: measure.run(planned, folder=folder).peak_rss}
    watch = _Largest(beside)
    watch.start()
    found[BUILDING] = measure.run([bin / "instep", "run"], folder=folder).peak_rss
    watch.stop()
    found[COMPARING] = measure.run([bin / "instep", "run"], folder=folder).peak_rss
    found[DIFFERING] = measure.run([bin / "instep", "diff"], folder=folder).peak_rss
    with closing(sqlite3.connect(folder / ".instep" / "ledger.db")) as ledger:
        ledger.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    found[LEDGER] = _bytes(folder / ".instep", "ledger.db*")
    found[BASE] = _bytes(beside, "*.arrow")
    found[PLAN] = watch.bytes
    found[INDEX] = _bytes(folder / "index", "**/*")
    return found


def _bytes(folder: Path, pattern: str) -> int:
    total = 0
    for each in folder.glob(pattern):
        with suppress(FileNotFoundError):
            total += each.stat().st_size if each.is_file() else 0
    return total


def line_through(found: Mapping[int, int]) -> tuple[float, float]:
    """Bytes that are there without documents, and bytes for each: by the two largest sizes."""
    (few, less), (many, more) = sorted(found.items())[-2:]
    each = (more - less) / (many - few)
    return less - each * few, each


def rows_of(found: Mapping[int, Mapping[str, int]]) -> list[list[str]]:
    rows = []
    for what in next(iter(found.values())):
        measured = {documents: by_what[what] for documents, by_what in found.items()}
        row = [what, *(_shown(measured[documents]) for documents in sorted(measured))]
        if len(measured) > 1:
            fixed, each = line_through(measured)
            row.append(f"{each:,.0f}")
            row += [_shown(fixed + each * documents) for documents in LARGE if documents not in measured]
        rows.append(row)
    return rows


def _shown(count: float) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.1f} MB"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--engine", choices=["inline", "spark"], default="inline", help="what runs the waves")
    parser.add_argument("--here", action="store_true", help="measure the environment that runs this, not a wheel")
    options = parser.parse_args(arguments)
    bin = Path(sys.executable).parent if options.here else virtual_environment(*EXTRAS[options.engine])
    began = time.perf_counter()
    found: dict[int, dict[str, int]] = {}
    for documents in sorted(set(options.documents)):
        with tempfile.TemporaryDirectory() as folder:
            found[documents] = sizes(bin, Path(folder) / "sizing", documents, options.engine)
    heads = ["what", *(f"{each:,} measured" for each in found)]
    if len(found) > 1:
        heads += ["bytes a document", *(f"{each:,} extrapolated" for each in LARGE if each not in found)]
    report.show(f"Bytes, after {time.perf_counter() - began:.0f} s", heads, rows_of(found))


if __name__ == "__main__":
    main()
