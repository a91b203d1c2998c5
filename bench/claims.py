"""How quickly jobs are claimed and completed, beside a bare loop and known queues: `python -m bench.claims`.

PostgreSQL with the durability it has by default, worker processes of their own, the same payload for all. In each
round every side takes its turn on a database of its own; the median of the rounds counts, and ratios are of
medians from the same run. After each turn every job must have been completed exactly once.

*old snapshot*: a reader holds a snapshot from before the jobs were made, and several jobs of the same size have
been worked through under it, whose dead rows nothing can clear away.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing.queues import Queue as Results
from multiprocessing.synchronize import Barrier

import psycopg

from bench import report
from bench.queues import Bare, Drained, Ours, Pgqueuer, Procrastinate, Queue
from bench.run import say
from bench.servers import DURABILITY, DurablePostgres

JOBS, WORKERS, ROUNDS = 50_000, 8, 3
BATCHES = (1, 10, 50)
#: Jobs worked through under the old snapshot before the one that is measured.
CHURN = 4

GOAL, GOAL_OLD_SNAPSHOT, GOAL_OTHERS = 0.8, 0.7, 1.0

#: A process that is stuck must not keep the benchmark for ever.
_PATIENCE = 900


@dataclass(slots=True)
class Cell:
    """One side at one batch size: jobs per second in each round."""

    side: str
    batch: int
    rates: list[float] = field(default_factory=list)
    churn: int | None = None

    @property
    def rate(self) -> float:
        return statistics.median(self.rates)


@dataclass(frozen=True, slots=True)
class Goal:
    what: str
    at_least: float
    reached: float

    @property
    def verdict(self) -> str:
        return "met" if self.reached >= self.at_least else "MISSED"


class Bench:
    """A server, and the databases on it that the sides start from."""

    def __init__(self, server: DurablePostgres, jobs: int, workers: int) -> None:
        self._server = server
        self._jobs = jobs
        self._workers = workers
        self._templates: dict[str, str] = {}

    def turn(self, queue: Queue, batch: int, *, jobs: int | None = None, churn: int | None = None) -> float:
        """Jobs per second of all workers together. `churn`: under a snapshot older than all jobs, after so many."""
        jobs = jobs or self._jobs
        name, url = self._server.copy(self._template(queue))
        with ExitStack() as reader:
            if churn is not None:
                connection = reader.enter_context(psycopg.connect(url))
                connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                connection.execute("SELECT 1")
            for _ in range(churn or 0):
                queue.fill(url, jobs)
                self._drain(queue, url, max(batch, 50), jobs)
            queue.fill(url, jobs)
            self._server.execute("CHECKPOINT")
            rate = self._drain(queue, url, batch, jobs)
            queue.check(url, jobs * (1 + (churn or 0)))
        self._server.drop(name)
        return rate

    def best_batch(self, queue: Queue, batches: Sequence[int]) -> int:
        """By a run of a tenth of the size with each."""
        return max(batches, key=lambda batch: self.turn(queue, batch, jobs=max(self._workers, self._jobs // 10)))

    def _template(self, queue: Queue) -> str:
        kind = type(queue).__name__.lower()
        if kind not in self._templates:
            queue.install(self._server.create(kind))
            self._templates[kind] = kind
        return kind

    def _drain(self, queue: Queue, url: str, batch: int, jobs: int) -> float:
        context = multiprocessing.get_context("spawn")
        barrier, results = context.Barrier(self._workers), context.Queue()
        workers = [
            context.Process(target=_work, args=(queue, url, batch, number, barrier, results), daemon=True)
            for number in range(self._workers)
        ]
        for each in workers:
            each.start()
        drained: list[Drained | str] = [results.get(timeout=_PATIENCE) for _ in workers]
        for each in workers:
            each.join()
        if failed := [each for each in drained if isinstance(each, str)]:
            raise RuntimeError(f"{queue.name}: a worker failed: {failed[0]}")
        ended = [each for each in drained if isinstance(each, Drained)]
        done = sum(each.jobs for each in ended)
        if done != jobs:
            raise RuntimeError(f"{queue.name}: {done} jobs were done of {jobs}")
        return jobs / (max(each.ended for each in ended) - min(each.began for each in ended))


def _work(queue: Queue, url: str, batch: int, number: int, barrier: Barrier, results: Results[Drained | str]) -> None:
    try:
        results.put(queue.drain(url, batch, number, barrier.wait))
    except BaseException as error:
        barrier.abort()
        results.put(f"{type(error).__name__}: {error}")
        raise


def measure(bench: Bench, *, batches: Sequence[int], rounds: int, churn: int, others: bool) -> list[Cell]:
    """Sides take turns, so that what else goes on in the machine is the same for all of them."""
    plan: list[tuple[Queue, Cell]] = []
    for batch in batches:
        plan += [(queue, Cell(queue.name, batch)) for queue in (Bare(), Ours())]
    largest = max(batches)
    plan += [(queue, Cell(queue.name, largest, churn=churn)) for queue in (Bare(), Ours())]
    if others:
        known: list[tuple[Queue, Sequence[int]]] = [(Pgqueuer(), (10, 50, 200)), (Procrastinate(), (1, 10, 50))]
        for queue, choices in known:
            plan.append((queue, Cell(queue.name, bench.best_batch(queue, choices))))
    for number in range(1, rounds + 1):
        for queue, cell in plan:
            cell.rates.append(bench.turn(queue, cell.batch, churn=cell.churn))
            old = "" if cell.churn is None else ", old snapshot"
            say(f"round {number}: {cell.side}, batches of {cell.batch}{old}: {cell.rates[-1]:,.0f}/s")
    return [cell for _, cell in plan]


def goals(cells: Sequence[Cell]) -> list[Goal]:
    rates = {(cell.side, cell.batch, cell.churn is not None): cell.rate for cell in cells}
    found = []
    for (side, batch, old), rate in rates.items():
        if side != Ours.name:
            continue
        bare = rates[Bare.name, batch, False]
        if old:
            found.append(
                Goal(
                    f"batches of {batch}, old snapshot: share of the bare loop without it",
                    GOAL_OLD_SNAPSHOT,
                    rate / bare,
                )
            )
        else:
            found.append(Goal(f"batches of {batch}: share of the bare loop", GOAL, rate / bare))
    best = max(rate for (side, _, old), rate in rates.items() if side == Ours.name and not old)
    others = {cell.side: cell.rate for cell in cells if cell.side not in (Ours.name, Bare.name)}
    found += [Goal(f"best batch: times {side}", GOAL_OTHERS, best / rate) for side, rate in others.items()]
    return found


def rows(cells: Sequence[Cell]) -> tuple[list[str], list[list[str]]]:
    bare = {cell.batch: cell.rate for cell in cells if cell.side == Bare.name and cell.churn is None}
    heads = ["side", "batch", "old snapshot", "jobs/s", "all rounds", "x bare loop"]
    return heads, [
        [
            cell.side,
            str(cell.batch),
            "" if cell.churn is None else "yes",
            f"{cell.rate:,.0f}",
            " ".join(f"{each:,.0f}" for each in cell.rates),
            f"{cell.rate / bare[cell.batch]:.2f}" if cell.batch in bare else "",
        ]
        for cell in cells
    ]


def goal_rows(found: Sequence[Goal]) -> tuple[list[str], list[list[str]]]:
    return ["goal", "at least", "reached", ""], [
        [each.what, f"{each.at_least:g}", f"{each.reached:.2f}", each.verdict] for each in found
    ]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--churn", type=int, default=CHURN)
    parser.add_argument("--quick", action="store_true", help="5,000 jobs, one round: for a first look")
    parser.add_argument("--alone", action="store_true", help="beside the bare loop only")
    options = parser.parse_args(arguments)
    if options.quick:
        options.jobs, options.rounds = 5_000, 1
    server = DurablePostgres()
    try:
        server.start()
        cells = measure(
            Bench(server, options.jobs, options.workers),
            batches=options.batches,
            rounds=options.rounds,
            churn=options.churn,
            others=not options.alone,
        )
    finally:
        server.stop()
    settings = ", ".join(f"{name} {value}" for name, value in DURABILITY.items())
    report.show(f"{options.jobs:,} jobs, {options.workers} processes, PostgreSQL with {settings}", *rows(cells))
    found = goals(cells)
    report.show("Goals", *goal_rows(found))
    if any(each.verdict == "MISSED" for each in found):
        sys.exit(1)


if __name__ == "__main__":
    main()
