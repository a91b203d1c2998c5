"""Small scope, all of it: two workers on one slice, every order of their calls, with crashes and stalls anywhere.

Between two calls a worker only thinks, so the orders of the calls are all there is. A run follows a list of
choices and then goes on with the first choice each time; what it passes by is tried by later runs. A state that was
reached before (the stores, and all that each worker was answered) is not gone on from again.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, NamedTuple

from instep.domain.timing import TIMING
from instep.service.worker import serve

from .faults import Event
from .scheduler import Process, Stuck, Task
from .simulation import Product, Simulation

#: Polling is slower than in real life, so that fewer polls pass while a stalled worker is waited for.
TIMES = replace(TIMING, poll=50_000)


class Scope(NamedTuple):
    """How much may go wrong. `attempts` are spent on the slice before: with 2 the next bad end splits it."""

    documents: int = 1
    attempts: int = 0
    crashes: int = 1
    stalls: int = 1
    one_host: bool = False


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
    on: bool = False
    last: int = 0

    def switches(self) -> bool:
        running = self.simulation._scheduler.running
        return self.on and running is running.process.main

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
        choices += [Choice("wake", each.number) for each in self.stalled]
        done = [each.what for each in self.taken]
        if done.count("kill") < self.scope.crashes:
            choices += [Choice("kill", number) for number in numbers]
        if done.count("stall") < self.scope.stalls and len(numbers) > 1:
            choices += [Choice("stall", number) for number in numbers]
        return choices

    def _do(self, choice: Choice, ready: Sequence[Task] = ()) -> Task | None:
        what, number = choice
        process = self.simulation._processes[number]
        if what == "go":
            self.last = number
            return next(each for each in ready if each.process is process)
        if what == "kill":
            process.kill()
        elif what == "stall":
            process.paused_until = float("inf")
            self.stalled.append(process)
        else:
            process.paused_until = 0.0
            self.stalled.remove(process)
            self.last = number
        return None


class Duel(Simulation):
    """Two workers that were started when the job had just been planned, by a run that is gone."""

    def __init__(self, path: Path, product: Product) -> None:
        super().__init__(0, product, timing=TIMES, policy=path)
        path.simulation = self
        self._path = path
        self._answers: dict[str, bytes] = {}
        watch = self.world.watch

        def noted(event: Event) -> None:
            before = self._answers.get(event.process, b"")
            told = repr((event.name, event.result, event.error)).encode()
            self._answers[event.process] = blake2b(before + told, digest_size=16).digest()
            watch(event)

        self.world.watch = noted
        self._scheduler.tick = 0.0
        self._scheduler.oversleep = lambda milliseconds: milliseconds
        self._weight = 1.0
        for name in list(self.sources)[1:]:
            del self.sources[name]
        self.sources["Document"].shrink(path.scope.documents)

    def _play(self) -> None:
        scheduler, scope = self._scheduler, self._path.scope
        planner = self.start_planner()
        scheduler.run(lambda: planner.over)
        for row in self.ledger._tables.slices.values():  # type: ignore[attr-defined]  # the ledger in memory
            row.attempts = scope.attempts
        workers = [self._worker() for _ in range(2)]
        self._path.on = True
        scheduler.run(lambda: all(each.over for each in workers), deadline=scheduler.now + 24 * 3_600_000)
        self._path.on = False
        self._checker.at_rest()
        self._mend()
        scheduler.now += self._timing.stale + self._timing.grace
        self.ledger.sweep()
        self._checker.final()

    def start_planner(self) -> Process:
        """A run that ends as soon as it has planned, leaving the job to others."""

    def _worker(self) -> Process:
        process = self.process("worker", ["Document"], exact=True)
        process.host = "alpha" if self._path.scope.one_host or process.number % 2 else "beta"
        setups, context = self.setups(process, ["Document"]), self.context(process)
        process.start(lambda: serve(setups, context, until_idle=True))
        return process

    def state(self, path: Path) -> bytes:
        """All that what happens from here on depends on."""
        stores = pickle.dumps((self.ledger._tables.__reduce_ex__(4) and _plain(self.ledger), self.target.indexes))
        return stores


def _plain(ledger: Any) -> Any:
    return ledger._tables
