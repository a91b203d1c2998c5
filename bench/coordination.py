"""What coordination costs a job: statistics of a large one, and the ledger's share of one on Spark.

`python -m bench.coordination`. Statistics are what every worker that looks for work, and every status, asks for.
The ledger's share is the sum of the time that calls of a ledger on PostgreSQL took, over the wall time of the run.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.doubles.through import through
from tests.servers.mariadb import MariadbServer

from bench import corpus, report
from bench.queues import REF, fill_ledger
from bench.run import say
from bench.servers import DurablePostgres
from instep.container import Container
from instep.domain.counts import Counts
from instep.domain.waves import SliceOutcome
from instep.entities.plan_request import PlanOptions
from instep.jobs.run import run_entities
from instep.ledger.open import open_ledger
from instep.project.load import load_project
from instep.system import SystemClock
from instep.telemetry.progress import Silent

SLICES, REPEAT = 50_000, 40
BUCKETS, DOCUMENTS = 1_000, 20_000

STATISTICS_MS, LEDGER_SHARE = 50.0, 0.05

PROJECT = """\
name: bench
engine: spark
ledger: {ledger}
targets: {{index: {{type: lance, uri: .instep/index}}}}
entities:
  Document:
    source: {{type: files, path: {corpus}, include: ["**/*.md"]}}
    chunk: {{size: 800, overlap: 0}}
    embed: {{type: hashing, dimensions: 384}}
    buckets: {buckets}
"""


@dataclass(frozen=True, slots=True)
class Statistics:
    """How long one kind of question took, in milliseconds."""

    ledger: str
    question: str
    times: Sequence[float]

    @property
    def median(self) -> float:
        return statistics.median(self.times)

    @property
    def p95(self) -> float:
        return statistics.quantiles(self.times, n=20, method="inclusive")[-1]

    @property
    def met(self) -> bool:
        return self.p95 < STATISTICS_MS


def ask(name: str, url: str, slices: int, repeat: int) -> list[Statistics]:
    """Half of the job's slices are done, some are in work."""
    say(f"statistics on {name}")
    with closing(open_ledger(url, clock=SystemClock())) as ledger:
        part = fill_ledger(ledger, "job", slices)
        worker = "planner-job"
        while sum(each.processing + each.pending for each in ledger.open_parts.on([REF])) > slices // 2:
            claims = ledger.slices.claim("job", REF, worker, work=2**40, limit=1_000)
            outcomes = [SliceOutcome(each.slice_id, each.fence, Counts(read=1, written=1)) for each in claims]
            ledger.slices.complete(part, worker, outcomes, job_id="job")
        assert ledger.slices.claim("job", REF, worker, work=2**40, limit=64)
        questions: dict[str, Callable[[], object]] = {
            "job": lambda: ledger.jobs.get("job"),
            "latest_job": lambda: ledger.jobs.latest(REF),
            "open_parts": lambda: ledger.open_parts.on([REF]),
        }
        found = []
        for question, call in questions.items():
            call()  # Without the first question, which meets an empty cache.
            found.append(Statistics(name, question, [_milliseconds(call) for _ in range(repeat)]))
    return found


def _milliseconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1000


