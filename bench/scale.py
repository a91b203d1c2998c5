"""What a large corpus costs to plan and to compare, run inline: `python -m bench.scale` (goals of issue 20).

Rows of a Parquet table, 200 characters each, are planned, indexed, compared when nothing has changed, and when one in a
thousand has. Beside it a bare process (`bare_rows.py`) does the same work, in the same run, with start included.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from bench import measure, report
from bench.environment import ROOT, virtual_environment

DOCUMENTS, REPEATS, CHARACTERS, EVERY = 1_000_000, 3, 200, 1_000
INSTEP, BARE = "instep", "bare"
#: Seconds and megabytes at most, at 1,000,000 documents.
GOALS = {"plan of a first build": (4.0, 400), "nothing changed": (2.0, 250)}
#: Times the bare side at most.
RATIOS = {"first run": 1.5}
_PROJECT = """\
name: bench
engine: inline
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


def table(documents: int, changed: int = 0) -> pa.Table:
    """Texts repeat but for their number; a changed row has another version and another text."""
    draw = random.Random(1)
    texts = [" ".join(draw.choices(_WORDS, k=50)) for _ in range(2_000)]
    step = documents // changed if changed else documents + 1
    versions = [2 if changed and number % step == 0 else 1 for number in range(documents)]
    made = [
        f"{number} {version} {texts[number % len(texts)]}"[:CHARACTERS].ljust(CHARACTERS, ".")
        for number, version in enumerate(versions)
    ]
    return pa.table({"id": pa.array(range(documents)), "text": made, "version": versions})


def sides(bin: Path, folder: Path, documents: int, repeats: int) -> dict[tuple[str, str], list[measure.Measured]]:
    """What each case cost on each side."""
    found: dict[tuple[str, str], list[measure.Measured]] = defaultdict(list)
    before, after = table(documents), table(documents, max(1, documents // EVERY))
    for number in range(repeats):
        here = folder / str(number)
        file = here / "data" / "rows.parquet"
        (here / "bare").mkdir(parents=True)
        file.parent.mkdir()
        (here / "instep.yaml").write_text(_PROJECT)
        commands: dict[str, list[str | Path]] = {
            INSTEP: [bin / "instep", "run"],
            BARE: [bin / "python", "-P", ROOT / "bench" / "bare_rows.py", file, here / "bare"],
        }
        pq.write_table(before, file, row_group_size=100_000)
        plan: list[str | Path] = [bin / "python", "-c", "import instep; assert instep.load('.').plan()[0].pending"]
        found["plan of a first build", INSTEP].append(measure.run(plan, folder=here))
        for case in ("first run", "nothing changed", f"1 in {EVERY:,} changed"):
            if case.startswith("1 in"):
                pq.write_table(after, file, row_group_size=100_000)
            for side, command in commands.items():
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


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=DOCUMENTS)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--here", action="store_true", help="measure the environment that runs this, not a wheel")
    options = parser.parse_args(arguments)
    bin = Path(sys.executable).parent if options.here else virtual_environment()
    with tempfile.TemporaryDirectory() as folder:
        found = sides(bin, Path(folder), options.documents, options.repeats)
    heads = ["case", "side", "seconds", "CPU s", "peak MB", "x bare", "goal", ""]
    rows = rows_of(found, options.documents)
    report.show(f"{options.documents:,} documents", heads, rows)
    if any("MISSED" in row for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
