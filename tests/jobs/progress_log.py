"""A context of real time and threads, without anything to index with, and a log of the progress reported in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from instep.domain.clock import TIMING, Clock, Timing
from instep.domain.jobs import Phase
from instep.domain.waves import Stage
from instep.ledger.liveness import Liveness
from instep.planning.context import Context
from instep.system import RandomIds, SystemClock, Threads
from tests.doubles.ledger import MemoryLedger


class ProgressLog:
    """Implements `telemetry.progress.Progress`: what was said, by entity."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, str]] = []

    def say(self, entity: str, message: str) -> None:
        self.lines.append((entity, message))

    def listing(self, entity: str, found: int) -> None: ...

    def begin(self, entity: str, total: int | None, unit: str) -> None: ...

    def advance(self, entity: str, units: int) -> None: ...

    def stage(self, entity: str, stage: Stage) -> None: ...

    def phase(self, entity: str, phase: Phase) -> None: ...

    def end(self, entity: str, *, well: bool = True) -> None: ...


def context(told: ProgressLog, *, timing: Timing = TIMING, clock: Clock | None = None, **more: Any) -> Context:
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

    def all_dead(self) -> list[str]:
        return []

    def forget(self, worker_id: str) -> None: ...


def _none(*_: object) -> Any:
    raise AssertionError("nothing is indexed here")
