"""What a large corpus costs to plan and to compare: `python -m bench.scale [--engine spark]`.

Rows of a Parquet table, 200 characters each, are planned, indexed, run again when nothing has changed, and compared
when one in a thousand has. Beside it a bare process does the same work, in the same run, with start included:
`bare_rows.py`, or with Spark on `local[2]` an anti-join of ids and versions with those that were recorded
(`bare_join.py`), a comparison only.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench import measure, report
from bench.environment import EXTRAS, ROOT, virtual_environment

DOCUMENTS, REPEATS, CHARACTERS, EVERY = 1_000_000, 3, 200, 1_000
_GROUP = 100_000
INSTEP, BARE = "instep", "bare"
#: Seconds and megabytes at most, at 1,000,000 documents.
GOALS = {"plan of a first build": (4.0, 400), "nothing changed": (2.0, 250)}
#: Times the bare side at most.
RATIOS = {"first run": 1.5}
#: With Spark: megabytes of Instep's own process and of the JVM, and the times that a case may take of another one.
MEGABYTES = {"own": 500, "jvm": 2_000}
CHANGED = f"1 in {EVERY:,} changed"
TIMES = {"nothing changed": (1.5, BARE), CHANGED: (3.0, INSTEP)}
_PROJECT = """\
name: bench
engine: ENGINE
spark: {master: 'local[2]'}
targets: {index: {type: lance, uri: .instep/index}}
entities:
  Document:
    source: {type: spark, path: data}
    document: {key: id, text: text, version: version}
    embed: {type: hashing, dimensions: 64}
