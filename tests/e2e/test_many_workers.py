"""Many workers in one job: the seed's recovery scenarios, and what must hold when one of them is late or gone.

The real service on the real target; the ledger is in memory and time is virtual, so that one thread can
let one worker stand still while another goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

import instep
from instep.container import Container
from instep.domain import planning
from instep.domain.clock import TIMING
from instep.domain.jobs import JobState, SliceState
from instep.domain.refs import PartitionRef
from instep.domain.waves import TaskOutcome, Wave
from instep.entities import setup
from instep.entities.plan_request import PlanOptions
from instep.errors import Transient, UserError
from instep.jobs import slice_claims
from instep.jobs.acquisition import Busy
from instep.jobs.entity_result import EntityResult
from instep.jobs.run import run_entities
from instep.jobs.serve import serve
from instep.pipeline.engine.engine import Engine, TableProgram, WaveProgram
from instep.pipeline.engine.inline import InlineEngine
from instep.planning.context import Context
from instep.targets.lance import LanceTarget
from instep.telemetry.progress import Silent
from tests.doubles.clock import VirtualClock
from tests.doubles.container import workshop_of
from tests.doubles.ledger import MemoryLedger
from tests.doubles.through import replaced

from . import corpus
from .conftest import Location
from .test_faults import NoProof

DOCUMENTS = 24

#: Looks seldom: waiting for a silent worker, which is minutes of this clock, takes few calls.
SELDOM = replace(TIMING, poll=5_000)


class Gone(BaseException):
    """The process is gone: nothing of it runs any more."""


@dataclass
class Told(Silent):
    said: list[str] = field(default_factory=list)

    def say(self, entity: str, message: str) -> None:
        self.said.append(message)


class Still(VirtualClock):
    """Implements `Background` for a process that stands still: no heartbeat leaves it."""

    def every(self, seconds: float, task: Callable[[], bool], name: str) -> Callable[[], None]:
        return lambda: None


class LiveRefresh(InlineEngine):
    """Runs a wave; then, before it is committed, something else happens, once."""

    def __init__(self, happens: Callable[[], None]) -> None:
        super().__init__()
        self._happens: Callable[[], None] | None = happens

    def run(self, wave: Wave, program: WaveProgram | TableProgram, *told: Any) -> Sequence[TaskOutcome]:
        done = super().run(wave, program, *told)
        happens, self._happens = self._happens, None
        if happens:
            happens()
        return done


class Site:
    """One project, one ledger, one clock; any number of servers."""

    def __init__(self, place: Location, clock: VirtualClock | None = None) -> None:
        self.place = place
        self.clock = clock or VirtualClock()
        self.ledger = MemoryLedger(self.clock)
        self.told = Told()

    def context(self, container: Container, **changes: Any) -> Context:
        context = container.context(self.ledger, self.told)
        context = replace(context, liveness=NoProof(), background=self.clock, timing=SELDOM)
        return replace(context, **changes)

    def run(
        self,
        *,
        target: Callable[[Any], Any] = lambda real: real,
        options: PlanOptions | None = None,
        wait: float = 600.0,
        **changes: Any,
    ) -> list[EntityResult]:
        container = workshop_of(instep.load(self.place.root).project, self.ledger, clock=self.clock, engine="inline")
        with closing(container):
            setups = [replace(each, target=target(each.target)) for each in container.setups()]
            context = self.context(container, **changes)
            return run_entities(setups, context, options or PlanOptions(), wait_seconds=wait)

    def serve(self, **changes: Any) -> None:
        container = workshop_of(instep.load(self.place.root).project, self.ledger, clock=self.clock, engine="inline")
        with closing(container):
            serve(container.setups(), self.context(container, **changes), until_idle=True)

    def leave_behind(self, target: Callable[[Any], Any] = lambda real: real) -> None:
        """A run that dies with its first wave staged and nothing committed."""

        def dies() -> None:
            raise Gone

        def engine(_: object) -> Engine:
            return LiveRefresh(dies)

        frozen = replaced(self.ledger, {"jobs.leave": _gone, "workers.retire": _gone})
        with pytest.raises(Gone):
            self.run(target=target, engine=engine, ledger=frozen, background=Still())

    def only_job(self) -> Any:
        (job,) = self.ledger.jobs.newest()
        return job


def _gone(_: Any, *args: Any, **kwargs: Any) -> Any:
    raise Gone


def pausing(happens: Callable[[], None]) -> Callable[[object], Engine]:
    engine = LiveRefresh(happens)
    return lambda _: engine


@pytest.fixture
def site(tmp_path: Path) -> Site:
    place = Location(tmp_path / "project", tmp_path / "docs")
    corpus.write(place.docs, range(DOCUMENTS))
    place.declare(entity="buckets: 6")
    return Site(place)


@pytest.fixture
def small_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two slices a wave, so that a job takes several."""
    monkeypatch.setattr(setup, "MOST_CLAIMS", 2)


