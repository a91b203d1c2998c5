"""A try that is killed after it wrote into an idempotent target, and a source that is put back before the next one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import instep

PROJECT = """\
name: killed
engine: inline
targets: {index: {type: qdrant, uri: .instep/index}}
entities:
  Document:
    source: {type: files, path: docs}
    embed: {type: hashing, dimensions: 32}
    deletes: {share: 1, floor: 100}
"""
KILLED = """
import os, signal
from instep.cli import main
from instep.targets.qdrant.target import QdrantTarget
QdrantTarget.commit = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
main(["run"])
"""


def put(path: Path, text: str) -> None:
    """With one time of writing, whatever was written before."""
    path.write_text(text)
    os.utime(path, (1_700_000_000, 1_700_000_000))


def test_a_version_that_was_taken_back_is_not_found_and_one_that_is_gone_neither(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (tmp_path / "instep.yaml").write_text(PROJECT)
    for number in range(5):
        put(docs / f"{number}.md", f"plain number {number}")
    project = instep.load(tmp_path)
    project.run()

    put(docs / "1.md", "edited word")
    put(docs / "new.md", "secret word")
    killed = subprocess.run([sys.executable, "-c", KILLED], cwd=tmp_path, capture_output=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    put(docs / "1.md", "plain number 1")
    (docs / "new.md").unlink()

    for _ in range(2):
        project.run()
    assert [hit.text for hit in project.search("edited secret", mode="text")] == []
    assert sorted(hit.text for hit in project.search("plain", mode="text")) == [f"plain number {n}" for n in range(5)]
    (found,) = project.diff()
    assert found.differs is False
