"""What is wrong with one entity stops no other."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import instep
from instep.cli import main

_PROJECT = """\
    name: several
    targets:
      index: {type: lance, uri: .instep/index}
      away: {type: postgres, uri: "postgresql://ann@127.0.0.1:9/nothing"}
    entities:
      NoPath: {source: {type: files, path: nowhere}, target: index}
      NoTransform: {source: {type: files, path: notes}, target: index, transform: "nowhere_at_all:change"}
      NoTableTransform:
        source: {type: spark, format: parquet, path: rows}
        target: index
        key: id
        transform: "nowhere_at_all:change"
      Other: {source: {type: files, path: more}, target: index}
      Away: {source: {type: files, path: notes}, target: away}
      Good: {source: {type: files, path: notes}, target: index}
"""
UNREADABLE = {
    "NoPath": "nowhere cannot be listed: no such file or directory",
    "NoTransform": "transform nowhere_at_all:change cannot be imported",
    "NoTableTransform": "transform nowhere_at_all:change cannot be imported",
}
DOCUMENTS = ["NoPath", "NoTransform", "Away", "Good"]


@pytest.fixture
def project(tmp_path: Path) -> str:
    (tmp_path / "instep.yaml").write_text(textwrap.dedent(_PROJECT))
    (tmp_path / "rows").mkdir()
    pq.write_table(pa.table({"id": [1]}), tmp_path / "rows" / "one.parquet")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "one.md").write_text("# One\n\nText.\n")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "tides.md").write_text("# Tides\n\nThe moon pulls the sea.\n")
    return str(tmp_path)


def by_entity(said: str) -> dict[str, dict[str, Any]]:
    return {each["ref"].partition("@")[0]: each for each in json.loads(said)}


def test_each_is_planned_and_shown_for_itself(project: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--project", project, "--quiet", "--json"]) == 1
    plans = by_entity(capsys.readouterr().out)
    assert plans["Good"]["kind"] == "first build"
    assert main(["status", "--project", project, "--json"]) == 0
    found = by_entity(capsys.readouterr().out)
    assert found["Good"]["notes"] == []
    for name, why in UNREADABLE.items():
        assert why in plans[name]["problem"]
        assert [each for each in found[name]["notes"] if why in each], found[name]["notes"]


def test_a_run_does_what_it_can(project: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", *DOCUMENTS, "--project", project, "--quiet", "--json"]) == 1
    results = by_entity(capsys.readouterr().out)
    assert {name: each["state"] for name, each in results.items()} == {
        "NoPath": "FAILED",
        "NoTransform": "FAILED",
        "Away": "AWAY",
        "Good": "COMPLETED",
    }
    assert UNREADABLE["NoTransform"] in results["NoTransform"]["problem"]
    assert main(["status", *DOCUMENTS, "--project", project, "--json"]) == 0
    found = by_entity(capsys.readouterr().out)
    assert (found["Good"]["state"], found["Good"]["notes"], found["Good"]["job"]["error"]) == ("Indexed", [], None)
    assert "PostgreSQL cannot be reached" in found["Away"]["job"]["error"]


def test_a_worker_that_watches_does_what_it_can(project: str) -> None:
    opened = instep.load(project)
    opened.worker(["NoPath", "NoTransform", "Good"], until_idle=True, watch=0.01)
    assert [hit.entity for hit in opened.search("moon", entities=["Good"])] == ["Good"]


def test_what_breaks_under_a_watch_is_left_alone(project: str) -> None:
    """The path of one of them goes away between two looks; the other one's changes are indexed."""
    opened = instep.load(project)
    opened.run(["Good", "Other"])
    (Path(project) / "more").rename(Path(project) / "moved")
    (Path(project) / "notes" / "winds.md").write_text("# Winds\n\nThe wind fills the sails.\n")
    opened.worker(["Other", "Good"], until_idle=True, watch=0.01)
    assert [hit.title for hit in opened.search("wind", mode="text", entities=["Good"])] == ["Winds"]
    other, good = opened.status(["Other", "Good"])
    assert (other.documents, good.documents) == (1, 2)