def exact(site: Site, results: Sequence[EntityResult]) -> None:
    assert site.place.wrong() == ""
    for each in results:
        assert each.state is JobState.COMPLETED
        assert each.counts.read == each.counts.written == DOCUMENTS


def test_scenario_1_work_of_a_crashed_server_is_done_by_another_one(site: Site) -> None:
    site.leave_behind()
    held = site.only_job().slices
    assert held.get(SliceState.PROCESSING)
    before = site.clock.now()
    exact(site, site.run())
    # It had to wait until the silence was long enough, and no longer than a sweep more.
    assert TIMING.stale <= site.clock.now() - before <= TIMING.stale + TIMING.sweep + SELDOM.poll
    assert len(site.ledger.jobs.newest()) == 1
    assert all(worker.slices == 0 for worker in site.ledger.workers.all())


@pytest.mark.usefixtures("small_claims")
def test_scenario_2_a_worker_cut_off_beyond_its_lease_is_refused_and_the_index_is_exact(site: Site) -> None:
    others: list[EntityResult] = []

    def the_others_take_over() -> None:
        site.clock.sleep(TIMING.lease / 1000)
        others.extend(site.run())

    results = site.run(engine=pausing(the_others_take_over), background=Still())
    exact(site, [*results, *others])
    assert any("lease lost to another worker" in said for said in site.told.said)
    assert len(site.ledger.jobs.newest()) == 1


