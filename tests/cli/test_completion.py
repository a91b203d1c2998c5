"""Shells complete commands, and the names of entities."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from instep.cli import main

PROJECT = """\
name: p
targets: {index: {type: lance, uri: index}}
entities:
  Note: {source: {type: files, path: docs}}
  News: {source: {type: files, path: docs}}
  Ticket: {source: {type: files, path: docs}}
"""


def completed(
    words: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[str]:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("_INSTEP_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(words.count(" ")))
    monkeypatch.setattr("sys.argv", ["instep"])
    with pytest.raises(SystemExit, match="0"):
        main()
    found = capsys.readouterr()
    assert found.err == ""
    return found.out.split()


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("instep ru", ["run"]),
        ("instep run N", ["Note", "News"]),
        ("instep plan Note T", ["Ticket"]),
        ("instep search word --entity Ti", ["Ticket"]),
        ("instep taint X", []),
    ],
)
def test_commands_and_entities_are_completed(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: str,
    found: list[str],
) -> None:
    (tmp_path / "instep.yaml").write_text(PROJECT)
    assert completed(words, tmp_path, monkeypatch, capsys) == found


@pytest.mark.parametrize("text", [None, "entities: [", "name: 7"])
def test_nothing_is_said_where_there_is_no_project_to_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str | None
) -> None:
    if text is not None:
        (tmp_path / "instep.yaml").write_text(text)
    assert completed("instep run N", tmp_path, monkeypatch, capsys) == []


def test_a_shell_completes_after_the_installation(tmp_path: Path) -> None:
    """In a home of its own: the file that is written there, read by bash, completes commands and entities."""
    (tmp_path / "instep.yaml").write_text(PROJECT)
    home = tmp_path / "home"
    home.mkdir()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "HOME": str(home), "PATH": path}

    def ran(*command: str) -> str:
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    # Which shell it is for, the shells that it is called from tell: the nearest.
    ran("bash", "--norc", "-c", "instep --install-completion; exit $?")
    assert "instep" in (home / ".bashrc").read_text()
    ask = """
    source "$HOME/.bashrc"
    COMP_WORDS=(instep run N) COMP_CWORD=2
    "$(complete -p instep | sed -E 's/.* -F ([^ ]+) .*/\\1/')" instep N run
    printf '%s\\n' "${COMPREPLY[@]}"
    """
    assert ran("bash", "--norc", "-c", ask).split() == ["Note", "News"]
