"""Prove the target with the suite that every target of Instep passes, and try both in a project."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import lance
import pytest
from instep_audited import AuditedTarget

import instep
from instep.targets.document_target import DocumentTarget
from instep.testing.ownership import DocumentOwnership
from instep.testing.target import TargetContract
from instep.testing.target_rows import Content

PROJECT = """
name: films
engine: inline
targets:
  index: {type: python, class: audited, uri: index, options: {audit: audit.jsonl}}
entities:
  Film:
    source: {type: files, path: films, include: ["*.srt"]}
    parse: {type: python, function: subtitles}
"""


class TestContract(TargetContract):
    @pytest.fixture
    def target(self, tmp_path: Path) -> AuditedTarget:
        return AuditedTarget(str(tmp_path / "index"), audit=str(tmp_path / "audit.jsonl"))

    def content(self, target: DocumentTarget, physical: str) -> Content:
        """As another reader of these datasets finds it."""
        assert isinstance(target, AuditedTarget)
        rows = lance.dataset(f"{target.uri}/{physical}.lance").to_table(columns=["document_id", "text"])
        return Counter(zip(rows["document_id"].to_pylist(), rows["text"].to_pylist(), strict=True))


class TestOwnership(DocumentOwnership):
    @pytest.fixture
    def target(self, tmp_path: Path) -> AuditedTarget:
        return AuditedTarget(str(tmp_path / "index"))


def test_a_project_names_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "instep.yaml").write_text(PROJECT)
    (tmp_path / "films").mkdir()
    (tmp_path / "films" / "one.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\nWhere were\nyou?\n\n")
    project = instep.load(tmp_path)
    project.run()
    assert [each.text for each in project.search("where", mode="text")] == ["Where were you?"]
    told = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [(each["event"], each["alias"], each["before"]) for each in told] == [("served", "Film", None)]
    project.run()
    assert len((tmp_path / "audit.jsonl").read_text().splitlines()) == 1, "nothing else is served"
