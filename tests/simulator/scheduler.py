"""Simulated processes in greenlets, virtual time, and a choice of who goes on.

Everything runs in one thread. A task gives way only in `Process.step` (before each call of a port) and in
`Process.sleep`; so what lies between two calls is one step, and a seed decides everything.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from greenlet import greenlet  # type: ignore[import-untyped]  # it brings no types

T = TypeVar("T")

#: Where virtual time begins (milliseconds since 1970).
EPOCH_MS = 1_800_000_000_000


class Crash(BaseException):
    """The process is gone: every further call of it ends like this."""


class Stuck(Exception):
    """No task can go on, or none comes to an end."""


@dataclass(eq=False, slots=True)
class Task:
    """One flow of control of a process: its main program, or something it does in the background."""

    process: Process
    name: str
    greenlet: greenlet
    wake: float
    born: int


class Policy(Protocol):
    """Decides who goes on; `ready` is never empty."""

    def switches(self, call: str) -> bool:
        """Whether the running task gives way before its next call."""

    def pick(self, ready: list[Task]) -> Task | None:
        """None when it did something else (kill one, say), and it is to be looked again."""

    def idle(self) -> bool:
        """Whether the policy has made a task ready, when none is, now or later."""


@dataclass(eq=False)
class Process:
    """A simulated process: it can be killed, interrupted or paused (SIGSTOP), and has a clock of its own."""

    name: str
    host: str
    scheduler: Scheduler
    entities: tuple[str, ...] = ()
    number: int = -1
    steps: int = 0
    skew: int = 0
    rate: float = 1.0
    dead: bool = False
    interrupted: bool = False
    paused_until: float = 0.0
    stopped_until: float = 0.0
    main: Task | None = None
    tasks: list[Task] = field(default_factory=list)
    error: BaseException | None = None
    result: object = None

    @property
    def over(self) -> bool:
        return self.dead or (self.main is not None and self.main.greenlet.dead)

    def start(self, program: Callable[[], object]) -> None:
        def run() -> None:
            try:
                self.result = program()
            except KeyboardInterrupt:
                return
            except Exception as error:
                self.error = error

        self.main = self.scheduler.spawn(self, "main", run)

    def step(self, call: str = "") -> None:
        """A yield point: others may go on before what comes next (`call`, of a port)."""
        scheduler = self.scheduler
        if self.dead:
            raise Crash(self.name)
        scheduler.now += scheduler.tick
        scheduler.steps += 1
        self.steps += 1
        if self.paused_until > scheduler.now or scheduler.policy.switches(call):
            scheduler.give_way()
            if self.dead:
                raise Crash(self.name)
        self._heed_interrupt()

    def give_way(self) -> None:
        """Like a step at which the others may go on, whatever the policy says."""
        self.scheduler.give_way()
        if self.dead:
            raise Crash(self.name)

    def sleep(self, milliseconds: float) -> None:
        """For so long by the process's own clock."""
        if self.dead:
            raise Crash(self.name)
        scheduler = self.scheduler
        task = scheduler.running
        task.wake = scheduler.now + max(0.0, milliseconds) / self.rate
        scheduler.steps += 1
        self.steps += 1
        scheduler.give_way()
        if self.dead:
            raise Crash(self.name)
        self._heed_interrupt()

    def interrupt(self) -> None:
        """Ctrl-C, once: raised in the main program at its next step."""
        self.interrupted = True
        if self.main is not None:
            self.main.wake = min(self.main.wake, self.scheduler.now)

    def _heed_interrupt(self) -> None:
        if self.interrupted and self.scheduler.running is self.main:
            self.interrupted = False
            raise KeyboardInterrupt

    def kill(self) -> None:
        """kill -9: nothing more of it takes effect."""
        self.dead = True
        self.scheduler.doomed.append(self)


class ProcessClock:
    """Implements `domain.clock.Clock`: skewed and drifting."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def now(self) -> int:
        return EPOCH_MS + self._process.skew + int(self._process.scheduler.now * self._process.rate)

    def monotonic(self) -> float:
        return self._process.scheduler.now * self._process.rate / 1000

    def sleep(self, seconds: float) -> None:
        self._process.sleep(self._process.scheduler.oversleep(seconds * 1000))


class LedgerClock:
    """The ledger's own clock: the one that leases go by."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def now(self) -> int:
        return EPOCH_MS + int(self._scheduler.now)

    def monotonic(self) -> float:
        return self._scheduler.now / 1000

    def sleep(self, seconds: float) -> None:
        raise AssertionError("a ledger never sleeps in a simulation")


