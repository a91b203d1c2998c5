"""Large plans are files: one that is lost is planned again, and reported; a killed process leaves none behind."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import instep
from instep.domain.jobs import JobState
from instep.entities import setup
from instep.ledger import plans
from instep.targets.lance import LanceTarget

from .tickets import Desk

DOCUMENTS = 40

#: Runs the project with small waves and a file for every plan, and dies at a call of `owner.name`, before or after it.
_KILLED = """
import functools, os, pkgutil, signal, sys
import instep
import instep.entities.setup as setup
from instep.ledger import plans
owner, name, when = sys.argv[1:]
setup.MOST_CLAIMS, plans._FILE_ROWS = 1, 1
place = pkgutil.resolve_name(owner)
inner = getattr(place, name)
@functools.wraps(inner)
def last(*args, **kwargs):
    if when == "after":
        inner(*args, **kwargs)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(place, name, last)
instep.load(".").run()
"""

PLANS, PARTS = "instep.ledger.plans:Plans", "instep.ledger.parts:Parts"
STEPS = [
    pytest.param(PLANS, "written", "after", id="before the job is stored"),
    pytest.param(PARTS, "_plan", "after", id="when the job is stored", marks=pytest.mark.long),
    pytest.param("os", "fsync", "before", id="while the plan is written", marks=pytest.mark.long),
    pytest.param("instep.targets.lance:LanceTarget", "commit", "after", id="in a wave", marks=pytest.mark.long),
    pytest.param(PARTS, "_finish", "after", id="when the job has ended"),
]


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    monkeypatch.setattr(plans, "_FILE_ROWS", 1)
    monkeypatch.setattr(setup, "MOST_CLAIMS", 1)
    made = Desk(tmp_path / "desk", "parquet", entity="depends_on: []")
    made.declare()
    made.fill(DOCUMENTS)
    return made


def files(desk: Desk) -> list[Path]:
    return [*desk.root.rglob("*.plan*")]


@pytest.mark.parametrize("again", [False, True], ids=["first build", "refresh"])
def test_a_lost_plan_is_made_anew(desk: Desk, monkeypatch: pytest.MonkeyPatch, *, again: bool) -> None:
    if again:
        desk.run()
        for number in range(DOCUMENTS // 2):
            desk.change(number, body="Another text.")
        desk.save()
    commit, lost = LanceTarget.commit, list[Path]()

    def losing(*args: Any, **kwargs: Any) -> int:
        version = commit(*args, **kwargs)
        if not lost:
            lost.extend(files(desk))
            for each in lost:
                each.unlink()
        return version

    monkeypatch.setattr(LanceTarget, "commit", losing)
    result = desk.run()
    assert lost
    assert any("plan" in note and "is lost or damaged" in note for note in result.notes)
    assert result.state is JobState.COMPLETED
    assert desk.wrong() == ""
    assert files(desk) == []
    assert [job.state for job in instep.load(desk.root).jobs()][:2] == [JobState.COMPLETED, JobState.FAILED]


@pytest.mark.parametrize(("owner", "name", "when"), STEPS)
def test_killed_at_a_step_of_a_plan(desk: Desk, owner: str, name: str, when: str) -> None:
    code = [sys.executable, "-c", _KILLED, owner, name, when]
    ended = subprocess.run(code, cwd=desk.root, capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    assert desk.run().state in (JobState.COMPLETED, None)
    assert desk.wrong() == ""
    desk.change(1, body="Another text.")
    desk.save()
    assert desk.run().state is JobState.COMPLETED
    assert desk.wrong() == ""
    assert files(desk) == []
