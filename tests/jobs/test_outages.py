"""An engine that is away, before anything was claimed or in mid-run: no document fails for it, and the job goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from instep.container import Container
from instep.domain.clock import TIMING
from instep.domain.events import WantCreated
from instep.domain.jobs import STOPPED_BY, JobState
from instep.domain.refs import PartitionRef
from instep.domain.wants import Retries, WantState
from instep.entities.plan_request import PlanOptions
from instep.errors import Away, Transient
from instep.jobs.run import run_entities
from instep.jobs.serve import serve
from instep.jobs.wave_progress import TELL_SECONDS
from instep.ledger.ledger import Ledger
from instep.ledger.parts import Parts
from instep.pipeline.engine.inline import InlineEngine
from instep.targets.lance.target import LanceTarget
from instep.telemetry.progress import Silent
from tests.doubles.clock import VirtualClock
from tests.jobs.projects import home

DOCUMENT = PartitionRef.parse("Document")


class Telling(Silent):
    def __init__(self) -> None:
        self.said: list[str] = []
        self.done = 0

    def advance(self, entity: str, units: int) -> None:
        self.done += units

    def say(self, entity: str, message: str) -> None:
        self.said.append(message)


@contextmanager
def opened(folder: Path) -> Iterator[tuple[Container, Ledger, VirtualClock]]:
    clock = VirtualClock()
    container = Container(home(folder).open().project, engine="inline", clock=clock)
    with closing(container), closing(container.ledger()) as ledger:
        yield container, ledger, clock


def test_a_wave_that_had_run_for_long_is_waited_for_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = InlineEngine.run, []
    with opened(tmp_path) as (container, ledger, clock):

        def run(engine: InlineEngine, *wave: Any) -> Any:
            calls.append(clock.monotonic())
            if len(calls) == 1:
                clock.sleep(60)
                raise Transient("Spark is out of reach: gone")
            return real(engine, *wave)

        monkeypatch.setattr(InlineEngine, "run", run)
        telling = Telling()
        context = container.context(ledger, telling)
        (result,) = run_entities(container.setups(), context, PlanOptions(), wait_seconds=0)
    assert result.state is JobState.COMPLETED
    assert len(calls) == 2
    assert telling.said[0] == "waiting: Spark is out of reach: gone"


def test_a_ledger_that_is_away_in_a_wave_is_said_once_and_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    telling, tries = Telling(), []
    with opened(tmp_path) as (container, ledger, _):
        slices, real = type(ledger.slices), type(ledger.slices).complete

        def complete(self: Any, *given: Any, **named: Any) -> Any:
            tries.append(given)
            if len(tries) <= 3:
                raise Transient("the ledger does not answer")
            return real(self, *given, **named)

        monkeypatch.setattr(slices, "complete", complete)
        (result,) = run_entities(container.setups(), container.context(ledger, telling), PlanOptions(), wait_seconds=0)
    assert result.state is JobState.COMPLETED
    assert telling.said == ["waiting: the ledger does not answer"]


def test_progress_of_a_failed_wave_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, telling, seen = InlineEngine.run, Telling(), []
    with opened(tmp_path) as (container, ledger, _):

        def run(engine: InlineEngine, *wave: Any) -> Any:
            seen.append(telling.done)
            outcomes = list(real(engine, *wave))
            if len(seen) <= 2:
                raise Transient("the target is out of reach: gone") if len(seen) == 1 else ValueError("broken")
            return outcomes

        monkeypatch.setattr(InlineEngine, "run", run)
        (result,) = run_entities(container.setups(), container.context(ledger, telling), PlanOptions(), wait_seconds=0)
    assert result.state is JobState.COMPLETED
    assert seen[:3] == [0, 0, 0], "each try begins with nothing done"
    assert telling.done == result.counts.read > 0


def test_others_see_how_far_a_wave_is_and_nothing_of_one_that_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, seen = InlineEngine.run, []
    with opened(tmp_path) as (container, ledger, clock):

        def look() -> None:
            (job,) = ledger.jobs.newest(1)
            seen.append(job.done)

        def run(engine: InlineEngine, wave: Any, program: Any, tell: Callable[[int], None], _: object) -> Any:
            look()
            for _ in range(2):
                tell(1)
                look()
                clock.sleep(TELL_SECONDS)
            tell(1)
            look()
            if len(seen) == 4:
                raise Transient("the target is out of reach: gone")
            return real(engine, wave, program, lambda _: None)

        monkeypatch.setattr(InlineEngine, "run", run)
        (result,) = run_entities(container.setups(), container.context(ledger, Silent()), PlanOptions(), wait_seconds=0)
        look()
    assert result.state is JobState.COMPLETED
    assert seen[:8] == [0, 0, 2, 3] * 2
    assert seen[-1] == result.counts.read


def test_an_engine_that_is_away_ends_a_run_before_anything_is_claimed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_: InlineEngine) -> None:
        raise Away("no answer")

    with opened(tmp_path) as (container, ledger, _):
        with monkeypatch.context() as patched:
            patched.setattr(InlineEngine, "ready", away)
            with pytest.raises(Away, match="no answer"):
                run_entities(container.setups(), container.context(ledger, Silent()), PlanOptions(), wait_seconds=0)
        (job,) = ledger.jobs.newest(limit=10)
        assert job.state is JobState.STOPPED
        assert {each.attempts for each in ledger.slices.of_part(job.id, DOCUMENT)} == {0}
        (result,) = run_entities(container.setups(), container.context(ledger, Silent()), PlanOptions(), wait_seconds=0)
    assert result.state is JobState.COMPLETED
    assert result.job_id == job.id


def test_a_worker_waits_for_an_engine_that_is_away_and_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    project = home(tmp_path).open()
    project.want(["Document"])
    with opened(tmp_path) as (container, ledger, clock):

        def ready(_: InlineEngine) -> None:
            asked.append(clock.monotonic())
            if len(asked) <= 8:
                raise Away("no answer")

        monkeypatch.setattr(InlineEngine, "ready", ready)
        telling = Telling()
        serve(container.setups(), container.context(ledger, telling), until_idle=True)
        (job,) = ledger.jobs.newest(limit=10)
        assert job.state is JobState.COMPLETED
        assert {each.attempts for each in ledger.slices.of_part(job.id, DOCUMENT)} == {0}, "an outage spends none"
    assert telling.said.count("waiting: no answer") == 8
    pauses = [later - earlier for earlier, later in pairwise(asked)]
    assert max(pauses) >= 9, "the breaker opens"


def test_a_run_ends_when_its_target_goes_away_at_the_end_and_the_next_one_completes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    with opened(tmp_path) as (container, ledger, clock):

        def away(_: LanceTarget, *__: Any) -> None:
            asked.append(clock.monotonic())
            assert len(asked) < 100, "it is tried for ever"
            raise Transient("the store does not answer")

        with monkeypatch.context() as patched:
            patched.setattr(LanceTarget, "promote", away)
            with pytest.raises(Away, match="the store does not answer"):
                run_entities(container.setups(), container.context(ledger, Silent()), PlanOptions(), wait_seconds=0)
        assert asked[-1] - asked[0] > 20, "it is waited for"
        (result,) = run_entities(container.setups(), container.context(ledger, Silent()), PlanOptions(), wait_seconds=0)
    assert result.state is JobState.COMPLETED
    assert result.promoted


class Until(VirtualClock):
    """Ctrl-C when something has come about, or after a day."""

    come_about: Callable[[], bool] = staticmethod(lambda: False)

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if self.come_about() or self.milliseconds > VirtualClock.milliseconds + 86_400_000:
            raise KeyboardInterrupt


@pytest.mark.parametrize("watch", [5.0, None])
def test_a_job_stopped_for_an_outage_resumes_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, watch: float | None
) -> None:
    """A machine's stop is no person's: whether it was found by watching or by a want."""
    clock = Until()
    project = home(tmp_path).open()
    if watch is None:
        project.want(["Document"])
    container = Container(project.project, engine="inline", clock=clock)
    with closing(container), closing(container.ledger()) as ledger:
        stopped: list[tuple[str, str]] = []
        stop = Parts.stop

        def told(self: Parts, job_id: str, ref: PartitionRef, reason: str, **how: Any) -> bool:
            stopped.append((job_id, reason))
            return stop(self, job_id, ref, reason, **how)

        def over() -> bool:
            return any(each.state is JobState.COMPLETED for each in ledger.jobs.newest(limit=10))

        def ready(_: InlineEngine) -> None:
            if clock.monotonic() - began < 1.5 * TIMING.orphan / 1000:
                raise Away("no answer")

        clock.come_about, began = over, clock.monotonic()
        monkeypatch.setattr(Parts, "stop", told)
        monkeypatch.setattr(InlineEngine, "ready", ready)
        # Threads of its own would each move the clock on.
        context = replace(container.context(ledger, Silent()), background=clock)
        with pytest.raises(KeyboardInterrupt):
            serve(container.setups(), context, watch=watch)
        (job,) = ledger.jobs.newest(limit=10)
        assert set(stopped) == {(job.id, "Document@global: no answer")}, "it was stopped, after ten minutes"
        assert job.state is JobState.COMPLETED
        assert {each.attempts for each in ledger.slices.of_part(job.id, DOCUMENT)} == {0}, "an outage spends none"


def test_a_worker_does_not_resume_a_wanted_job_that_a_person_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_: InlineEngine) -> None:
        raise Away("no answer")

    clock, telling = Until(), Telling()
    project = home(tmp_path).open()
    project.want(["Document"])
    container = Container(project.project, engine="inline", clock=clock)
    with closing(container), closing(container.ledger()) as ledger:
        context = replace(container.context(ledger, telling), background=clock)
        with monkeypatch.context() as patched:
            patched.setattr(InlineEngine, "ready", away)
            with pytest.raises(Away):
                run_entities(container.setups(), context, PlanOptions(), wait_seconds=0)
        (job,) = ledger.jobs.newest(limit=10)
        ledger.jobs.request_stop(job.id, f"{STOPPED_BY}ann")
        until = clock.milliseconds + 3 * TIMING.orphan
        clock.come_about = lambda: clock.milliseconds > until
        with pytest.raises(KeyboardInterrupt):
            serve(container.setups(), context)
        (job,) = ledger.jobs.newest(limit=10)
        assert (job.state, job.error) == (JobState.STOPPED, "stopped by ann")
    assert len([each for each in telling.said if "stays stopped" in each]) == 1, "said once"


def test_a_want_does_not_resume_a_job_that_a_person_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_: InlineEngine) -> None:
        raise Away("no answer")

    with opened(tmp_path) as (container, ledger, clock):
        context = replace(container.context(ledger, Silent()), background=clock)
        with monkeypatch.context() as patched:
            patched.setattr(InlineEngine, "ready", away)
            with pytest.raises(Away):
                run_entities(container.setups(), context, PlanOptions(), wait_seconds=0)
        (job,) = ledger.jobs.newest(limit=10)
        ledger.jobs.request_stop(job.id, f"{STOPPED_BY}ann")
        message = WantCreated(want="w", refs=(str(DOCUMENT),), as_of=clock.now(), retries=Retries())
        ledger.events.append([message])
        serve(container.setups(), context, until_idle=True)
        (job,) = ledger.jobs.newest(limit=10)
        assert (job.state, sum(job.counts.as_dict().values())) == (JobState.STOPPED, 0)
        want = ledger.wants.get("w")
        assert want is not None
        assert (want.attempts, want.state.ended) == (0, False)
        run_entities(container.setups(), context, PlanOptions(), wait_seconds=0)  # A person goes on with it.
        serve(container.setups(), context, until_idle=True)
        want = ledger.wants.get("w")
        assert want is not None
        assert want.state is WantState.SUCCESSFUL
