"""A first build on a standalone cluster of two executors of one core, beside `local[2]`, in warm sessions.

    python -m bench.cluster [--documents 100000] [--repeats 1]

Each side is a process with a Spark session of its own, in which a small entity is run first and not timed. The
executors are processes of this machine that get Instep with the session. `waves`: seconds in which Spark works on
some wave; `ledger` those in which the driver waits for a transaction of its ledger; the driver's CPU is that of its
Python and its JVM, the executors' that of theirs.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from bench import corpus
from bench.environment import WORK, describe_machine
from bench.report import show
from bench.sides import PROJECT, WARM_UP

LOCAL, TWO, ONE = "local[2]", "2 executors", "1 executor"
#: The goals of docs/benchmarks.md.
TIMES, SHARE, LEDGER, SPEED_UP = 1.25, 0.15, 0.05, 1.7


class Cost(NamedTuple):
    seconds: float
    waves: float
    ledger: float
    driver: float
    executors: float


class Stopwatch:
    """Seconds in which some call was under way, in whichever thread."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._under_way = 0
        self._since = 0.0
        self._lock = threading.Lock()

    def timing(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **more: Any) -> Any:
            with self._lock:
                self._under_way += 1
                if self._under_way == 1:
                    self._since = time.perf_counter()
            try:
                return call(*args, **more)
            finally:
                with self._lock:
                    self._under_way -= 1
                    if not self._under_way:
                        self.seconds += time.perf_counter() - self._since

        return timed


def measure(project: Path, master: str, cores: int) -> Cost:
    """One first build, in this process."""
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    import instep
    from instep.ledger.transaction import Database
    from instep.pipeline.engine.spark_engine import SparkEngine

    waves, ledger = Stopwatch(), Stopwatch()
    SparkEngine.run = waves.timing(SparkEngine.run)  # type: ignore[method-assign]
    Database._once = ledger.timing(Database._once)  # type: ignore[method-assign]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master)
    for key, value in {
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "768m",
        "spark.cores.max": str(cores),
        "spark.executor.cores": "1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    opened = instep.Instep(instep.load(project).project, spark=spark)
    opened.run(["Warm"], engine="spark")
    gateway: Any = SparkContext._gateway
    drivers = [psutil.Process(), psutil.Process(gateway.proc.pid)]
    application = spark.sparkContext.applicationId
    waves.seconds = ledger.seconds = 0.0
    before, started = (_cpu(drivers), _cpu(_executors(application))), time.perf_counter()
    (result,) = opened.run(["Document"], engine="spark")
    seconds = time.perf_counter() - started
    assert result.state == "COMPLETED", result
    used = _cpu(drivers) - before[0], _cpu(_executors(application)) - before[1]
    cost = Cost(seconds, waves.seconds, ledger.seconds, *used)
    spark.stop()
    return cost


def _executors(application: str) -> Iterator[psutil.Process]:
    """JVMs of an application's executors, and their Python processes."""
    for each in psutil.process_iter(["cmdline"]):
        command = each.info["cmdline"] or []
        if application in command and any("CoarseGrainedExecutorBackend" in word for word in command):
            yield from (each, *each.children(recursive=True))


def _cpu(processes: Iterable[psutil.Process]) -> float:
    """Of these, which all stay."""
    times = [each.cpu_times() for each in processes]
    return sum(each.user + each.system for each in times)


def compare(documents: int, repeats: int, sides: Sequence[str]) -> dict[str, list[Cost]]:
    from tests.servers.spark_cluster import SparkCluster

    docs, warm = WORK / f"corpus-{documents}", WORK / "corpus-2000"
    for folder, count in ((docs, documents), (warm, 2_000)):
        if not folder.exists():
            corpus.generate(folder, count)
    cluster = SparkCluster([])
    cluster.start()
    found: dict[str, list[Cost]] = {side: [] for side in sides}
    try:
        for _ in range(repeats):
            for side in sides:
                project = WORK / "cluster"
                shutil.rmtree(project, ignore_errors=True)
                project.mkdir(parents=True)
                text = PROJECT.format(engine="spark", corpus=docs) + WARM_UP.format(corpus=warm)
                (project / "instep.yaml").write_text(text)
                (project / ".instep" / "index").mkdir(parents=True)
                master, cores = (side, 2) if side == LOCAL else (cluster.master, 2 if side == TWO else 1)
                command = [sys.executable, "-m", "bench.cluster", "--measure", str(project), master, str(cores)]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                assert done.returncode == 0, done.stderr
                found[side].append(Cost(*json.loads(done.stdout.splitlines()[-1])))
                print(f"{side}: {found[side][-1].seconds:.1f} s", file=sys.stderr, flush=True)
    finally:
        cluster.stop()
        shutil.rmtree(WORK / "cluster", ignore_errors=True)
    return found


def _median(costs: Sequence[Cost]) -> Cost:
    return Cost(*(statistics.median(each) for each in zip(*costs, strict=True)))


def _table(documents: int, found: dict[str, list[Cost]]) -> None:
    medians = {side: _median(costs) for side, costs in found.items() if costs}
    show(
        f"{documents:,} documents, a first build in a warm session (medians of {len(next(iter(found.values())))})",
        ["side", "s", "waves, s", "ledger, s", "CPU of the driver, s", "CPU of the executors, s"],
        [[side, *(f"{value:.1f}" for value in cost)] for side, cost in medians.items()],
    )
    two = medians[TWO]
    rows = [
        _goal("2 executors against local[2]", "at most", TIMES, two.seconds / medians[LOCAL].seconds),
        _goal("driver's share of the CPU", "at most", SHARE, two.driver / (two.driver + two.executors)),
        _goal("ledger's share of the job", "at most", LEDGER, two.ledger / two.seconds),
    ]
    if ONE in medians:
        rows.append(_goal("waves, 1 executor against 2", "at least", SPEED_UP, medians[ONE].waves / two.waves))
    show("Goals", ["", "goal", "reached", ""], rows)


def _goal(what: str, bound: str, goal: float, reached: float) -> list[str]:
    well = reached <= goal if bound == "at most" else reached >= goal
    return [what, f"{bound} {goal:g}", f"{reached:.3f}", "met" if well else "MISSED"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--without-one", action="store_true", help="leave out the side of one executor, the longest")
    parser.add_argument("--measure", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        project, master, cores = given.measure
        print(json.dumps(measure(Path(project), master, int(cores))))
        return
    for name, value in describe_machine().items():
        print(f"{name}: {value}")
    sides = [LOCAL, TWO] if given.without_one else [LOCAL, TWO, ONE]
    _table(given.documents, compare(given.documents, given.repeats, sides))


if __name__ == "__main__":
    main()
