"""How near the order and size of claims come to the best: `python -m bench.makespan`.

Thousands of workers and one job, simulated: the real ledger in memory, the domain's policy (order of claims, fair
shares, stagger, learned pace, cutting what is too long) and the service's limits, on a virtual clock with a queue
of events. Only the work itself is made up: it takes as long as its size and the worker's speed say.

The makespan is compared with a lower bound: no schedule whatever ends before it. Every claim and completion waits
its turn at the ledger, which serves one after the other; *claim wait* is from wanting work to having it.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from tests.simulator.model import ModelLedger

from bench import report
from instep.domain.clock import TIMING
from instep.domain.counts import Counts
from instep.domain.instances import Reason
from instep.domain.jobs import Claim, JobPart, SlicePlan
from instep.domain.manifest import Action, DocumentChange, encode_changes
from instep.domain.planning import Pace, fair_share, learned_pace, lpt_bound, too_long, wave_work
from instep.domain.refs import PartitionRef
from instep.domain.waves import SliceOutcome
from instep.entities.setup import MOST_CLAIMS
from instep.ledger.leases import Lease
from instep.ledger.parts import NewPart

WORKERS, SLICES = 10_000, 50_000
GOAL = 1.1

#: Rows (chunks) per second of one worker: a small embedding model on a few cores.
SPEED = 500.0
#: Rows of a usual slice, and of the largest: a document that is longer than a slice is one of its own.
MEAN_WORK, MOST_WORK = 10_000, 40_000
#: Documents of a slice; it can be cut between them.
DOCUMENTS = 64
#: Statements per second that claim or complete, of all workers together: PostgreSQL on two cores, one slice at a time.
STATEMENTS = 3_000

_JOB, _REF = "job", PartitionRef("Document")


@dataclass(frozen=True, slots=True)
class Case:
    """Work of each slice, and speed of each worker (work per second)."""

    name: str
    works: Sequence[int]
    speeds: Sequence[float]

    @property
    def goal(self) -> float | None:
        """What is promised; the other case shows what unequal workers make of it."""
        return GOAL if len(set(self.speeds)) == 1 else None

    @property
    def bound(self) -> float:
        """Seconds. Of workers of different speed only all work on all of them says anything: slices may be cut."""
        if len(set(self.speeds)) == 1:
            return lpt_bound(self.works, len(self.speeds)) / self.speeds[0]
        return sum(self.works) / sum(self.speeds)


@dataclass(frozen=True, slots=True)
class Result:
    """Seconds on the virtual clock; `completed` counts slices (halves too), `run` is real time."""

    case: Case
    makespan: float
    waits: Sequence[float]
    completed: int
    run: float

    @property
    def ratio(self) -> float:
        return self.makespan / self.case.bound

    @property
    def met(self) -> bool | None:
        return None if self.case.goal is None else self.ratio <= self.case.goal

    def wait(self, percent: int) -> float:
        return statistics.quantiles(self.waits, n=100, method="inclusive")[percent - 1]


def cases(workers: int, slices: int, seed: int = 1) -> list[Case]:
    chance = random.Random(seed)
    lognormal = [_within(chance.lognormvariate(0, 1) * MEAN_WORK * 0.6) for _ in range(slices)]
    # With the largest ones held down, the mean is MEAN_WORK again.
    zipf = [_within(0.27 * MEAN_WORK * slices / place) for place in range(1, slices + 1)]
    equal = [SPEED] * workers
    unequal = [SPEED * chance.lognormvariate(0, 0.5) for _ in range(workers)]
    return [
        Case("lognormal works, equal speeds", lognormal, equal),
        Case("Zipf works, equal speeds", zipf, equal),
        Case("lognormal works, unequal speeds", lognormal, unequal),
    ]


def _within(work: float) -> int:
    return min(MOST_WORK, max(1, round(work)))


class _VirtualClock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> int:
        return int(self.seconds * 1000)

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@dataclass(slots=True)
class _Worker:
    """`wants` is since when it has nothing to do; `polls` when it looked last."""

    id: str
    speed: float
    wants: float
    pace: Pace = field(default_factory=lambda: Pace(0.0, SPEED))
    after: int = 0
    polls: float = 0.0


class Simulation:
    """One case from a planned job to its last completed slice."""

    def __init__(self, case: Case, *, seed: int = 1, statements: float = STATEMENTS) -> None:
        self._case = case
        self._chance = random.Random(seed)
        self._clock = _VirtualClock()
        self._ledger = ModelLedger(self._clock)
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = itertools.count()
        self._statement_seconds = 1 / statements
        self._served_until = 0.0
        self._idle: list[_Worker] = []
        self._waits: list[float] = []
        self._completed = 0
        self._makespan = 0.0

    def run(self) -> Result:
        began = time.perf_counter()
        self._part = self._begin()
        for number, speed in enumerate(self._case.speeds):
            # Idle workers look for work at moments of their own.
            arrives = self._chance.random() * TIMING.poll / 1000
            self._at(arrives, self._join, _Worker(f"w{number}", speed, wants=arrives))
        while self._events:
            self._clock.seconds, _, act, arguments = heappop(self._events)
            act(*arguments)
        return Result(self._case, self._makespan, self._waits, self._completed, time.perf_counter() - began)

    def _begin(self) -> JobPart:
        ledger = self._ledger
        ledger.workers.register("planner", kind="run", host="host", pid=1)
        ledger.jobs.begin(_JOB, "planner", {})
        lease = ledger.leases.acquire(_REF, _JOB, "planner")
        assert isinstance(lease, Lease)
        instance = ledger.instances.new(lease, Reason.FIRST)
        part = JobPart(_REF, instance, "physical", {}, 1, lease.epoch, 0, fresh=True)
        payload = encode_changes([_document(number) for number in range(DOCUMENTS)])
        plans = [
            SlicePlan(index, 0, "", "", DOCUMENTS, work, 40, payload) for index, work in enumerate(self._case.works)
        ]
        ledger.parts.plan(_JOB, [NewPart(part, plans)], stagger=True)
        ledger.jobs.start(_JOB)
        return part

    def _at(self, seconds: float, act: Callable[..., None], *arguments: Any) -> None:
        heappush(self._events, (seconds, next(self._order), act, arguments))

    def _statement(self) -> float:
        """When the ledger answers what it is asked now."""
        self._served_until = max(self._served_until, self._clock.seconds) + self._statement_seconds
        return self._served_until

    def _join(self, worker: _Worker) -> None:
        self._ledger.workers.register(worker.id, kind="worker", host="host", pid=1)
        self._ledger.jobs.join(_JOB, worker.id)
        self._look(worker)

    def _look(self, worker: _Worker) -> None:
        worker.polls = self._clock.seconds
        (part,) = self._ledger.open_parts.on([_REF])
        if not part.pending:
            self._idle.append(worker)
            return
        limit = min(MOST_CLAIMS, fair_share(part.pending, part.workers))
        claims = self._ledger.slices.claim(
            _JOB, _REF, worker.id, work=wave_work(worker.pace), limit=limit, after=worker.after
        )
        answered = self._statement()
        if not claims:
            self._at(answered + TIMING.poll / 1000, self._look, worker)
            return
        worker.after = max(claim.rank for claim in claims)
        self._waits.append(answered - worker.wants)
        idle = part.pending - len(claims) < part.workers - 1
        kept = self._without_the_too_long(worker, claims, idle)
        if not kept:
            worker.wants = answered
            self._at(answered, self._look, worker)
            return
        seconds = sum(claim.work for claim in kept) / worker.speed
        self._at(answered + seconds, self._finish, worker, kept, seconds)

    def _without_the_too_long(self, worker: _Worker, claims: Sequence[Claim], idle: bool) -> list[Claim]:
        kept = [
            claim
            for claim in claims
            if not too_long(claim.work, claim.units, worker.pace, idle=idle)
            or not self._ledger.slices.split(claim, worker.id)
        ]
        if len(kept) < len(claims):
            self._wake()
        return kept

    def _wake(self) -> None:
        """There are slices again: idle workers find them the next time they look."""
        poll = TIMING.poll / 1000
        for worker in self._idle:
            missed = int((self._clock.seconds - worker.polls) / poll) + 1
            self._at(worker.polls + missed * poll, self._look, worker)
        self._idle.clear()

    def _finish(self, worker: _Worker, claims: Sequence[Claim], seconds: float) -> None:
        outcomes = [
            SliceOutcome(claim.slice_id, claim.fence, Counts(read=claim.units, written=claim.units)) for claim in claims
        ]
        self._ledger.slices.complete(self._part, worker.id, outcomes, job_id=_JOB)
        answered = self._statement()
        self._completed += len(claims)
        self._makespan = max(self._makespan, answered)
        worker.pace = learned_pace(worker.pace, sum(claim.work for claim in claims), seconds)
        worker.wants = answered
        self._at(answered, self._look, worker)


def _document(number: int) -> DocumentChange:
    return DocumentChange(Action.INSERT, f"doc_{number:04d}", f"file:///{number}", 1, "1", 0, "", "new")


def rows(results: Sequence[Result]) -> tuple[list[str], list[list[str]]]:
    heads = ["case", "bound", "makespan", "ratio", f"goal {GOAL:g}", "claims", "slices", "wait p50", "wait p99", "run"]
    found = [
        [
            each.case.name,
            f"{each.case.bound:.1f} s",
            f"{each.makespan:.1f} s",
            f"{each.ratio:.3f}",
            "" if each.met is None else "met" if each.met else "MISSED",
            f"{len(each.waits):,}",
            f"{each.completed:,}",
            f"{each.wait(50) * 1000:.1f} ms",
            f"{each.wait(99) * 1000:.1f} ms",
            f"{each.run:.1f} s",
        ]
        for each in results
    ]
    return heads, found


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=WORKERS)
    parser.add_argument("--slices", type=int, default=SLICES)
    parser.add_argument("--statements", type=float, default=STATEMENTS, help="that the ledger serves in a second")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    results = [
        Simulation(case, seed=options.seed, statements=options.statements).run()
        for case in cases(options.workers, options.slices, options.seed)
    ]
    report.show(f"{options.workers:,} workers, {options.slices:,} slices, simulated", *rows(results))
    if any(each.met is False for each in results):
        sys.exit(1)


if __name__ == "__main__":
    main()