"""
_WORDS = (
    "ebb",
    "flood",
    "moon",
    "water",
    "harbour",
    "tide",
    "neap",
    "spring",
    "level",
    "chart",
    "depth",
    "pilot",
    "stream",
)


def table(documents: int, changed: int = 0, *, first: int = 0, last: int | None = None) -> pa.Table:
    """Texts repeat but for their number; a changed row has another version and another text. `first` to `last`: of so
    many documents only these.
    """
    draw = random.Random(1)
    texts = [" ".join(draw.choices(_WORDS, k=50)) for _ in range(2_000)]
    step = documents // changed if changed else documents + 1
    numbers = range(first, documents if last is None else min(last, documents))
    versions = [2 if changed and number % step == 0 else 1 for number in numbers]
    made = [
        f"{number} {version} {texts[number % len(texts)]}"[:CHARACTERS].ljust(CHARACTERS, ".")
        for number, version in zip(numbers, versions, strict=True)
    ]
    return pa.table({"id": pa.array(numbers), "text": made, "version": versions})


def write(file: Path, documents: int, changed: int = 0) -> None:
    """The table, of which a row group at a time is in memory."""
    with pq.ParquetWriter(file, table(1).schema) as writer:
        for first in range(0, documents, _GROUP):
            writer.write_table(table(documents, changed, first=first, last=first + _GROUP))


def sides(
    bin: Path, folder: Path, documents: int, repeats: int, engine: str = "inline"
) -> dict[tuple[str, str], list[measure.Measured]]:
    """What each case cost on each side."""
    found: dict[tuple[str, str], list[measure.Measured]] = defaultdict(list)
    before, after, recorded = (folder / name for name in ("before.parquet", "after.parquet", "recorded.parquet"))
    write(before, documents)
    write(after, documents, max(1, documents // EVERY))
    pq.write_table(pq.read_table(before, columns=["id", "version"]), recorded)
    for number in range(repeats):
        here = folder / str(number)
        file = here / "data" / "rows.parquet"
        (here / "bare").mkdir(parents=True)
        file.parent.mkdir()
        (here / "instep.yaml").write_text(_PROJECT.replace("ENGINE", engine))
        bare: list[str | Path] = [ROOT / "bench" / "bare_rows.py", file, here / "bare"]
        if engine == "spark":
            bare = [ROOT / "bench" / "bare_join.py", file, recorded]
        commands: dict[str, list[str | Path]] = {
            INSTEP: [bin / "instep", "run"],
            BARE: [bin / "python", "-P", *bare],
        }
        shutil.copy(before, file)
        plan: list[str | Path] = [bin / "python", "-c", "import instep; assert instep.load('.').plan()[0].pending"]
        found["plan of a first build", INSTEP].append(measure.run(plan, folder=here))
        for case in ("first run", "nothing changed", CHANGED):
            if case == CHANGED:
                shutil.copy(after, file)
            for side, command in commands.items():
                if engine == "inline" or side == INSTEP or case != "first run":
                    found[case, side].append(measure.run(command, folder=here))
    return found


def rows_of(found: dict[tuple[str, str], list[measure.Measured]], documents: int) -> list[list[str]]:
    seconds = {key: statistics.median(each.seconds for each in runs) for key, runs in found.items()}
    rows = []
    for (case, side), runs in found.items():
        peak = max(each.peak_rss for each in runs) / 1_000_000
        bare = seconds.get((case, BARE))
        ratio = seconds[case, side] / bare if bare and side == INSTEP else None
        goal, verdict = "", ""
        if side == INSTEP and documents == DOCUMENTS and case in GOALS:
            most, megabytes = GOALS[case]
            goal = f"{most:g} s, {megabytes} MB"
            verdict = "met" if seconds[case, side] <= most and peak <= megabytes else "MISSED"
        elif ratio and case in RATIOS:
            goal = f"{RATIOS[case]:g} x"
            verdict = "met" if ratio <= RATIOS[case] else "MISSED"
        cpu = statistics.median(each.cpu for each in runs)
        shown = f"{ratio:.1f}" if ratio else ""
        rows.append([case, side, f"{seconds[case, side]:.2f}", f"{cpu:.1f}", f"{peak:,.0f}", shown, goal, verdict])
    return rows


def spark_rows_of(found: dict[tuple[str, str], list[measure.Measured]]) -> list[list[str]]:
    """The same for Spark, with the memory of Instep's own process and of the JVM apart."""
    seconds = {key: statistics.median(each.seconds for each in runs) for key, runs in found.items()}
    rows = []
    for (case, side), runs in found.items():
        own, jvm = (max(getattr(each, name) for each in runs) / 1_000_000 for name in ("own_rss", "jvm_rss"))
        goals, met = [], True
        if side == INSTEP and case != "first run":
            goals.append(f"{MEGABYTES['own']} and {MEGABYTES['jvm']:,} MB")
            met = own <= MEGABYTES["own"] and jvm <= MEGABYTES["jvm"]
            if case in TIMES:
                most, other = TIMES[case]
                ratio = seconds[case, side] / seconds["nothing changed", other]
                goals.append(f"{most:g} x nothing changed, {other}: {ratio:.1f}")
                met = met and ratio <= most
        cpu = statistics.median(each.cpu for each in runs)
        verdict = ("met" if met else "MISSED") if goals else ""
        shown = (f"{seconds[case, side]:.1f}", f"{cpu:.1f}", f"{own:,.0f}", f"{jvm:,.0f}")
        rows.append([case, side, *shown, "; ".join(goals), verdict])
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=DOCUMENTS)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--engine", choices=["inline", "spark"], default="inline")
    parser.add_argument("--here", action="store_true", help="measure the environment that runs this, not a wheel")
    options = parser.parse_args(arguments)
    bin = Path(sys.executable).parent if options.here else virtual_environment(*EXTRAS[options.engine])
    with tempfile.TemporaryDirectory() as folder:
        found = sides(bin, Path(folder), options.documents, options.repeats, options.engine)
    if options.engine == "spark":
        heads = ["case", "side", "seconds", "CPU s", "own MB", "JVM MB", "goal", ""]
        rows = spark_rows_of(found)
    else:
        heads = ["case", "side", "seconds", "CPU s", "peak MB", "x bare", "goal", ""]
        rows = rows_of(found, options.documents)
    report.show(f"{options.documents:,} documents", heads, rows)
    if any("MISSED" in row for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
