"""What the commands say of entities that are made from others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_commands import answer
from tests.e2e import corpus

PROJECT = """\
name: test
targets: {index: {type: lance, uri: index}}
entities:
  Page:
    source: {type: files, path: page}
    depends_on: [Site]
  Site:
    source: {type: files, path: site}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("page", "site"):
        corpus.write(tmp_path / name, range(3))
    (tmp_path / "instep.yaml").write_text(PROJECT, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_plan_names_awaited_dependencies(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "Page@global: waits for Site@global" in answer(capsys, "plan", code=2)
    page, site = json.loads(answer(capsys, "plan", "--json", code=2))
    assert (page["waits_for"], site["waits_for"]) == (["Site@global"], [])
    answer(capsys, "run", "Site")
    assert "waits for" not in answer(capsys, "plan", code=2)


def test_run_shows_upstream_builds_and_lineage_and_why_find_them(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = json.loads(answer(capsys, "run", "Page", "--json"))
    assert [(each["ref"], each["state"]) for each in results] == [
        ("Site@global", "COMPLETED"),
        ("Page@global", "COMPLETED"),
    ]
    (site,) = json.loads(answer(capsys, "history", "Site", "--json"))
    (page,) = json.loads(answer(capsys, "history", "Page", "--json"))
    assert page["inputs"] == [site["uuid"]]
    assert site["uuid"][:8] in answer(capsys, "lineage", "Page")
    row = corpus.path(folder / "page", 0).as_uri()
    assert site["uuid"] in answer(capsys, "why", "Page", row)


def test_a_circle_is_refused_by_every_command_with_its_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "instep.yaml").write_text(f"{PROJECT}    depends_on: [Page]\n", encoding="utf-8")
    for command in ("check", "plan", "run", "status"):
        refused = answer(capsys, command, code=1)
        assert "instep.yaml:6: entities.Page.depends_on[0]: " in refused
        assert "Page → Site → Page" in refused


def test_a_failed_upstream_is_said_with_the_exit_code_of_a_failure(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for file in (folder / "site").rglob("*.md"):
        file.unlink()
    said = answer(capsys, "run", "Page", code=1)
    assert "Page@global waits for Site@global, and that wait was canceled" in said
    assert "there are no documents to index" in said
