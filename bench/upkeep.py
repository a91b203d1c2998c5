"""What small runs leave behind: `python -m bench.upkeep --runs N`.

One row of each of three tables, and one of fifty documents, change before every run. All is counted at 1, 100, … runs:
files and bytes of ledger, targets and state, and the processor time of a run that finds nothing, in another process
(the least of some). A copy of the project is kept as it was after 100 runs, and in the end both are timed in turns,
since other work on the machine counts in that time, too. What libraries keep in the process that has written all the
time makes it slower there by a tenth or two, whatever the ledger holds. The ledger forgets after `--retention`: a
benchmark of minutes stands for years of which 30 days are kept.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import instep
from instep.domain.jobs import JobState

RUNS, ROWS, NOTES = 2_000, 100, 50
#: Runs after which a copy is kept, the name of its folder, and the turns in which it is timed beside the last one.
BEFORE, COPY, TURNS = 100, "before", 5
#: Times those after the hundredth run, at most.
GOAL_SIZE, GOAL_TIME = 1.5, 1.2
#: The processor time of a run that finds nothing, once all is imported.
_NOTHING = """
import sys, time, instep
project, times = instep.load(sys.argv[1]), []
for _ in range(40):
    begun = time.process_time()
    project.run()
    times.append(time.process_time() - begun)
print(min(times))
"""
_PROJECT = """\
name: bench
{retention}targets:
  index: {{type: lance, uri: .instep/index}}
  graph: {{type: {target}, uri: .instep/graph}}
entities:
  Note:
    source: {{type: files, path: notes}}
    target: index
    embed: {{type: hashing, dimensions: 64}}
    deletes: {{window: 1s}}
"""
_TABLE = """\
  {name}:
    source: {{type: spark, format: parquet, path: {name}}}
    target: graph
    key: id
    watermark: at
    deletes: {{window: 1s}}
    node: {{label: {name}, properties: [id, text]}}
"""
_NAMES = ("Person", "Commit", "File")
#: What a path is counted as, by what it has in it; the first that fits.
_KINDS = (("/index/", "target, documents"), ("/graph/", "target, tables"), ("/ledger.db", "ledger"))


@dataclass(frozen=True, slots=True)
class Left:
    """What is there after so many runs."""

    runs: int
    files: Counter[str]
    size: Counter[str]
    nothing: float


def write(root: Path, number: int, tables: Sequence[str], moments: list[datetime]) -> None:
    (root / "notes").mkdir(exist_ok=True)
    for note in range(NOTES) if number == 0 else [number % NOTES]:
        (root / "notes" / f"{note}.md").write_text(f"# Note {note}\n\nThe tide of day {number}.\n")
    changed = range(ROWS) if number == 0 else [number % ROWS]
    for row in changed:
        moments[row] = datetime.now(UTC)
    for name in tables:
        rows = pa.table(
            {"id": range(ROWS), "text": [f"{row} {each}" for row, each in enumerate(moments)], "at": moments}
        )
        (root / name).mkdir(exist_ok=True)
        pq.write_table(rows, root / name / "rows.parquet")


def left(root: Path, runs: int, nothing: float) -> Left:
    files: Counter[str] = Counter()
    size: Counter[str] = Counter()
    for path in (root / ".instep").rglob("*"):
        if path.is_file():
            text = str(path)
            kind = next((name for part, name in _KINDS if part in text), "state")
            files[kind] += 1
            size[kind] += path.stat().st_size
    return Left(runs, files, size, nothing)


def measured(root: Path, runs: int, at: Sequence[int], tables: Sequence[str]) -> Iterator[Left]:
    project = instep.load(root)
    if tables:  # One session for all runs: a start of Spark takes longer than what is measured.
        from pyspark.sql import SparkSession

        quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR"}
        spark = SparkSession.builder.master("local[2]").config(map=quiet).getOrCreate()
        project = instep.Instep(project.project, spark=spark)
    moments = [datetime.now(UTC)] * ROWS
    for number in range(runs):
        write(root, number, tables, moments)
        if odd := [each for each in project.run() if each.state is not JobState.COMPLETED]:
            raise SystemExit(f"run {number + 1}: {odd}")
        if number + 1 in at:
            time.sleep(2.0)  # The engine in process closes.
            if number + 1 == BEFORE:
                shutil.copytree(root, root.with_name(COPY))
            yield left(root, number + 1, nothing(root))


def nothing(root: Path) -> float:
    """Seconds of the processor of a run that finds nothing."""
    found = subprocess.run([sys.executable, "-c", _NOTHING, root], check=True, capture_output=True, text=True)
    return float(found.stdout)


def shown(found: Left) -> str:
    kinds = [f"{name}: {found.files[name]:,} files, {found.size[name] / 1e6:.2f} MB" for name in sorted(found.files)]
    total = f"{found.files.total():,} files, {found.size.total() / 1e6:.2f} MB"
    return f"{found.runs:>6,}  {total}, nothing changed {found.nothing * 1000:.0f} ms  ({'; '.join(kinds)})"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--retention", default="")
    parser.add_argument("--target", default="clickhouse", choices=["clickhouse", "lance"])
    parser.add_argument("--documents-only", action="store_true", help="without tables, and so without Spark")
    given = parser.parse_args()
    tables = () if given.documents_only else _NAMES
    at = [1, *(each for each in (10, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000) if each < given.runs), given.runs]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "project")
        root.mkdir()
        retention = f"retention: {given.retention}\n" if given.retention else ""
        text = _PROJECT.format(retention=retention, target=given.target)
        (root / "instep.yaml").write_text(text + "".join(_TABLE.format(name=each) for each in tables))
        all_found = []
        for found in measured(root, given.runs, at, tables):
            all_found.append(found)
            print(shown(found), flush=True)
        before = next((each for each in all_found if each.runs == BEFORE), None)
        if before is None or found is before:
            return 0
        turns = [(nothing(root.with_name(COPY)), nothing(root)) for _ in range(TURNS)]
    then, now = map(min, zip(*turns, strict=True))
    print(
        f"in turns: nothing changed {then * 1000:.0f} ms after {BEFORE} runs, {now * 1000:.0f} ms after {found.runs:,}"
    )
    ratios = {
        "files": (found.files.total() / before.files.total(), GOAL_SIZE),
        "bytes": (found.size.total() / before.size.total(), GOAL_SIZE),
        "nothing changed": (now / then, GOAL_TIME),
    }
    for name, (ratio, goal) in ratios.items():
        print(f"{name}: {ratio:.2f} times those after 100 runs, goal {goal}: {'met' if ratio <= goal else 'MISSED'}")
    return 0 if all(ratio <= goal for ratio, goal in ratios.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
