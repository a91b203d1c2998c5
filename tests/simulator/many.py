"""Many schedules, in all processors: `python -m tests.simulator --schedules 1000000 --ledger memory --seed 1`."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from pathlib import Path

from .ledgers import server_kept, sqlite_kept
from .simulation import Product, Report, Simulation, command, play

#: Schedules that one process plays before it says how they went.
BATCH = 200


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description=__doc__)
    parser.add_argument("--schedules", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first schedule; the others follow")
    parser.add_argument("--ledger", choices=("memory", "sqlite", "postgresql", "mariadb"), default="memory")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--history", action="store_true", help="print each call of a single schedule")
    options = parser.parse_args()
    if options.history:
        return _tell(options.seed, options.ledger)
    return _many(options.seed, options.schedules, options.ledger, options.processes)


def _many(first: int, schedules: int, ledger: str, processes: int) -> int:
    began, shown, done, broken = time.monotonic(), 0.0, 0, 0
    counters: Counter[str] = Counter()
    context = multiprocessing.get_context("spawn")
    batches = [range(start, min(start + BATCH, first + schedules)) for start in range(first, first + schedules, BATCH)]
    with ProcessPoolExecutor(min(processes, len(batches)), mp_context=context) as pool:
        for future in as_completed([pool.submit(_batch, ledger, batch) for batch in batches]):
            number, counted, failed = future.result()
            done += number
            counters.update(counted)
            for report in failed:
                broken += 1
                print(_failure(report, ledger), flush=True)
            took = time.monotonic() - began
            if took - shown > 10 or done == schedules:
                shown = took
                print(f"{done:,} of {schedules:,} schedules, {done / took:,.0f} a second, {broken} broken", flush=True)
    print("\n".join(f"  {name}: {number:,}" for name, number in sorted(counters.items())))
    return 1 if broken else 0


def _batch(ledger: str, seeds: range) -> tuple[int, Counter[str], list[Report]]:
    counters: Counter[str] = Counter()
    failed = []
    for report in reports(seeds, _product(ledger)):
        counters.update(report.counters)
        if report.broken:
            failed.append(report)
    return len(seeds), counters, failed


def reports(seeds: range, product: Product) -> Iterator[Report]:
    return (play(seed, product) for seed in seeds)


@cache
def _product(ledger: str) -> Product:
    if ledger == "memory":
        return Product()
    if ledger == "sqlite":
        return sqlite_kept(Path(tempfile.mkdtemp(prefix="instep-simulator-"))).product
    return server_kept(ledger).product


def _failure(report: Report, ledger: str) -> str:
    return "\n  ".join([f"seed {report.seed} ({command(report.seed, ledger)})", *report.broken])


def _tell(seed: int, ledger: str) -> int:
    simulation = Simulation(seed, _product(ledger))
    report = simulation.run()
    for event in simulation.world.history:
        answer = repr(event.error if event.error is not None else event.result)
        call = f"{event.kind}.{event.name}{event.args!r}"
        print(f"{event.at / 1000:10.3f} s  {event.process:10} {call:.120} -> {answer:.120}")
    for process in simulation.processes:
        if process.error is not None:
            print(f"{process.name} ended with {process.error!r}")
    print("\n".join(report.broken) or "nothing is broken")
    return 1 if report.broken else 0
