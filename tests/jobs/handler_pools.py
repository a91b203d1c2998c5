"""Handlers on real buses whose work is that of a test."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from instep.bus.bus import Bus
from instep.domain.clock import TIMING, Clock, Timing
from instep.domain.refs import PartitionRef
from instep.domain.request_rules import Policy
from instep.domain.requests import Kind
from instep.domain.status import IndexState
from instep.ledger.liveness import Liveness
from instep.planning.context import Context
from instep.requests.handler_pool import HandlerPool
from instep.requests.handlers import Handler, Indexed, Indexer
from instep.system import RandomIds, SystemClock, Threads
from tests.contracts.bus.fixtures import PATIENCE
from tests.doubles.ledger import MemoryLedger

#: Retries come at once; nobody is taken for dead.
QUICK = Policy(max_attempts=3, backoff=(1,), ack_wait=3_600_000)
#: Polls often; does not wait for threads that a test keeps busy.
TIMES = Timing(poll=5, grace=1, sweep=50)
DONE = Indexed(IndexState.INDEXED)

#: What work on a request comes to: its answer, an error, or something that is called for it.
Outcome = Indexed | BaseException | Callable[[], Indexed]


class Told:
    """Implements `telemetry.progress.Progress`: what was said, by entity."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def say(self, entity: str, message: str) -> None:
        self.lines.append((entity, message))

    def listing(self, entity: str, found: int) -> None: ...

    def begin(self, entity: str, total: int | None, unit: str) -> None: ...

    def advance(self, entity: str, units: int) -> None: ...

    def end(self, entity: str, *, well: bool = True) -> None: ...


class Work:
    """Implements `handlers.Indexer`: what was asked is recorded, and comes to what was planned, else to `DONE`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._planned: dict[str, list[Outcome]] = defaultdict(list)
        self._in_work: set[PartitionRef] = set()
        self.doubled: list[PartitionRef] = []
        self.asked: list[tuple[str, int]] = []
        self.done: list[tuple[str, int]] = []

    def plan(self, ref: str, *outcomes: Outcome) -> None:
        self._planned[ref] += outcomes

    def index(self, ref: PartitionRef, watermark: int, demand: Callable[[], None]) -> Indexed:
        with self._lock:
            if ref in self._in_work:
                self.doubled.append(ref)
            self._in_work.add(ref)
            self.asked.append((str(ref), watermark))
            planned = self._planned[str(ref)]
            outcome = planned.pop(0) if planned else DONE
        try:
            if isinstance(outcome, BaseException):
                raise outcome
            answer = outcome if isinstance(outcome, Indexed) else outcome()
        finally:
            with self._lock:
                self._in_work.discard(ref)
        if answer.state is IndexState.INDEXED:
            self.done.append((str(ref), watermark))
        return answer


class Gate:
    """Work that takes until it is opened."""

    def __init__(self) -> None:
        self.reached, self._open = threading.Event(), threading.Event()

    def __call__(self) -> Indexed:
        self.reached.set()
        assert self._open.wait(PATIENCE)
        return DONE

    def open(self) -> None:
        self._open.set()


def handler(entity: str, policy: Policy = QUICK, kind: Kind = Kind.NAMESPACE) -> Handler:
    return Handler(entity, kind, policy)


def pool(
    bus: Bus,
    work: Indexer,
    *handlers: Handler,
    told: Told | None = None,
    until_idle: bool = False,
    timing: Timing = TIMES,
) -> HandlerPool:
    site = context(told or Told(), timing=timing)
    return HandlerPool(handlers, bus, work, site, stopping=threading.Event(), until_idle=until_idle)


def context(told: Told, *, timing: Timing = TIMING, clock: Clock | None = None, **more: Any) -> Context:
    """Of real time and threads; there is nothing to index with."""
    clock = clock or SystemClock()
    parts: dict[str, Any] = {
        "ledger": MemoryLedger(clock),
        "background": Threads(),
        "liveness": _NoProof(),
        "choose": _none,
        "engine": _none,
        "prepare": _none,
        "status_reporter": None,
    }
    return Context(
        clock=clock,
        ids=RandomIds(),
        random=lambda: 0.0,
        timing=timing,
        progress=told,
        **(parts | more),
    )


class _NoProof(Liveness):
    def begin(self, worker_id: str) -> Callable[[], None]:
        return lambda: None

    def proved_dead(self, worker_id: str) -> bool:
        return False

    def forget(self, worker_id: str) -> None: ...


def _none(*_: object) -> Any:
    raise AssertionError("nothing is indexed here")
