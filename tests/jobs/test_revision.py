"""The revision of a project's code: the commit, and whether something was changed since."""

from __future__ import annotations

import subprocess
from pathlib import Path

from instep.pipeline.revision import revision_of


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    return subprocess.run(
        ["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


def test_the_revision_is_the_commit_and_marks_later_changes(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "transforms.py").write_text("a = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert revision_of(tmp_path) == commit
    (tmp_path / "transforms.py").write_text("a = 2\n")
    assert revision_of(tmp_path) == f"{commit}+"


def test_without_a_repository_or_a_folder_there_is_none(tmp_path: Path) -> None:
    (tmp_path / ".git").write_text("gitdir: nowhere\n")
    assert revision_of(tmp_path) == ""
    assert revision_of(tmp_path / "missing") == ""
