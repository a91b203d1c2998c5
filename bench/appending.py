"""How fast events are appended to a ledger and what follows from them is stored; a part of `python -m bench.events`.

The same made-up log for all, in batches as a busy ledger gets them, on a ledger that is new in each round. PostgreSQL
has the durability that it has by default. Times are seconds of the clock, because the server works too; after each
round the whole log is replayed, and must lead to what was stored.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.events import Log
from bench.servers import DurablePostgres
from instep.domain import events as e
from instep.ledger.ledger import Ledger
from instep.ledger.open import open_ledger
from instep.system import SystemClock

EVENTS, PARTITIONS, BATCHES = 20_000, 1_000, (1, 100)
GOAL = 2_000
#: Those that are appended one by one are fewer: each waits for the disk.
_SINGLE = 2_000


@dataclass(frozen=True, slots=True)
class Appended:
    """Events per second, in each round."""

    where: str
    batch: int
    rates: Sequence[float]

    def row(self) -> list[str]:
        rate = statistics.median(self.rates)
        verdict = ("met" if rate >= GOAL else "MISSED") if self.batch > 1 else ""
        return [
            f"append and project, {self.where}, {self.batch} at a time, events/s",
            f"at least {GOAL:,}" if self.batch > 1 else "",
            f"{rate:,.0f}",
            verdict,
            " ".join(f"{each:,.0f}" for each in self.rates),
        ]


def measure(events: int, rounds: int) -> list[Appended]:
    # It begins now: a ledger has its own clock, and by that some wants ask for what is fresh.
    rows = Log(2, PARTITIONS, start=SystemClock().now()).rows(events)
    log = [e.decode(kind, version, text) for _, _, kind, version, text in rows]
    new = [each for each in log if isinstance(each, e.Event)]
    with _new_sqlite() as sqlite, _new_postgres() as postgres:
        return [
            Appended(where, batch, [_rate(ledger, new, batch) for _ in range(rounds)])
            for where, ledger in (("SQLite", sqlite), ("PostgreSQL", postgres))
            for batch in BATCHES
        ]


def _rate(new_url: Callable[[], str], events: Sequence[e.Event], batch: int) -> float:
    ledger: Ledger = open_ledger(new_url(), clock=SystemClock())
    count = len(events) if batch > 1 else min(len(events), _SINGLE)
    ledger.events.append([])  # The first connection.
    started = time.perf_counter()
    for start in range(0, count, batch):
        ledger.events.append(events[start : min(start + batch, count)])
    seconds = time.perf_counter() - started
    verified = ledger.events.verify()
    ledger.close()
    if verified.events != count or verified.differences or verified.skipped:
        raise SystemExit(f"what is stored is not what the log leads to: {verified}")
    return count / seconds


@contextmanager
def _new_sqlite() -> Iterator[Callable[[], str]]:
    with tempfile.TemporaryDirectory() as folder:
        yield lambda: f"sqlite:///{Path(tempfile.mkdtemp(dir=folder)) / 'ledger.db'}"


@contextmanager
def _new_postgres() -> Iterator[Callable[[], str]]:
    server = DurablePostgres()
    try:
        server.start()
        open_ledger(server.create("events"), clock=SystemClock()).close()
        yield lambda: server.copy("events")[1]
    finally:
        server.stop()
