"""Many schedules, in all processors: `python -m tests.simulator --schedules 1000000 --ledger model --seed 1`."""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import os
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import Any

from .ledgers import server_kept, sqlite_ledger
from .simulation import Product, Report, Simulation, command, play

#: Schedules that one process plays before it says how they went.
BATCH = 200
#: Schedules after which their memory is collected.
COLLECT = 50


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description=__doc__)
    parser.add_argument("--schedules", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first schedule; the others follow")
    parser.add_argument("--ledger", choices=("model", "sqlite", "postgresql", "mariadb"), default="model")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--history", action="store_true", help="print each call of a single schedule")
    options = parser.parse_args()
    if options.history:
        return _tell(options.seed, options.ledger)
    return _many(options.seed, options.schedules, options.ledger, options.processes)


@dataclass
class Tally:
    """How many schedules went how."""

    schedules: int = 0
    steps: int = 0
    counters: Counter[str] = field(default_factory=Counter)
    failed: list[Report] = field(default_factory=list)

    def count(self, report: Report) -> None:
        self.schedules += 1
        self.steps += report.steps
        self.counters.update(report.counters)
        if report.broken:
            self.failed.append(report)

    def add(self, other: Tally) -> None:
        self.schedules += other.schedules
        self.steps += other.steps
        self.counters.update(other.counters)
        self.failed += other.failed

    def summary(self, first: int, ledger: str, seconds: float) -> dict[str, Any]:
        return {
            "ledger": ledger,
            "schedules": self.schedules,
            "seeds": [first, first + self.schedules - 1],
            "steps": self.steps,
            "crashes": self._sum("crash before", "crash after", "kill from outside"),
            "takeovers": self._sum("takeovers"),
            "refused_writes": self._sum("refused by ledger", "refused by target"),
            "failures": len(self.failed),
            "seconds": round(seconds),
        }

    def _sum(self, *names: str) -> int:
        return sum(self.counters[name] for name in names)


def _many(first: int, schedules: int, ledger: str, processes: int) -> int:
    began, shown, tally = time.monotonic(), 0.0, Tally()
    context = multiprocessing.get_context("spawn")
    batches = [range(start, min(start + BATCH, first + schedules)) for start in range(first, first + schedules, BATCH)]
    with ProcessPoolExecutor(min(processes, len(batches)), mp_context=context, initializer=_begin) as pool:
        for future in as_completed([pool.submit(_batch, ledger, batch) for batch in batches]):
            done = future.result()
            tally.add(done)
            for report in done.failed:
                print(_failure(report, ledger), flush=True)
            took = time.monotonic() - began
            if took - shown > 10 or tally.schedules == schedules:
                shown = took
                print(_progress(tally, schedules, took), flush=True)
    print("\n".join(f"  {name}: {number:,}" for name, number in sorted(tally.counters.items())))
    print(json.dumps(tally.summary(first, ledger, time.monotonic() - began)))
    return 1 if tally.failed else 0


def _progress(tally: Tally, schedules: int, took: float) -> str:
    rate = tally.schedules / took
    left = timedelta(seconds=round((schedules - tally.schedules) / rate))
    done = f"{tally.schedules:,} of {schedules:,} schedules, {rate:,.0f} a second, {left} left"
    return f"{done}, {len(tally.failed)} broken"


def _begin() -> None:
    """What is imported stays: the collector need not look at it again and again."""
    gc.freeze()
    gc.disable()


def _batch(ledger: str, seeds: range) -> Tally:
    tally = Tally()
    for number, seed in enumerate(seeds):
        tally.count(play(seed, _product(ledger)))
        if number % COLLECT == 0:  # Each leaves its whole world behind, in cycles.
            gc.collect()
    return tally


@cache
def _product(ledger: str) -> Product:
    if ledger == "model":
        return Product()
    if ledger == "sqlite":
        return Product(ledger=sqlite_ledger)
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
