"""What goes wrong with one entity of a job stops that one: the others are completed and served."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import instep
from instep.cli import main
from instep.container import Container
from instep.domain.jobs import Job, JobState
from instep.domain.waves import TaskOutcome, Wave
from instep.jobs.acquisition import Acquisition
from instep.pipeline.engine.inline import InlineEngine
from tests.waiting import until

_PROJECT = """\
    name: several
    targets:
      index: {type: lance, uri: .instep/index}
      beside: {type: lance, uri: .instep/beside}
    entities:
      Bad: {source: {type: files, path: notes}, target: index}
      Worse: {source: {type: files, path: notes}, target: index}
      Good: {source: {type: files, path: notes}, target: index}
      Beside: {source: {type: files, path: notes}, target: beside}
"""
ENTITIES = ["Bad", "Worse", "Good", "Beside"]
#: What the waves of these entities end with, all of them.
ERRORS = {"Bad": "no module named helpers", "Worse": "no space left"}


@pytest.fixture
def project(tmp_path: Path) -> str:
    (tmp_path / "instep.yaml").write_text(textwrap.dedent(_PROJECT))
    (tmp_path / "notes").mkdir()
    for number in range(12):
        (tmp_path / "notes" / f"{number}.md").write_text(f"# Tide {number}\n\nThe moon pulls the sea.\n")
    return str(tmp_path)


@pytest.fixture
def mend(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Waves break as `ERRORS` says, until this is called."""
    real, errors = InlineEngine.run, dict(ERRORS)

    def run(self: InlineEngine, wave: Wave, *args: Any) -> Sequence[TaskOutcome]:
        if error := errors.get(wave.ref.entity):
            raise RuntimeError(error)
        return real(self, wave, *args)

    monkeypatch.setattr(InlineEngine, "run", run)
    return errors.clear


def jobs_of(project: str) -> list[Job]:
    with closing(Container(instep.load(project).project)) as container, closing(container.ledger()) as ledger:
        return ledger.jobs.newest()


def errors_of(job: Job) -> dict[str, str | None]:
    return {each.part.ref.entity: each.error for each in job.parts}


def shown(project: str, capsys: pytest.CaptureFixture[str]) -> dict[str, dict[str, Any]]:
    capsys.readouterr()
    assert main(["status", *ENTITIES, "--project", project, "--json"]) == 0
    return {each["ref"].partition("@")[0]: each for each in json.loads(capsys.readouterr().out)}


def demand_each_its_own(project: str, capsys: pytest.CaptureFixture[str]) -> None:
    found = shown(project, capsys)
    for name in ENTITIES:
        said = f"{found[name]['job']['error']} {found[name]['notes']}"
        for other, error in ERRORS.items():
            assert (error in said) is (other == name), said
    assert {name: each["job"]["state"] for name, each in found.items()} == {
        "Bad": "STOPPED",
        "Worse": "STOPPED",
        "Good": "COMPLETED",
        "Beside": "COMPLETED",
    }


def test_a_run_serves_the_others_and_the_next_one_resumes_the_rest(
    project: str, mend: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", *ENTITIES, "--project", project, "--quiet", "--json"]) == 1
    results = {each["ref"].partition("@")[0]: each for each in json.loads(capsys.readouterr().out)}
    assert {name: each["state"] for name, each in results.items()} == {
        "Bad": "FAILED",
        "Worse": "FAILED",
        "Good": "COMPLETED",
        "Beside": "COMPLETED",
    }
    for name, error in ERRORS.items():
        assert error in results[name]["problem"]
    demand_each_its_own(project, capsys)
    before = {each.id: each for each in jobs_of(project)}
    assert {each.state for each in before.values()} == {JobState.STOPPED, JobState.COMPLETED}, "one for each target"
    mend()
    assert main(["run", *ENTITIES, "--project", project, "--quiet"]) == 0
    after = {each.id: each for each in jobs_of(project)}
    assert after.keys() == before.keys(), "nothing was begun anew"
    assert {each.state for each in after.values()} == {JobState.COMPLETED}


def test_a_worker_serves_the_others_and_spends_an_attempt_of_the_rest(
    project: str, mend: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    opened = instep.load(project)
    opened.want(ENTITIES)
    opened.worker(ENTITIES, until_idle=True)
    demand_each_its_own(project, capsys)
    for job in jobs_of(project):
        for name, error in errors_of(job).items():
            assert error is None if name not in ERRORS else ERRORS[name] in (error or "")
    assert {hit.entity for hit in opened.search("moon", entities=["Good", "Beside"])} == {"Good", "Beside"}


def test_one_that_fails_at_once_keeps_no_other_target_from_being_begun(
    project: str, mend: Callable[[], None], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the hands of another worker, before the one that has made the job goes on."""
    real = Acquisition._plan_job

    def plan_job(self: Acquisition) -> None:
        real(self)
        if "Bad" in {each.entity for each in self.created}:
            until(lambda: not self._ledger.wants.open_refs(), "the want has failed")

    monkeypatch.setattr(Acquisition, "_plan_job", plan_job)
    opened = instep.load(project)
    opened.want(ENTITIES)
    opened.worker(ENTITIES, until_idle=True)
    demand_each_its_own(project, capsys)
