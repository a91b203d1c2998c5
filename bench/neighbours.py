"""Noisy neighbours: does an entity a hundred times larger delay the others, when each has a worker of its own?

    python -m bench.neighbours [--rows 20000] [--times 100] [--repeats 3]

Four entities are wanted, once by themselves and once when the first waves of a large one are on Spark already.
Measured is, for each of the four, the time from the want until it is indexed.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import threading
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from bench.environment import WORK, describe_machine
from bench.report import show
from bench.tables import write_source
from instep.container import Container
from instep.domain.events import WantCreated
from instep.domain.refs import GLOBAL, PartitionRef
from instep.jobs.serve import serve_each_entity
from instep.ledger.ledger import Ledger
from instep.pipeline.engine.session import LazySpark
from instep.pipeline.engine.settings import SparkSettings
from instep.project import Project
from instep.telemetry.progress import Silent

SMALL = ("Author", "Label", "Milestone", "Note")
LARGE = "Job"
GOAL = 1.2
WAIT_SECONDS = 600.0


def project(root: Path) -> Project:
    def entity(folder: str) -> Mapping[str, Any]:
        source = {"type": "spark", "path": str(WORK / "neighbours" / folder)}
        return {"source": source, "key": ["id"], "watermark": "updated_at"}

    entities = {name: entity("small") for name in SMALL} | {LARGE: entity("large")}
    targets = {"index": {"type": "lance", "uri": "index"}}
    return Project.model_validate({"name": "bench", "root": root, "targets": targets, "entities": entities})


def seconds(spark: Any, *, noisy: bool) -> dict[str, float]:
    """For each small entity, from the want until it is indexed."""
    root = WORK / "neighbours" / "project"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    container = Container(project(root), spark=spark)
    with closing(container), closing(container.ledger()) as ledger:
        setups, context = container.setups(), container.context(ledger, Silent())
        if noisy:
            _want(ledger, LARGE)
        small = {} if noisy else {name: _want(ledger, name) for name in SMALL}
        began = time.perf_counter()
        worker = threading.Thread(
            target=lambda: serve_each_entity(setups, context, setups_of=container.setups_of, until_idle=True)
        )
        worker.start()
        if noisy:
            _until_claimed(ledger)
            began = time.perf_counter()
            small = {name: _want(ledger, name) for name in SMALL}
        done = {name: found - began for name, found in _done(ledger, small).items()}
        if noisy:
            if not ledger.open_parts.on([PartitionRef(LARGE, GLOBAL)]):
                raise RuntimeError("the large entity was done before the others: take more --times")
            _stop(ledger)
        worker.join(WAIT_SECONDS)
    return done


def _want(ledger: Ledger, name: str) -> str:
    ledger.events.append([WantCreated(want=name, refs=(f"{name}@global",))])
    return name


def _done(ledger: Ledger, wanted: Mapping[str, str]) -> dict[str, float]:
    """When each was there."""
    found: dict[str, float] = {}
    deadline = time.perf_counter() + WAIT_SECONDS
    while len(found) < len(wanted):
        if time.perf_counter() > deadline:
            raise RuntimeError(f"{wanted.keys() - found.keys()} did not come in {WAIT_SECONDS:.0f} s")
        for name, id in wanted.items():
            want = ledger.wants.get(id)
            if name not in found and want is not None and want.state.ended:
                found[name] = time.perf_counter()
        time.sleep(0.01)
    return found


def _until_claimed(ledger: Any) -> None:
    """Until its first wave is on Spark."""
    ref = PartitionRef(LARGE, GLOBAL)
    while not any(each.processing for each in ledger.open_parts.on([ref])):
        time.sleep(0.05)


def _stop(ledger: Any) -> None:
    for job in ledger.jobs.newest():
        if not job.state.ended:
            ledger.jobs.request_stop(job.id, "the others are done")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.neighbours", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print(", ".join(f"{name} {value}" for name, value in describe_machine().items()) + "\n")
    write_source(WORK / "neighbours" / "small", options.rows)
    write_source(WORK / "neighbours" / "large", options.rows * options.times)
    lazy = LazySpark(SparkSettings(master="local[*]", scans=True))
    alone: dict[str, list[float]] = {name: [] for name in SMALL}
    beside: dict[str, list[float]] = {name: [] for name in SMALL}
    try:
        spark = lazy.get()
        seconds(spark, noisy=False)  # Python workers and the compiler are warm.
        for _ in range(options.repeats):
            for found, noisy in ((alone, False), (beside, True)):
                for name, taken in seconds(spark, noisy=noisy).items():
                    found[name].append(taken)
    finally:
        lazy.close()
    rows = [_row(name, alone[name], beside[name]) for name in SMALL]
    worst = max(max(alone[name][at] for name in SMALL) for at in range(options.repeats))
    noisy_worst = max(max(beside[name][at] for name in SMALL) for at in range(options.repeats))
    ratio = noisy_worst / worst
    rows.append(["the last of them", f"{worst:.2f}", f"{noisy_worst:.2f}", f"{ratio:.2f} x", _met(ratio)])
    heads = ["entity", "alone, s", f"beside one {options.times} x larger, s", "", f"goal {GOAL} x"]
    show(f"{len(SMALL)} entities of {options.rows:,} rows", heads, rows)


def _row(name: str, alone: list[float], beside: list[float]) -> list[str]:
    ratio = statistics.median(beside) / statistics.median(alone)
    texts = [f"{statistics.median(each):.2f} ({' '.join(f'{one:.2f}' for one in each)})" for each in (alone, beside)]
    return [name, *texts, f"{ratio:.2f} x", _met(ratio)]


def _met(ratio: float) -> str:
    return "met" if ratio <= GOAL else "MISSED"


if __name__ == "__main__":
    main()
