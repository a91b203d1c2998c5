"""How long a run waits for what others have in work."""

from __future__ import annotations

from dataclasses import replace

from instep.domain.clock import TIMING, Timing
from instep.domain.jobs import JobPart, JobState, OpenPart
from instep.domain.refs import PartitionRef
from instep.jobs.stalled_workers import StalledWorkers
from instep.ledger.ledger import Ledger
from instep.planning.upstream import Waiting
from tests.doubles.clock import VirtualClock
from tests.jobs.progress_log import ProgressLog, context

REF = PartitionRef.parse("Document")
PART = JobPart(REF, "instance", "index", {}, 1, 1, 0, True)


def part(*, pending: int = 0, processing: int = 0) -> OpenPart:
    return OpenPart("job", JobState.RUNNING, PART, 50, 1, pending, processing, True, 2)


class Watched:
    """Ten seconds are waited for a worker on a host that is not here."""

    def __init__(self, *, alone: bool = False, timing: Timing = TIMING) -> None:
        self.clock = VirtualClock()
        site = context(ProgressLog(), clock=self.clock, timing=timing)
        self.ledger: Ledger = site.ledger
        self.ledger.workers.register("ours", kind="run", host="alpha", pid=1)
        self.ledger.jobs.begin("job", "ours", {})
        if not alone:
            self.ledger.workers.register("other", kind="run", host="beta", pid=42)
            self.ledger.jobs.join("job", "other")
        self.others = StalledWorkers(site, Waiting(site), 10.0)

    def after(self, seconds: float, seen: OpenPart) -> str | None:
        self.clock.sleep(seconds)
        busy = self.others.look([seen], "ours")
        return busy.what if busy else None


def test_a_part_without_progress_ends_the_wait_with_its_holder_named() -> None:
    watched = Watched()
    assert watched.after(60, part(processing=2)) is None, "the wait begins here"
    assert watched.after(9, part(processing=2)) is None
    said = watched.after(1, part(processing=2))
    assert said is not None
    assert "process 42 on beta (worker other, job job)" in said
    assert "10 s" in said


def test_the_hint_says_after_how_long_the_work_is_free_by_the_declared_lease() -> None:
    watched = Watched(timing=TIMING.lasting(20 * 60_000))
    watched.after(60, part(processing=2))
    watched.clock.sleep(10)
    busy = watched.others.look([part(processing=2)], "ours")
    assert busy is not None
    assert "or 20m after its last heartbeat" in (busy.hint or "")


def test_any_progress_restarts_the_wait() -> None:
    watched = Watched()
    for processing in (3, 2, 1, 0):
        assert watched.after(9, part(processing=processing)) is None
    assert watched.after(9, part()) is None
    assert watched.after(1, part()) is not None
    assert watched.after(0, replace(part(), part=replace(PART, epoch=2))) is None, "another worker has taken it up"


def test_own_work_is_no_wait_for_others() -> None:
    """Slices that become claimable later, or a target that is to be asked again later."""
    watched = Watched()
    for _ in range(5):
        assert watched.after(9, part(pending=1, processing=1)) is None
    assert watched.after(9, part(processing=1)) is None
    assert watched.after(9, part(processing=1)) is None


def test_a_worker_alone_waits_for_no_other() -> None:
    watched = Watched(alone=True)
    for _ in range(5):
        assert watched.after(9, part()) is None
