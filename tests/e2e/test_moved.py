"""A project in another folder than before: its documents are the same, wherever its files are."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import instep
from instep.domain.refs import PartitionRef
from instep.jobs.entity_result import EntityResult
from tests.cli.saying import said

from . import corpus

PROJECT = """
name: moved
engine: inline
targets: {main: {type: lance, uri: .instep/index}}
entities:
  Document: {source: {type: files, path: [docs, ../beside]}, embed: {type: hashing, dimensions: 8}}
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """More documents than may go unasked, in the project and beside it."""
    root = tmp_path / "here" / "project"
    corpus.write(root / "docs", range(110))
    corpus.write(root.parent / "beside", range(5), seed=1)
    (root / "instep.yaml").write_text(PROJECT)
    (result,) = instep.load(root).run()
    assert result.counts.written == 115
    return root


def run(root: Path) -> EntityResult:
    (result,) = instep.load(root).run()
    return result


def test_a_project_that_was_moved_is_up_to_date(root: Path, tmp_path: Path) -> None:
    root.parent.rename(tmp_path / "there")
    moved = tmp_path / "there" / "project"
    assert run(moved).state is None
    (moved / "docs" / "0" / "doc00000.md").write_text("# Changed\n")
    result = run(moved)
    assert (result.counts.written, result.counts.deleted) == (1, 0)


def test_a_copy_is_read_once_more_and_nothing_of_it_written(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root.parent, tmp_path / "copy")
    result = run(tmp_path / "copy" / "project")
    assert (result.counts.read, result.counts.skipped, result.counts.rows_written) == (115, 115, 0)


def test_checkouts_in_several_places_share_a_ledger_and_have_one_corpus(root: Path, tmp_path: Path) -> None:
    """As on several servers. What one brings in is not deleted by the next, nor rewritten."""
    shutil.copytree(root.parent, tmp_path / "other")
    other = tmp_path / "other" / "project"
    shutil.rmtree(other / ".instep")
    declared = PROJECT.replace(".instep/index", str(root / ".instep" / "index"))
    (other / "instep.yaml").write_text(f"{declared}\nledger: sqlite:///{root}/.instep/ledger.db\n")
    for each in (other, root, other):
        result = run(each)
        assert (result.counts.written, result.counts.deleted, result.counts.rows_written) == (0, 0, 0)


def test_a_file_is_requested_by_its_path_and_shown_by_it(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(root / "docs" / "7")
    name = "project:///docs/7/doc00017.md"
    for given in ("doc00017.md", "docs/7/doc00017.md", str(Path.cwd() / "doc00017.md"), name):
        assert f"chunk 0 of {name}\n" in said(capsys, "why", "Document", given)
    assert "chunk 0 of project:///../beside/3/doc00003.md" in said(
        capsys, "why", "main", "../../../beside/3/doc00003.md"
    )
    assert "has no row of 'doc00018.md'" in said(capsys, "why", "Document", "doc00018.md", code=1)
    (hit,) = instep.load(root).search("Document 17", limit=1)
    assert hit.source_uri.startswith("project:///docs/")
    shown = said(capsys, "search", "Document 17", "--limit", "1")
    assert hit.source_uri.removeprefix("project:///") in shown.split()
    (root / "docs" / "7" / "bad.md").write_bytes(b"\xff\x00")
    run(root)
    (failure,) = instep.load(root).failures()
    assert failure.uri == "project:///docs/7/bad.md"
    assert failure.ref == PartitionRef("Document")
