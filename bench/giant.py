"""One document of 100 MB among 10,000 small ones: do the small ones wait for it?

    python -m bench.giant [--documents 10000] [--bytes 100000000] [--repeats 3] [--engine inline]

Measured is the time from the start of a first run until the last slice of small documents is durable in the index, by
the clock of the ledger: alone, and beside the large one.
"""

from __future__ import annotations

import argparse
import shutil
import sqlite3
import statistics
import time
from contextlib import closing
from pathlib import Path

from bench import corpus
from bench.environment import WORK, describe_machine
from bench.report import show
from instep import Instep
from instep.project import Project

GOAL = 1.3


def write_giant(path: Path, size: int) -> None:
    """Words of the corpus, over and over."""
    writer = corpus.Writer(1)
    with path.open("w", encoding="utf-8") as file:
        while file.tell() < size:
            file.write(writer.document())


def seconds(docs: Path, engine: str) -> float:
    """Until the small ones are durable. The run itself goes on to its end."""
    root = WORK / "giant" / "project"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    source = {"type": "files", "path": str(docs)}
    targets = {"index": {"type": "lance", "uri": "index"}}
    project = Project.model_validate(
        {"name": "bench", "root": root, "targets": targets, "entities": {"Document": {"source": source}}}
    )
    began = time.time()
    (result,) = Instep(project).run(engine=engine)
    if str(result.state) != "COMPLETED":
        raise SystemExit(f"the run ended {result.state}: {result.notes}")
    with closing(sqlite3.connect(project.state_dir / "ledger.db")) as ledger:
        (last,) = ledger.execute("SELECT max(finished_at) FROM slices WHERE units > 1").fetchone()
    return float(last / 1_000 - began)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.giant", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--documents", type=int, default=10_000)
    parser.add_argument("--bytes", type=int, default=100_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--engine", default="inline")
    options = parser.parse_args()
    print(", ".join(f"{name} {value}" for name, value in describe_machine().items()) + "\n")
    docs, giant = WORK / "giant" / "docs", WORK / "giant" / "docs" / "giant.md"
    shutil.rmtree(docs, ignore_errors=True)
    corpus.generate(docs, options.documents)
    alone: list[float] = []
    beside: list[float] = []
    for _ in range(options.repeats):
        giant.unlink(missing_ok=True)
        alone.append(seconds(docs, options.engine))
        write_giant(giant, options.bytes)
        beside.append(seconds(docs, options.engine))
    ratio = statistics.median(beside) / statistics.median(alone)
    texts = [f"{statistics.median(each):.2f} ({' '.join(f'{one:.2f}' for one in each)})" for each in (alone, beside)]
    show(
        f"{options.documents:,} documents beside one of {options.bytes:,} bytes, {options.engine}",
        ["alone, s", "beside it, s", "", f"goal {GOAL} x"],
        [[*texts, f"{ratio:.2f} x", "met" if ratio <= GOAL else "MISSED"]],
    )


if __name__ == "__main__":
    main()