class Timed:
    """Sums up how long calls of a ledger take, heartbeats in the background included."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.calls: Counter[str] = Counter()

    def call(self, name: str, real: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        began = time.perf_counter()
        try:
            return real(*arguments, **named)
        finally:
            self.seconds[name] += time.perf_counter() - began
            self.calls[name] += 1


@dataclass(frozen=True, slots=True)
class Share:
    """A run's wall seconds, and the ledger's of them."""

    slices: int
    wall: float
    seconds: dict[str, float]
    calls: dict[str, int]

    @property
    def share(self) -> float:
        return sum(self.seconds.values()) / self.wall

    @property
    def met(self) -> bool:
        return self.share < LEDGER_SHARE


def spark_job(url: str, folder: Path, *, documents: int, buckets: int, engine: str = "spark") -> Share:
    """An initial run of as many slices as buckets, the session's start left out."""
    say(f"{documents:,} documents in {buckets:,} slices, {engine}")
    corpus.generate(folder / "corpus", documents)
    text = PROJECT.format(ledger=url, corpus=folder / "corpus", buckets=buckets)
    (folder / "instep.yaml").write_text(text)
    container = Container(load_project(folder / "instep.yaml"), engine=engine)
    with closing(container), closing(container.ledger()) as ledger:
        timed = Timed()
        setups = container.setups()
        for setup in setups:
            container.engines.prepare(setup)
        began = time.perf_counter()
        [result] = run_entities(
            setups,
            container.context(through(ledger, timed.call), Silent()),
            PlanOptions(),
            wait_seconds=0,
        )
        wall = time.perf_counter() - began
        job = ledger.jobs.latest(setups[0].ref)
    assert job is not None
    states = {str(state): number for state, number in job.slices.items()}
    if set(states) != {"COMPLETED"} or job.counts.written != documents:
        raise RuntimeError(f"the job did not do everything: {states}, {job.counts}, {result}")
    return Share(states["COMPLETED"], wall, dict(timed.seconds), dict(timed.calls))


def statistics_rows(found: Sequence[Statistics]) -> tuple[list[str], list[list[str]]]:
    heads = ["ledger", "question", "median", "95 %", f"goal {STATISTICS_MS:g} ms"]
    return heads, [
        [each.ledger, each.question, f"{each.median:.1f} ms", f"{each.p95:.1f} ms", "met" if each.met else "MISSED"]
        for each in found
    ]


def share_rows(share: Share) -> tuple[list[str], list[list[str]]]:
    heads = ["call", "times", "seconds", "share", f"goal {LEDGER_SHARE:.0%}"]
    most = sorted(share.seconds, key=lambda name: -share.seconds[name])[:6]
    lines = [
        [name, f"{share.calls[name]:,}", f"{share.seconds[name]:.3f}", f"{share.seconds[name] / share.wall:.2%}", ""]
        for name in most
    ]
    verdict = "met" if share.met else "MISSED"
    total = [f"all, of {share.wall:.1f} s", f"{sum(share.calls.values()):,}", f"{sum(share.seconds.values()):.3f}"]
    return heads, [*lines, [*total, f"{share.share:.2%}", verdict]]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--slices", type=int, default=SLICES, help="of the job that is asked about")
    parser.add_argument("--buckets", type=int, default=BUCKETS, help="and so slices, of the job on Spark")
    parser.add_argument("--documents", type=int, default=DOCUMENTS)
    parser.add_argument("--only", choices=("statistics", "spark"))
    options = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix="instep-bench-"))
    postgres = DurablePostgres()
    met: list[bool] = []
    try:
        postgres.start()
        if options.only != "spark":
            asked = ask("PostgreSQL", postgres.create("asked"), options.slices, REPEAT)
            asked += ask("SQLite", f"sqlite:///{folder / 'ledger.db'}", options.slices, REPEAT)
            if shutil.which("mariadbd", path="/usr/sbin:/usr/local/sbin:/usr/bin"):
                asked += _ask_mariadb(options.slices)
            report.show(f"Statistics of a job of {options.slices:,} slices", *statistics_rows(asked))
            met += [each.met for each in asked]
        if options.only != "statistics":
            share = spark_job(postgres.create("job"), folder, documents=options.documents, buckets=options.buckets)
            report.show(f"Calls of the ledger in a job of {share.slices:,} slices on Spark", *share_rows(share))
            met.append(share.met)
    finally:
        postgres.stop()
        shutil.rmtree(folder)
    sys.exit(0 if all(met) else 1)


def _ask_mariadb(slices: int) -> list[Statistics]:
    server = MariadbServer()
    try:
        server.start()
        server.execute("CREATE DATABASE asked")
        return ask("MariaDB", server.url("asked"), slices, REPEAT)
    finally:
        server.stop()


if __name__ == "__main__":
    main()