@pytest.mark.usefixtures("small_claims")
def test_a_worker_that_does_not_know_how_late_it_is_is_refused_by_ledger_and_target(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own clock stood still with it (a suspended machine): only fences can stop it now."""
    monkeypatch.setattr("instep.jobs.heartbeat.Heartbeat.require", lambda *_: None)
    refused: list[str] = []

    def committed(real: Callable[..., int], *args: Any, **kwargs: Any) -> int:
        try:
            return real(*args, **kwargs)
        except Exception as error:
            refused.append(type(error).__name__)
            raise

    def the_others_take_over() -> None:
        site.clock.sleep(TIMING.lease / 1000)
        site.run()

    blind = replaced(site.ledger, {"slices.holds": lambda _real, *_args: True})
    results = site.run(
        target=lambda real: replaced(real, {"commit": committed}),
        engine=pausing(the_others_take_over),
        background=Still(),
        ledger=blind,
    )
    assert refused == ["Fenced"]
    exact(site, results)


def test_scenario_3_a_target_that_is_down_for_a_while_costs_no_attempt(site: Site) -> None:
    down_until = site.clock.now() + 20_000

    def commit(real: Callable[..., int], *args: Any, **kwargs: Any) -> int:
        if site.clock.now() < down_until:
            raise Transient("the target is overloaded")
        return real(*args, **kwargs)

    exact(site, site.run(target=lambda real: replaced(real, {"commit": commit})))
    assert not site.ledger.failures.newest()


def test_a_target_that_stays_down_stops_a_run_soon_and_a_workers_job_in_bounded_time(site: Site) -> None:
    def down(_: Any, *args: Any, **kwargs: Any) -> int:
        raise Transient("the target is away")

    with pytest.raises(UserError, match="the target is away"):
        site.run(target=lambda real: replaced(real, {"commit": down}))
    job = site.only_job()
    assert job.state is JobState.STOPPED
    assert "the target is away" in (job.error or "")
    assert set(job.slices) == {SliceState.PENDING}
    exact(site, site.run())


def test_the_ledger_being_away_between_both_commits_counts_nothing_twice(site: Site) -> None:
    tried: list[int] = []

    def complete(real: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        tried.append(1)
        if len(tried) % 3:
            raise Transient("the ledger is away")
        real(*args, **kwargs)
        if len(tried) < 4:
            raise Transient("the reply was lost")

    exact(site, site.run(ledger=replaced(site.ledger, {"slices.complete": complete})))
    assert len(tried) >= 3


def test_a_commit_never_recorded_is_found_by_the_next_worker_and_counted_once(site: Site) -> None:
    """The ledger stays away for longer than the lease, right between the two commits."""

    def away(_: Any, *args: Any, **kwargs: Any) -> None:
        raise Transient("the ledger is away")

    frozen = replaced(
        site.ledger,
        {
            "slices.complete": away,
            "workers.heartbeat": away,
            "jobs.leave": _gone,
            "workers.retire": _gone,
            "workers.all": _gone,
        },
    )
    with pytest.raises((UserError, Gone)):
        site.run(ledger=frozen)
    exact(site, site.run())


def test_commits_of_an_abandoned_job_are_recorded_first(site: Site) -> None:
    """The served index has its rows: unless the ledger knows, it could never be trusted again."""
    site.run()
    corpus.path(site.place.docs, 1).unlink()
    frozen = replaced(site.ledger, {"slices.complete": _gone, "jobs.leave": _gone, "workers.retire": _gone})
    with pytest.raises(Gone):
        site.run(ledger=frozen, background=Still())
    site.clock.sleep(TIMING.lease / 1000)

    def broken(*_: Any) -> None:
        raise UserError("the alias cannot be written")

    with pytest.raises(UserError, match="alias"):
        site.run(options=PlanOptions(full_refresh=True), target=lambda real: replaced(real, {"promote": broken}))
    served = site.ledger.checkpoints.get(PartitionRef("Document"))
    assert served is not None
    target = LanceTarget(str(site.place.index))
    assert target.rows(served.physical) == site.ledger.documents.totals(served.instance)[1]
    assert site.place.wrong() == ""


def _a_finisher_dies(site: Site) -> None:
    """It has got a new lease for its last steps, and the part is still of the one before."""
    frozen = replaced(site.ledger, {"parts.adopt": _gone, "jobs.leave": _gone, "workers.retire": _gone})
    with pytest.raises(Gone):
        site.run(ledger=frozen, background=Still())


def _evict_all_but(site: Site, living: set[str]) -> None:
    for each in site.ledger.workers.all():
        if each.id not in living:
            site.ledger.workers.evict(each.id)


def test_joining_before_a_finisher_is_known_to_be_dead_waits_for_no_lease(site: Site) -> None:
    _a_finisher_dies(site)
    (dead,) = site.ledger.workers.all()
    began, tries = site.clock.monotonic(), list[int]()

    def acquire_lease(real: Callable[..., Any], *args: Any) -> Any:
        tries.append(1)
        if len(tries) == 3:
            site.ledger.workers.evict(dead.id)
        return real(*args)

    exact(site, site.run(ledger=replaced(site.ledger, {"leases.acquire": acquire_lease})))
    assert site.clock.monotonic() - began < TIMING.heartbeat / 1000
    assert len(site.ledger.jobs.newest()) == 1


def test_a_worker_beside_a_dying_finisher_waits_for_no_lease(site: Site) -> None:
    began = site.clock.monotonic()
    first: list[str] = []

    def begin_finish(real: Callable[..., Any], *args: Any) -> Any:
        if not first:
            first.extend(each.id for each in site.ledger.workers.all())
            _a_finisher_dies(site)
            _evict_all_but(site, set(first))
        return real(*args)

    exact(site, site.run(ledger=replaced(site.ledger, {"parts.begin_finish": begin_finish})))
    assert site.clock.monotonic() - began < TIMING.heartbeat / 1000
    assert len(site.ledger.jobs.newest()) == 1


@pytest.mark.parametrize("call", ["jobs.begin", "leases.acquire", "parts.plan"])
def test_a_run_that_was_silent_for_too_long_while_it_planned_starts_again(site: Site, call: str) -> None:
    late: list[int] = []

    def slow(real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not late:
            late.append(1)
            site.clock.sleep(TIMING.stale / 1000)
            site.ledger.sweep()
        return real(*args, **kwargs)

    exact(site, site.run(ledger=replaced(site.ledger, {call: slow}), background=Still()))
    assert any("it registers again" in said for said in site.told.said)


def test_a_run_that_was_silent_while_others_did_its_work_has_nothing_to_do(site: Site) -> None:
    late: list[int] = []

    def slow(real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if not late:
            late.append(1)
            site.clock.sleep(TIMING.stale / 1000)
            exact(site, site.run())
        return real(*args, **kwargs)

    results = site.run(ledger=replaced(site.ledger, {"parts.plan": slow}), background=Still())
    assert [each.state for each in results] == [None]
    assert site.place.wrong() == ""


def test_an_index_that_is_served_already_is_not_given_up(site: Site) -> None:
    """Its finisher died between the alias and the ledger; then a user asked for a full refresh."""
    frozen = replaced(site.ledger, {"parts.finish": _gone, "jobs.leave": _gone, "workers.retire": _gone})
    with pytest.raises(Gone):
        site.run(ledger=frozen, background=Still())
    site.clock.sleep(TIMING.lease / 1000)
    exact(site, site.run(options=PlanOptions(full_refresh=True)))
    rebuilt, first = site.ledger.jobs.newest()
    assert (rebuilt.state, first.state) == (JobState.COMPLETED, JobState.COMPLETED)


def test_slices_of_a_paused_process_are_awaited_for_the_stated_time(site: Site) -> None:
    """It may be dead on another host just as well: that is unknown here."""
    site.leave_behind()
    before = site.clock.now()
    with pytest.raises(
        Busy, match=r"is being indexed by process \d+ on .* and nothing was done in it for 5 s"
    ) as caught:
        site.run(wait=5.0)
    assert caught.value.exit_code == 75
    assert 5_000 <= site.clock.now() - before < 10_000
    assert site.only_job().state is JobState.RUNNING, "it is not ours to stop"
    exact(site, site.run())


def test_a_paused_finisher_is_awaited_for_the_stated_time(site: Site) -> None:
    """All slices are done; the one that has the last step is stopped there."""
    frozen = replaced(site.ledger, {"parts.finish": _gone, "jobs.leave": _gone, "workers.retire": _gone})
    with pytest.raises(Gone):
        site.run(ledger=frozen, background=Still())
    before = site.clock.now()
    with pytest.raises(Busy, match="nothing was done in it for 5 s"):
        site.run(wait=5.0)
    assert site.clock.now() - before < 10_000
    exact(site, site.run())


def test_a_run_does_not_wait_longer_for_a_stop_than_stated(site: Site) -> None:
    site.leave_behind()
    job = site.only_job()

    def stop(real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        site.ledger.jobs.request_stop(job.id, "enough for today")
        return real(*args, **kwargs)

    before = site.clock.now()
    with pytest.raises(Busy):
        site.run(wait=5.0, ledger=replaced(site.ledger, {"leases.renew": stop}))
    assert site.clock.now() - before < 10_000


def test_an_orphaned_job_is_resumed_by_any_worker(site: Site) -> None:
    site.leave_behind()
    site.serve()
    assert site.only_job().state is JobState.COMPLETED
    assert site.place.wrong() == ""


def test_an_orphan_that_cannot_be_resumed_fails_after_ten_minutes_and_not_before(site: Site) -> None:
    site.leave_behind()
    site.place.declare(chunk=500, entity="buckets: 6")
    before = site.clock.now()
    site.serve()
    job = site.only_job()
    assert job.state is JobState.FAILED
    assert "chunker changed" in (job.parts[0].error or "")
    assert site.clock.now() - before >= TIMING.orphan
    assert [each.state for each in site.run()] == [JobState.COMPLETED]
    assert site.place.wrong() == ""


@pytest.mark.usefixtures("small_claims")
def test_ctrl_c_on_one_of_two_leaves_the_job_to_the_other(site: Site) -> None:
    def another_joins_and_leaves() -> None:
        def interrupted() -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            site.run(engine=pausing(interrupted))
        assert site.only_job().state is JobState.RUNNING

    exact(site, site.run(engine=pausing(another_joins_and_leaves)))


@pytest.mark.usefixtures("small_claims")
def test_a_job_that_is_stopped_from_outside_ends_its_runs_and_is_resumed_by_the_next(site: Site) -> None:
    def stop() -> None:
        site.ledger.jobs.request_stop(site.only_job().id, "enough for today")

    with pytest.raises(UserError, match="enough for today"):
        site.run(engine=pausing(stop))
    job = site.only_job()
    assert job.state is JobState.STOPPED
    assert job.slices[SliceState.COMPLETED] == 2, "what was in work is finished first"
    exact(site, site.run())
    assert len(site.ledger.jobs.newest()) == 1


def test_a_stopping_job_does_not_wait_for_ever_for_a_stuck_worker(site: Site) -> None:
    site.leave_behind()
    site.ledger.jobs.request_stop(site.only_job().id)
    site.clock.sleep(TIMING.grace / 1000)
    site.ledger.sweep()
    assert site.only_job().state is JobState.STOPPED
    exact(site, site.run())


def test_slices_that_prove_too_long_are_split_and_the_split_is_recorded(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut: list[str] = []

    def thrice(work: int, units: int, pace: object, *, idle: bool) -> bool:
        return units > 1 and len(cut) < 3

    def split(real: Callable[..., bool], claim: Any, worker_id: str) -> bool:
        done = real(claim, worker_id)
        if done:
            cut.append(claim.slice_id)
        return done

    monkeypatch.setattr(slice_claims, "too_long", thrice)
    results = site.run(ledger=replaced(site.ledger, {"slices.split": split}))
    exact(site, results)
    buckets = len(
        {each.bucket for each in site.ledger.documents.entries(site.only_job().parts[0].part.instance).values()}
    )
    assert len(cut) == 3
    assert sum(site.only_job().slices.values()) == buckets + 3


def test_entities_of_one_run_are_one_job_and_each_is_served_when_it_is_done(tmp_path: Path) -> None:
    place = Location(tmp_path / "project", tmp_path / "docs")
    corpus.write(place.docs, range(DOCUMENTS))
    place.declare(entity="buckets: 6\npriority: 80")
    text = (place.root / "instep.yaml").read_text()
    (place.root / "instep.yaml").write_text(text + _second_entity(text))
    site = Site(place)
    order: list[str] = []

    def promoted(real: Callable[..., None], alias: str, *args: Any) -> None:
        order.append(alias)
        pending = site.only_job().slices.get(SliceState.PENDING, 0)
        order.append("others pending" if pending else "nothing pending")
        real(alias, *args)

    results = site.run(target=lambda real: replaced(real, {"promote": promoted}))
    assert [str(each.plan.ref) for each in results] == ["Document@global", "Other@global"]
    exact(site, results)
    assert order == ["Document", "others pending", "Other", "nothing pending"]
    assert len(site.only_job().parts) == 2


def _second_entity(text: str) -> str:
    """The project file's only entity once more, as `Other` of a lower priority."""
    lines = text.splitlines()
    start = next(at for at, line in enumerate(lines) if line.strip() == "Document:")
    block = [lines[start].replace("Document", "Other")]
    for line in lines[start + 1 :]:
        if line.strip() and len(line) - len(line.lstrip()) <= len(lines[start]) - len(lines[start].lstrip()):
            break
        block.append(line.replace("priority: 80", "priority: 20"))
    return "\n" + "\n".join(block) + "\n"


def test_a_giant_document_has_a_slice_of_its_own_at_the_end(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "SLICE_ROWS_MAX", 50)
    giant = corpus.path(site.place.docs, DOCUMENTS)
    giant.write_text("\n\n".join(f"# Part {number}\n\n{'words ' * 120}" for number in range(60)))
    seen: list[list[int]] = []

    class Watched(InlineEngine):
        def run(self, wave: Wave, program: WaveProgram | TableProgram, *told: Any) -> Sequence[TaskOutcome]:
            seen.append([len(each.changes) for each in wave.slices])
            return super().run(wave, program, *told)

    engine = Watched()
    (result,) = site.run(engine=lambda _: engine)
    assert (site.place.wrong(), result.counts.written) == ("", DOCUMENTS + 1)
    assert seen[-1] == [1]
    assert sum(map(sum, seen[:-1])) == DOCUMENTS
