"""Commands on a source of which something cannot be seen, or that has nothing any more."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import instep
from instep.cli import main
from tests.cli.saying import said
from tests.sources.unsteady import Unsteady, unsteady

__all__ = ["unsteady"]


def _project(folder: Path, path: str) -> None:
    (folder / "instep.yaml").write_text(
        f"""
name: p
engine: inline
targets:
  main: {{type: lance, uri: .instep/index}}
entities:
  Document:
    source: {{type: files, path: {path!r}}}
    embed: {{type: hashing}}
"""
    )


def _documents(folder: Path) -> int | None:
    (status,) = instep.load(folder).status()
    return status.documents


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_says_every_time_what_has_failed_before(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "docs").mkdir()
    (folder / "docs" / "broken.pdf").write_bytes(b"%PDF-1.4 nothing")
    (folder / "docs" / "well.md").write_text("# Well\n\nA zebra.\n")
    _project(folder, "docs")
    said(capsys, "run", code=3)
    for _ in range(2):
        assert "Document: 1 that failed before" in said(capsys, "run")
    (folder / "docs" / "more.md").write_text("# More\n\nA giraffe.\n")
    told = said(capsys, "run")
    assert "Document: 1 that failed before" in told
    assert "instep failures" in told


@pytest.mark.parametrize(
    ("path", "told", "hint"),
    [
        ("s3://bucket/docs", "s3://bucket/docs: the package s3fs is not installed", "pip install 'instep[s3]'"),
        ("abfss://c@account/docs", "no package here reads abfss:// addresses", "adlfs"),
        ("abfs://c@account/docs", "the package adlfs is not installed", "Install it in the Python that runs this"),
    ],
)
def test_a_store_whose_package_is_missing_names_it_and_its_extra(folder: Path, path: str, told: str, hint: str) -> None:
    _project(folder, path)
    without = (
        "import sys; sys.modules.update(s3fs=None, adlfs=None); from instep.cli import main; sys.exit(main(['plan']))"
    )
    done = subprocess.run([sys.executable, "-c", without], cwd=folder, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    said = " ".join(done.stderr.split())
    assert told in said
    assert hint in said


def test_plan_notices_that_the_package_of_the_embedder_is_missing(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "docs").mkdir()
    (folder / "docs" / "well.md").write_text("# Well\n\nA zebra.\n")
    _project(folder, "docs")
    declared = folder / "instep.yaml"
    model = "{type: sentence-transformers, model: some, dimensions: 8}"
    declared.write_text(declared.read_text().replace("{type: hashing}", model))
    without = (
        "import sys; sys.modules['sentence_transformers'] = None; from instep.cli import main; sys.exit(main(['plan']))"
    )
    done = subprocess.run([sys.executable, "-c", without], cwd=folder, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "pip install 'instep[sentence-transformers]'" in done.stderr


def test_a_folder_that_cannot_be_listed_deletes_nothing_and_is_reported(
    folder: Path, unsteady: Unsteady, capsys: pytest.CaptureFixture[str]
) -> None:
    _project(folder, unsteady.url)
    said(capsys, "run")
    unsteady.broken["/b/deep"] = PermissionError(13, "Permission denied")
    assert "b/deep: permission denied" in said(capsys, "plan", code=3)
    (told,) = json.loads(said(capsys, "run", "--json", code=3))
    assert told["state"] == "INCOMPLETE"
    assert told["notes"] == [f"{unsteady.base}/b/deep: permission denied"]
    assert _documents(folder) == 3

    unsteady.put({"b/new.md": b"# N\n\nbrandnew\n"})
    assert "b/deep: permission denied" in said(capsys, "run", code=3)
    assert _documents(folder) == 4
    unsteady.broken.clear()
    said(capsys, "run")
    assert _documents(folder) == 4


@pytest.mark.parametrize("options", [(), ("--allow-deletes",), ("--full-refresh", "--allow-deletes")])
def test_a_source_that_is_empty_all_at_once_is_not_trusted(
    folder: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    _project(folder, "docs")
    (folder / "docs").mkdir()
    for name in "ab":
        (folder / "docs" / f"{name}.md").write_text(f"# {name}\n\ntext\n")
    said(capsys, "run")
    for name in "ab":
        (folder / "docs" / f"{name}.md").unlink()
    refused = said(capsys, "run", *options, code=1)
    assert "the source is empty, and 2 documents are indexed" in refused
    assert "--allow-empty" in refused
    assert "the source is empty" in said(capsys, "plan", *options, code=2)
    assert _documents(folder) == 2


@pytest.mark.parametrize("content", ["", "# new\n\nother words\n"])
def test_documents_that_are_all_replaced_or_emptied_at_once_are_asked_for(
    folder: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    _project(folder, "docs")
    (folder / "docs").mkdir()
    for name in "ab":
        (folder / "docs" / f"{name}.md").write_text(f"# {name}\n\ntext\n")
    said(capsys, "run")
    for name in "ab":
        (folder / "docs" / f"{name}.md").write_text(content)
        if content:
            (folder / "docs" / f"{name}.md").rename(folder / "docs" / f"{name}{name}.md")
    refused = said(capsys, "run", code=1)
    assert "2 of 2 documents are gone from the source" in refused
    assert "--allow-deletes" in refused
    assert len(instep.load(folder).search("text", mode="text")) == 2
    said(capsys, "run", "--allow-deletes")
    assert instep.load(folder).search("text", mode="text") == []


def test_a_document_that_cannot_be_read_for_a_moment_is_read_by_the_next_run(
    folder: Path, unsteady: Unsteady, capsys: pytest.CaptureFixture[str]
) -> None:
    _project(folder, unsteady.url)
    unsteady.unread["/b/b.md"] = PermissionError(13, "Permission denied")
    said(capsys, "run", code=3)
    assert "permission denied" in said(capsys, "failures").lower()
    said(capsys, "run", code=1)  # It was all that there was to do.
    unsteady.unread.clear()
    assert "could not be read before" in said(capsys, "plan", "--explain", code=2)
    said(capsys, "run")
    assert _documents(folder) == 3
    assert "Nothing to do" in said(capsys, "plan")


def test_a_clickhouse_server_that_is_away_is_two_lines(folder: Path) -> None:
    """The client library writes what it sees to the screen by itself, unless it is told not to."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))  # taken, without a listener
        server = f"http://127.0.0.1:{probe.getsockname()[1]}"
        (folder / "instep.yaml").write_text(
            f"""
name: p
targets:
  main: {{type: lance, uri: .instep/index}}
entities:
  Person: {{source: {{type: clickhouse, uri: "{server}/app", table: people}}, key: id}}
"""
        )
        done = subprocess.run(
            [sys.executable, "-m", "instep", "plan"], cwd=folder, check=False, capture_output=True, text=True
        )
    assert done.returncode == 75
    message, hint = done.stderr.splitlines()
    assert message.startswith(f"error: {server}/app: ClickHouse cannot be reached: ")
    assert message.endswith("Connection refused")
    assert hint == "hint: Is the server up, the address right?"


def test_an_entity_without_a_declared_namespace_is_named(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its rows would be indexed nowhere, and the run a success."""
    (folder / "instep.yaml").write_text(
        """
name: p
targets:
  main: {type: lance, uri: .instep/index}
entities:
  Ticket: {source: {type: spark, path: tickets}, key: id, scope: path}
"""
    )
    for command in ("run", "plan"):
        assert main([command]) == 0
        assert capsys.readouterr().err.startswith("warning: Ticket: not indexed, as no namespace is declared. List")
    project = instep.load(folder)
    for call in (project.run, project.plan):
        with pytest.warns(UserWarning, match="Ticket: not indexed, as no namespace is declared"):
            assert not call()
