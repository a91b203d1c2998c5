"""What a job measures, later plans are estimated by."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from instep.container import Container
from instep.domain.planning import WAVE_SECONDS, Pace, wave_work
from instep.entities.documents.embedders import embedding_time_of
from instep.entities.documents.setup import DocumentSetup
from instep.entities.plan_request import PlanOptions
from instep.errors import Transient
from instep.jobs.run import run_entities
from instep.jobs.slice_claims import SliceClaims
from instep.pipeline.documents.embed.hashing import HashingEmbedder
from instep.pipeline.engine.inline import InlineEngine
from instep.project import HashingEmbed, PythonEmbed, StaticEmbed
from instep.telemetry.progress import Silent
from tests.cli.saying import said
from tests.doubles.clock import VirtualClock
from tests.jobs.projects import home


@pytest.mark.parametrize(("seconds", "fails", "learns"), [(10, False, True), (2, False, False), (10, True, False)])
def test_waves_that_last_are_measured_unless_they_are_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: int, fails: bool, learns: bool
) -> None:
    real, clock, waves = InlineEngine.run, VirtualClock(), list[int]()

    def run(engine: InlineEngine, wave: Any, *args: Any) -> Any:
        waves.append(wave.work)
        clock.sleep(seconds)
        if fails and len(waves) == 1:
            raise Transient("the target is out of reach: gone")
        return real(engine, wave, *args)

    monkeypatch.setattr(InlineEngine, "run", run)
    container = Container(home(tmp_path).open().project, engine="inline", clock=clock)
    with closing(container), closing(container.ledger()) as ledger:
        (setup,) = container.setups()
        assert container.engines.choose(setup, 1, ledger).pace_from == "a default"
        (result,) = run_entities([setup], container.context(ledger, Silent()), PlanOptions(), wait_seconds=0)
        choice = container.engines.choose(setup, 1, ledger)
    if learns:
        assert result.job_id is not None
        assert choice.pace_from == f"measured in job {result.job_id[:8]}"
        assert choice.work_per_second == pytest.approx(sum(waves) / (seconds * len(waves)), rel=0.1)
    else:
        assert choice.pace_from == "a default"


#: More than a wave of the slow embedder.
_DOCUMENTS = 300


@pytest.mark.parametrize(
    "seconds_a_text", [0.040, 0.005], ids=["an API of 40 ms a text", "a model of 200 texts a second"]
)
def test_engine_plan_and_waves_go_by_the_embedders_own_pace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], seconds_a_text: float
) -> None:
    clock, waves, texts = VirtualClock(), list[list[int]](), list[int]()
    embed, run = HashingEmbedder.embed, InlineEngine.run

    def embedding(embedder: HashingEmbedder, some: Any) -> Any:
        texts.append(len(some))
        clock.sleep(len(some) * seconds_a_text)
        return embed(embedder, some)

    def running(engine: InlineEngine, wave: Any, *args: Any) -> Any:
        waves.append([each.work for each in wave.slices])
        return run(engine, replace(wave, tasks=1), *args)  # The clock is for one thread.

    monkeypatch.setattr(HashingEmbedder, "embed", embedding)
    monkeypatch.delattr(HashingEmbedder, "embed_runs")
    monkeypatch.setattr(InlineEngine, "run", running)
    place = home(tmp_path, documents=_DOCUMENTS)
    container = Container(place.open().project, engine="inline", clock=clock)
    with closing(container), closing(container.ledger()) as ledger:
        (setup,) = container.setups()
        believed = container.engines.choose(setup, 10_000, ledger)
        assert believed.pace_from == "a default"
        (result,) = run_entities([setup], container.context(ledger, Silent()), PlanOptions(), wait_seconds=0)
        learned = container.engines.choose(setup, 10_000, ledger)
        measured = sum(map(sum, waves)) / (sum(texts) * seconds_a_text)
        assert learned.pace_from == f"measured in job {str(result.job_id)[:8]}"
        assert learned.work_per_second == pytest.approx(measured, rel=0.05)
        assert learned.inline_seconds == pytest.approx(10_000 / measured, rel=0.05)
        assert learned.inline_seconds > 20 * believed.inline_seconds
        waves.clear()
        for number in range(_DOCUMENTS):
            place.change(number, "another day")
        planned = said(capsys, "plan", "--project", str(tmp_path), code=2)
        assert f"about {measured:,.0f} rows a second (measured in job {str(result.job_id)[:8]})" in planned
        run_entities([setup], container.context(ledger, Silent()), PlanOptions(), wait_seconds=0)
    # Slices are claimed whole. How large each is differs from run to run: ids of documents come of the test's folder.
    *before, last = waves[0]
    goal = wave_work(learned.pace)
    assert sum(before) < goal, "a wave is about ten seconds of this embedder"
    assert sum(before) + last >= goal or len(waves) == 1


def test_a_wave_over_a_table_has_a_share_of_it_unless_an_embedder_is_slow() -> None:
    """Each wave looks through all of its rows."""
    least: Any = vars(DocumentSetup)["least_wave"]

    def of(rows: int, *, slow: bool = False, slower: float = 1.0, inline: bool = False) -> int:
        embedder = SimpleNamespace(cached=slow)
        setup: Any = SimpleNamespace(batched=False, scanned_rows=lambda: rows, embedder=lambda: embedder, slower=slower)
        found: int = least(setup, inline=inline)
        return found

    assert (of(0), of(7), of(64_000), of(64_000, slow=True)) == (0, 0, 8_000, 0)
    assert (of(1_000_000), of(4_000_000), of(32_000_000)) == (125_000, 250_000, 1_000_000)
    assert (of(200_000, inline=True), of(4_000_000, inline=True)) == (200_000, 1_000_000)
    assert of(4_000_000, slower=10.0, inline=True) == 250_000


@pytest.mark.parametrize(("least", "asked"), [(0, 50), (49, 50), (2_000, 2_000)])
def test_claims_are_of_that_share_at_least(least: int, asked: int) -> None:
    wanted: list[int] = []

    def claim(*_: object, work: int, **__: object) -> list[Any]:
        wanted.append(work)
        return []

    context: Any = SimpleNamespace(ledger=SimpleNamespace(slices=SimpleNamespace(claim=claim)))
    setup: Any = SimpleNamespace(least_wave=lambda inline: least * inline, most_claims=1_000, scanned=False)
    other: Any = SimpleNamespace(require=lambda _: None, ref=None, pending=1, workers=1)
    claims = SliceClaims(
        setup, other, job_id="j", worker_id="w", context=context, heartbeat=other, pauses=other, inline=True
    )
    assert claims.claim(other, Pace(0.0, 50 / WAVE_SECONDS, 2)) == []
    assert wanted == [asked]


def test_a_first_estimate_goes_by_the_declared_embedder() -> None:
    own = PythonEmbed(type="python", function="package.module:embed", dimensions=3)
    quick = own.model_copy(update={"cache": False})
    found = [embedding_time_of(each) for each in (HashingEmbed(), StaticEmbed(), quick, own)]
    assert found == [1.0, 10.0, 10.0, 100.0]