class Turns:
    """Implements `domain.clock.Background` for a process: a task beside its main program."""

    def __init__(self, process: Process) -> None:
        self._process = process

    def every(self, seconds: float, task: Callable[[], bool], name: str) -> Callable[[], None]:
        process, scheduler = self._process, self._process.scheduler
        ended = busy = False
        waiting: list[Task] = []

        def loop() -> None:
            nonlocal busy
            more = True
            while more and not ended:
                process.sleep(seconds * 1000)
                if ended:
                    break
                busy = True
                try:
                    more = task()
                finally:
                    busy = False
                    for each in waiting:
                        each.wake = scheduler.now

        def run() -> None:
            try:
                loop()
            except Exception as error:
                process.error = error

        turn = scheduler.spawn(process, name, run)

        def stop() -> None:
            nonlocal ended
            ended = True
            if busy and scheduler.running is not turn:
                me = scheduler.running
                waiting.append(me)
                while busy:
                    process.sleep(math.inf)
            turn.wake = scheduler.now

        return stop

    def beside(self, task: Callable[[], T], name: str) -> Callable[[], T]:
        process, scheduler = self._process, self._process.scheduler
        done = Future[T]()
        waiting: list[Task] = []

        def run() -> None:
            try:
                done.set_result(task())
            except Exception as error:
                done.set_exception(error)
            for each in waiting:
                each.wake = scheduler.now

        scheduler.spawn(process, name, run)

        def result() -> T:
            waiting.append(scheduler.running)
            while not done.done():
                process.sleep(math.inf)
            return done.result()

        return result


class Scheduler:
    """The hub: runs one task at a time; time goes on when none is ready."""

    def __init__(self, policy: Policy, *, most_steps: int = 200_000, oversleep: Callable[[float], float] | None = None):
        self.policy = policy
        self.now: float = 0.0
        self.tick = 1.0
        self.steps = 0
        self.tasks: list[Task] = []
        self.doomed: list[Process] = []
        self.running: Task = None  # type: ignore[assignment]  # there is one whenever anything runs
        self.oversleep = oversleep or (lambda milliseconds: milliseconds)
        self._most_steps = most_steps
        self._hub = greenlet.getcurrent()
        self._until: Callable[[], bool] = lambda: False
        self._deadline = math.inf
        self._chosen: Task | None = None
        self._born = 0

    def spawn(self, process: Process, name: str, run: Callable[[], None], *, after: float = 0.0) -> Task:
        def guarded() -> None:
            with suppress(Crash):
                run()

        self._born += 1
        task = Task(process, name, greenlet(guarded, self._hub), self.now + after, self._born)
        self.tasks.append(task)
        process.tasks.append(task)
        return task

    def give_way(self) -> None:
        """Switch to the next task: straight away, or by way of the hub when that has something to do first."""
        if self.doomed or self.steps > self._most_steps or self._until():
            self._hub.switch()
            return
        try:
            task = self._next()
        except Exception as error:  # It is the hub's, not this task's.
            self._hub.throw(error)
            return
        if task is self.running:
            return
        if task is None or not task.greenlet:  # One that has not begun begins in the hub: stacks do not grow then.
            self._chosen = task
            self._hub.switch()
            return
        self.running = task
        task.greenlet.switch()

    def run(self, until: Callable[[], bool], *, deadline: float = math.inf) -> None:
        """Until it is so. Raises `Stuck` after too many steps, or when the time is up."""
        self._until, self._deadline = until, deadline
        while not until():
            task, self._chosen = self._chosen or self._next(), None
            if task is not None:
                self.running = task
                task.greenlet.switch()
                if self.running.greenlet.dead:
                    self._remove(self.running)
            if self.doomed:
                self._evict()
            if self.steps > self._most_steps:
                raise Stuck(f"no end after {self.steps} steps")

    def close(self) -> None:
        """Ends what still runs, so that nothing of it goes on when its memory is freed."""
        for task in list(self.tasks):
            if not task.process.dead:
                task.process.kill()
        self._evict()

    def _next(self) -> Task | None:
        now, tasks = self.now, self.tasks
        ready = [each for each in tasks if each.wake <= now and each.process.paused_until <= now]
        if ready:
            return self.policy.pick(ready)
        now = math.inf
        for each in tasks:
            wake, paused_until = each.wake, each.process.paused_until
            time = wake if wake > paused_until else paused_until
            if time < now:
                now, ready = time, [each]
            elif time == now:
                ready.append(each)
        if now == math.inf and self.policy.idle():
            return None
        if now > self._deadline or now == math.inf:
            raise Stuck(f"nothing more happens in time (next: {now}, deadline: {self._deadline})")
        self.now = now
        return self.policy.pick(ready)

    def _evict(self) -> None:
        while self.doomed:
            process = self.doomed.pop()
            for task in list(process.tasks):
                if task.greenlet:  # It has begun and not ended.
                    self.running = task
                    task.greenlet.throw(Crash(process.name))
                self._remove(task)

    def _remove(self, task: Task) -> None:
        if task in self.tasks:
            self.tasks.remove(task)
            task.process.tasks.remove(task)
