"""A crash at every call of ledger and target, before and after its effect: the next run mends it.

The real service code on the real ledger and target; only time is virtual. After the fault every
further call of that run fails too, as in a process that is gone.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import instep
from instep.container import Container
from instep.domain.clock import Timing
from instep.domain.jobs import JobState
from instep.entities.plan_request import PlanOptions
from instep.errors import Unknown
from instep.jobs.entity_result import EntityResult
from instep.jobs.run import run_entities
from instep.telemetry.progress import Silent
from tests.doubles.clock import VirtualClock
from tests.doubles.through import through

from . import corpus
from .conftest import Location

DOCUMENTS = 12


class Crash(BaseException):
    """The process is gone."""


@dataclass
class Fault:
    """Crashes at call number `at` (from 1) of those that count, before or after it takes effect."""

    at: int
    after: bool
    counts: Callable[[str], bool] = lambda name: True
    calls: int = 0
    crashed_in: str = ""

    def call(self, name: str, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self.crashed_in:
            raise Crash(self.crashed_in)
        self.calls += self.counts(name)
        here = self.calls == self.at and self.counts(name)
        if here and not self.after:
            self.crashed_in = name
            raise Crash(name)
        result = method(*args, **kwargs)
        if here:
            self.crashed_in = name
            raise Crash(name)
        return result


@dataclass
class LostReply:
    """The first call of a method takes effect, and its answer is lost."""

    name: str
    lost: bool = False

    def call(self, name: str, method: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = method(*args, **kwargs)
        if name == self.name and not self.lost:
            self.lost = True
            raise Unknown(f"the connection was lost before the ledger answered {name}")
        return result


class NoProof:
    """No worker is known to be dead, as on another host: only silence tells."""

    def begin(self, worker_id: str) -> Callable[[], None]:
        return lambda: None

    def proved_dead(self, worker_id: str) -> bool:
        return False

    def all_dead(self) -> list[str]:
        return []

    def forget(self, worker_id: str) -> None:
        return


#: Calls of a refresh that change something. To die before one that only reads is to die after the last of these.
WRITES = {
    *("workers.register", "workers.retire", "jobs.begin", "jobs.start", "jobs.leave", "leases.acquire"),
    *("leases.transfer", "parts.plan", "parts.adopt", "parts.begin_finish", "parts.finish", "instances.new"),
    *("slices.claim", "slices.complete", "create", "fence", "sweep", "commit", "maintain", "promote", "refine", "drop"),
}
#: Looks seldom, so that waiting for a silent worker takes few calls.
TIMING = Timing(poll=30_000)


def run(place: Location, clock: VirtualClock, fault: Fault | LostReply | None = None) -> EntityResult:
    container = Container(instep.load(place.root).project, clock=clock, timing=TIMING)
    with closing(container), closing(container.ledger()) as ledger:
        (setup,) = container.setups()
        if fault:
            setup = replace(setup, target=through(setup.target, fault.call))
        context = replace(
            container.context(through(ledger, fault.call) if fault else ledger, Silent()),
            liveness=NoProof(),
            background=clock,
        )
        (result,) = run_entities([setup], context, PlanOptions(), wait_seconds=TIMING.lease / 1000 + 1)
        return result


def edit(place: Location) -> None:
    """Two changed, one deleted, one added."""
    for number in (1, 2):
        path = corpus.path(place.docs, number)
        path.write_text(path.read_text() + "\n## More\n\nA new ending.\n")
    corpus.path(place.docs, 3).unlink()
    corpus.write(place.docs, range(DOCUMENTS, DOCUMENTS + 1))


@pytest.fixture
def small(tmp_path: Path) -> Location:
    made = Location(tmp_path / "project", tmp_path / "docs")
    corpus.write(made.docs, range(DOCUMENTS))
    made.declare(entity="buckets: 3")
    return made


@pytest.mark.parametrize(
    ("job", "after", "only"),
    [
        pytest.param("first build", False, None, id="first build, before its effect", marks=pytest.mark.long),
        pytest.param("first build", True, None, id="first build, after its effect", marks=pytest.mark.long),
        pytest.param("refresh", False, None, id="refresh, before its effect", marks=pytest.mark.long),
        pytest.param("refresh", True, None, id="refresh, after its effect", marks=pytest.mark.long),
        pytest.param("refresh", True, WRITES, id="refresh, after each write", marks=pytest.mark.proof),
    ],
)
def test_a_crash_at_any_call_loses_and_doubles_nothing(
    small: Location, tmp_path: Path, job: str, after: bool, only: set[str] | None
) -> None:
    if job == "refresh":
        run(small, VirtualClock())
        edit(small)
    clean = tmp_path / "clean"
    if (small.root / ".instep").exists():
        shutil.copytree(small.root / ".instep", clean)
    crashed: list[str] = []
    at = 0
    while True:
        at += 1
        shutil.rmtree(small.root / ".instep", ignore_errors=True)
        if clean.exists():
            shutil.copytree(clean, small.root / ".instep")
        clock = VirtualClock()
        fault = Fault(at, after, counts=lambda name: only is None or name in only)
        try:
            run(small, clock, fault)
            break  # Past the last call.
        except Crash:
            crashed.append(fault.crashed_in)
        # Nothing of the dead process runs on: a clock of its own, at the same time.
        _mend_and_check(small, VirtualClock(clock.milliseconds), job, fault)
    # The sweep really met what it is about.
    assert {
        "leases.acquire",
        "parts.plan",
        "slices.claim",
        "commit",
        "slices.complete",
        "promote",
        "parts.finish",
    } <= set(crashed)


def _mend_and_check(place: Location, clock: VirtualClock, job: str, fault: Fault) -> None:
    where = f"crash number {fault.at} in {fault.crashed_in} ({'after' if fault.after else 'before'} its effect)"
    result = run(place, clock)
    assert place.wrong() == "", where
    assert run(place, clock).state is None, where
    (status,) = instep.load(place.root).status()
    assert not [note for note in status.notes if "rows" in note], where
    if result.state is None:
        return  # The crash came after all was done.
    assert result.state is JobState.COMPLETED, where
    assert result.counts.balanced, where
    if job == "first build":
        assert (result.counts.read, result.counts.written) == (DOCUMENTS, DOCUMENTS), where
    else:
        counts = result.counts
        assert (counts.read, counts.written, counts.deleted, counts.skipped) == (4, 3, 1, 0), where


@pytest.mark.parametrize(
    "call", ["slices.claim", "slices.complete", "parts.begin_finish", "leases.transfer", "parts.adopt", "parts.finish"]
)
def test_a_reply_that_is_lost_is_looked_up_and_no_lease_is_waited_for(small: Location, call: str) -> None:
    clock, fault = VirtualClock(), LostReply(call)
    began = clock.monotonic()
    result = run(small, clock, fault)
    assert fault.lost
    assert (result.state, result.counts.written) == (JobState.COMPLETED, DOCUMENTS)
    assert small.wrong() == ""
    assert clock.monotonic() - began < TIMING.lease / 1000 / 2
