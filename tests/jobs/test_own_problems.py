"""A problem belongs to its entity: the others are brought up to date, and the exit code says that one was not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import stamina

import instep
from instep.cli import main
from instep.jobs.entity_result import EntityResult

PROJECT = """
name: p
engine: inline
targets: {main: {type: lance, uri: .instep/index}}
entities:
  Big: {source: {type: files, path: big}, priority: 90}
  Small: {source: {type: files, path: small}}
  Other: {source: {type: files, path: other}}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "instep.yaml").write_text(PROJECT)
    for name, count in (("big", 150), ("small", 1), ("other", 1)):
        for number in range(count):
            write(tmp_path / name / f"{number}.md")
    return tmp_path


def write(path: Path, text: str = "") -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"# {path.stem}\n\nThe text of {path}. {text}\n")


def run(root: Path) -> dict[str, EntityResult]:
    return {each.plan.ref.entity: each for each in instep.load(root).run()}


def guarded(root: Path) -> str:
    shutil.rmtree(root / "big")
    write(root / "big" / "0.md")
    return "--allow-deletes"


def missing(root: Path) -> str:
    shutil.rmtree(root / "big")
    return "big"


def moved_route(root: Path) -> str:
    declared = root / "instep.yaml"
    declared.write_text(declared.read_text().replace("priority: 90", "priority: 90, buckets: 3"))
    return "instep rebalance"


def gone(root: Path) -> str:
    """Its index is not there any more, and there is something to add to it."""
    shutil.rmtree(next((root / ".instep" / "index").glob("Big__*")))
    write(root / "big" / "more.md")
    return "--full-refresh"


@pytest.mark.parametrize("trouble", [guarded, missing, moved_route, gone])
def test_an_error_of_one_entity_stops_no_other(root: Path, trouble: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert {each.promoted for each in run(root).values()} == {True}
    hint = trouble(root)  # type: ignore[operator]  # one of the above
    for name in ("small", "other"):
        write(root / name / "new.md", "brandnew")
    assert main(["run", "--project", str(root), "--json", "--quiet"]) == 1
    said = capsys.readouterr()
    found = {each["ref"]: each for each in json.loads(said.out)}
    assert [found[f"{name}@global"]["state"] for name in ("Small", "Other")] == ["COMPLETED", "COMPLETED"]
    assert found["Big@global"]["state"] == "FAILED"
    assert hint in found["Big@global"]["problem"]
    assert "error: Big is not up to date: " in said.err
    assert "Traceback" not in said.err
    brandnew = {each.entity for each in instep.load(root).search("brandnew", mode="text", entities=["Small", "Other"])}
    assert brandnew == {"Small", "Other"}


def test_an_entity_that_cannot_start_stops_no_other(root: Path) -> None:
    shutil.rmtree(root / "big")
    found = run(root)
    assert found["Big"].problem is not None
    assert [found[name].promoted for name in ("Small", "Other")] == [True, True]
    write(root / "big" / "0.md")
    assert run(root)["Big"].promoted


def test_an_entity_that_fails_at_work_stops_no_other(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All three are parts of one job; the part that is left is gone on with by the next run."""
    monkeypatch.setattr("instep.jobs.wave.OUTAGE_SECONDS", 0.5)
    declared = root / "instep.yaml"
    embed = "priority: 90, embed: {type: openai, url: 'http://127.0.0.1:9/v1', model: m, dimensions: 8}"
    declared.write_text(declared.read_text().replace("priority: 90", embed))
    with stamina.set_testing(True):  # It is asked once in each wave, and without a pause.
        found = run(root)
    assert found["Big"].state_name == "AWAY"
    assert [found[name].promoted for name in ("Small", "Other")] == [True, True]
    assert [job.state for job in instep.load(root).jobs()] == ["STOPPED"]


def test_one_that_is_asked_for_alone_is_an_error_as_before(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(root)
    guarded(root)
    assert main(["run", "Big", "--project", str(root), "--json", "--quiet"]) == 1
    assert "--allow-deletes" in json.loads(capsys.readouterr().out)["error"]["hint"]


@pytest.mark.parametrize("trouble", [missing, moved_route])
def test_a_plan_shows_the_error_of_one_entity_and_the_plans_of_others(
    root: Path, trouble: object, capsys: pytest.CaptureFixture[str]
) -> None:
    run(root)
    hint = trouble(root)  # type: ignore[operator]  # one of the above
    write(root / "small" / "new.md")
    assert main(["plan", "--project", str(root), "--json", "-o", str(root / "plan.json")]) == 1
    said = capsys.readouterr()
    found = {each["ref"]: each for each in json.loads(said.out)}
    assert found["Small@global"]["kind"] == "refresh"
    assert found["Other@global"]["problem"] is None
    assert hint in found["Big@global"]["problem"]
    assert "error: Big cannot be planned: " in said.err
    assert main(["plan", "--project", str(root)]) == 1
    shown = capsys.readouterr().out
    assert "Small" in shown
    assert "Nothing to do" not in shown
    assert main(["run", str(root / "plan.json"), "--quiet", "--json"]) == 0, "what is saved can be run"
    assert [each["ref"] for each in json.loads(capsys.readouterr().out)] == ["Small@global", "Other@global"]


def test_a_plan_of_one_that_is_asked_for_alone_is_an_error(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing(root)
    assert main(["plan", "Big", "--project", str(root), "--json"]) == 1
    assert "big" in json.loads(capsys.readouterr().out)["error"]["message"]


@pytest.mark.parametrize("command", [["status"], ["search", "text", "--mode", "text"], ["diff"]])
def test_other_commands_tell_of_the_others_too(
    root: Path, command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    run(root)
    missing(root)
    code = main([*command, "--project", str(root), "--json"])
    said = capsys.readouterr()
    assert "Small" in said.out
    assert (code, "error: Big" in said.err) == ((1, True) if command == ["diff"] else (0, False))
