"""Small scope, all of it: two workers on one slice, every order of their calls, with crashes and stalls anywhere.

Between two calls a worker only thinks, so the orders of the calls are all there is. A run follows a list of
choices and then goes on with the first choice each time; what it passes by is tried by later runs. A state that was
reached before (the stores, and all that each worker was answered) is not gone on from again.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from hashlib import blake2b
from typing import NamedTuple

from instep.domain.clock import TIMING
from instep.entities.plan_request import PlanOptions
from instep.jobs.serve import serve
from tests.simulator.model import ModelLedger
from tests.simulator.model.tables import Tables

from .faults import HEART, Event
from .relations import Relations
from .scheduler import Process, Task
from .simulation import Product, Simulation

#: Nothing is left to chance here; it only names the documents' chunks.
SEED = 0

#: Polling is so slow here that an idle worker sees at its next look that a stalled one is stale.
TIMES = replace(TIMING, poll=TIMING.stale + 10_000)


class Scope(NamedTuple):
    """How much may go wrong. `attempts` are spent on the slice before; with 3 it is worn out, of one document with 4.

    `switches`: how often at most a worker is left for another that could go on itself (None: always, that is all
    orders).
    """

    documents: int = 1
    attempts: int = 0
    crashes: int = 0
    stalls: int = 0
    switches: int | None = None
    one_host: bool = False


#: Calls before which anything may happen: those by which slices and parts change hands, in ledger and target. All
#: else goes with the call before it: reads (made early they are as stale as they can be), and coming and going.
TURNS = frozenset(
    (*HEART, "committed", "leases.acquire", "leases.transfer", "parts.adopt", "slices.give_back", "drop", "jobs.leave")
)


class Pruned(Exception):
    """This state was reached before."""


class Choice(NamedTuple):
    """Let a worker make its next call, or kill it, stall it (SIGSTOP) or wake it before that."""

    what: str
    worker: int


@dataclass
class Path:
    """Implements `scheduler.Policy`: follows `given`, then takes what comes first."""

    given: Sequence[Choice]
    scope: Scope
    seen: set[bytes]
    taken: list[Choice] = field(default_factory=list)
    passed: list[list[Choice]] = field(default_factory=list)
    stalled: list[Process] = field(default_factory=list)
    simulation: Duel = None  # type: ignore[assignment]  # set right after it is made
    stale_at: float = 0.0
    switched: int = 0
    on: bool = False
    last: int = 0

    def switches(self, call: str) -> bool:
        running = self.simulation._scheduler.running
        if not self.on:
            return True
        return call in TURNS and running is running.process.main

    def idle(self) -> bool:
        if not self.stalled:
            return False
        self._do(Choice("wake", self.stalled[0].number))
        return True

    def pick(self, ready: list[Task]) -> Task | None:
        rest = [each for each in ready if not self.on or each is not each.process.main]
        if rest:
            return rest[0]
        choices = self._choices(ready)
        place = len(self.taken)
        if place < len(self.given):
            choice = self.given[place]
            self.passed.append([])
        else:
            state = self.simulation.state(self)
            if state in self.seen:
                raise Pruned
            self.seen.add(state)
            choice = choices[0]
            self.passed.append(choices[1:])
        self.taken.append(choice)
        return self._do(choice, ready)

    def _choices(self, ready: list[Task]) -> list[Choice]:
        numbers = sorted((each.process.number for each in ready), key=lambda number: (number != self.last, number))
        choices = [Choice("go", number) for number in numbers]
        if self.switched == self.scope.switches and numbers[0] == self.last:
            del choices[1:]
        if self.simulation._scheduler.now >= self.stale_at:  # Before that it is only slow.
            choices += [Choice("wake", each.number) for each in self.stalled]
        done = [each.what for each in self.taken]
        if done.count("kill") < self.scope.crashes:
            choices += [Choice("kill", number) for number in numbers]
        if done.count("stall") < self.scope.stalls and not self.stalled:
            choices += [Choice("stall", number) for number in numbers]
        return choices

    def _do(self, choice: Choice, ready: Sequence[Task] = ()) -> Task | None:
        what, number = choice
        process = self.simulation.processes[number]
        if what == "go":
            self.switched += number != self.last and any(each.process.number == self.last for each in ready)
            self.last = number
            return next(each for each in ready if each.process is process)
        self.simulation.world.count(what)
        if what == "kill":
            process.kill()
        elif what == "stall":
            process.paused_until = float("inf")
            self.stalled.append(process)
            self.stale_at = self.simulation._scheduler.now + TIMES.stale
        else:
            process.paused_until = 0.0
            self.stalled.remove(process)
            self.last = number
        return None


class Duel(Simulation):
    """Two workers that start when a job has just been planned, by a run that is gone."""

    def __init__(self, path: Path, product: Product) -> None:
        super().__init__(SEED, product, timing=TIMES, policy=path)
        path.simulation = self
        self._relations = Relations()
        self._path = path
        self._answers: dict[str, bytes] = {}
        self.world.told = self._told
        self._scheduler.tick = 0.0
        self._scheduler.oversleep = lambda milliseconds: milliseconds
        self._weight, self._buckets = 1.0, 1
        for name in list(self.sources)[1:]:
            del self.sources[name]
        self.sources["Document"].shrink(path.scope.documents)

    def _told(self, event: Event) -> None:
        """What a worker knows is what it was answered so far, as its code is always the same."""
        before = self._answers.get(event.process, b"")
        told = repr((event.name, event.result, event.error)).encode()
        self._answers[event.process] = blake2b(before + told, digest_size=16).digest()

    def _play(self) -> None:
        scheduler, scope = self._scheduler, self._path.scope
        planner = self.start_run(["Document"], wait=0.0, options=PlanOptions(), exact=True)
        scheduler.run(lambda: planner.over or any(each.name == "jobs.start" for each in self.world.history))
        planner.kill()
        (gone,) = (each.args[0] for each in self.world.history if each.name == "workers.register")
        self.ledger.workers.retire(gone)
        (row,) = self._tables.slices.values()
        row.attempts = self.world.counters["spent before"] = scope.attempts
        pending = self._tables.part_of(row).pending
        pending.clear()
        pending.add(row)
        workers = [self._worker() for _ in range(2)]
        self._path.on = True
        scheduler.run(lambda: all(each.over for each in workers), deadline=scheduler.now + 24 * 3_600_000)
        self._path.on = False
        self._checker.at_rest(self.processes)
        self._mend()
        scheduler.now += self._timing.stale + self._timing.grace
        self.ledger.sweep()
        self._checker.final()

    def _worker(self) -> Process:
        process = self.process("worker", ["Document"], exact=True)
        process.host = "alpha" if self._path.scope.one_host or process.number % 2 else "beta"
        setups, context = self.setups(process, ["Document"]), self.context(process)
        process.start(lambda: serve(setups, context, until_idle=True))
        return process

    @property
    def _tables(self) -> Tables:
        assert isinstance(self.ledger, ModelLedger)
        return self.ledger._tables

    def state(self, path: Path) -> bytes:
        """All that decides what can happen from here on."""
        scheduler, target = self._scheduler, self.target
        rows = [getattr(self._tables, name) for name in _ROWS]
        stores = rows, target.indexes, target.aliases, len(target.dropped), target.staged
        workers = [
            (each.number, each.dead, each.paused_until, each.steps, self._answers.get(each.name))
            for each in self.processes
        ]
        turns = sorted((each.process.number, each.name, max(each.wake - scheduler.now, 0)) for each in scheduler.tasks)
        left = [sum(each.what == what for each in path.taken) for what in ("kill", "stall")]
        if path.scope.switches is not None:
            left += [path.switched, path.last]
        return blake2b(pickle.dumps((stores, workers, turns, left, scheduler.now)), digest_size=16).digest()


#: No process takes keys of queues here (`holds`).
_ROWS = [each.name for each in fields(Tables) if each.name not in ("clock", "timing", "holds")]


class Found(NamedTuple):
    """What an exploration came to. `broken` says which choices led to it."""

    runs: int
    states: int
    broken: Sequence[tuple[Sequence[Choice], Sequence[str]]]
    counters: Counter[str]


def explore(scope: Scope, product: Product | None = None, *, most: int | None = None) -> Found:
    """Every order of calls, each state once; ends early after `most` runs or when something is broken."""
    seen: set[bytes] = set()
    waiting: list[tuple[Choice, ...]] = [()]
    broken: list[tuple[Sequence[Choice], Sequence[str]]] = []
    counters: Counter[str] = Counter()
    runs = 0
    while waiting and not broken and (most is None or runs < most):
        given = waiting.pop()
        path = Path(given, scope, seen)
        duel = Duel(path, product or Product())
        runs += 1
        try:
            report = duel.run()
        except Pruned:
            duel._scheduler.close()
        else:
            counters.update(report.counters)
            if report.broken:
                broken.append((path.taken, report.broken))
        for place in range(len(given), len(path.passed)):
            waiting += [(*path.taken[:place], choice) for choice in path.passed[place]]
    return Found(runs, len(seen), broken, counters)
