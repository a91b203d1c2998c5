"""What is in a project's folder is data: only a transform that the project names is code."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from instep import own_code
from instep.own_code import send, send_instep
from instep.pipeline.code_fingerprint import loaded_fingerprint


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An indexed folder with files that are called like libraries."""
    for name in ("lance", "pyarrow", "sqlalchemy", "typer", "uuid"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('this was only to be indexed')\n")
    (tmp_path / "instep.yaml").write_text(
        """
name: p
engine: inline
targets: {main: {type: lance, uri: .instep/index}}
entities:
  Document: {source: {type: files, path: .}, embed: {type: hashing}}
"""
    )
    return tmp_path


@pytest.mark.parametrize("command", [["instep"], [sys.executable, "-m", "instep"]], ids=["script", "module"])
def test_files_that_are_indexed_stand_in_for_no_library(folder: Path, command: list[str]) -> None:
    program = [str(Path(sys.executable).with_name("instep"))] if command == ["instep"] else command
    done = subprocess.run([*program, "run", "--json"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_transforms_module_is_sent_with_its_local_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "sendable.py": "import json, alongside\nfrom bundle.inner import thing\ndef f(rows):\n    import lazily\n",
        "alongside.py": "import sendable\n",
        "lazily.py": "",
        "bundle/__init__.py": "",
        "bundle/inner.py": "from . import other\nfrom .deep.down import x as thing\n",
        "bundle/other.py": "",
        "bundle/deep/__init__.py": "",
        "bundle/deep/down.py": "x = 1\n",
        "bundle/beside.py": "",
        "bundle/words.txt": "ebb\n",
        "bundle/deep/model.bin": "m",
        "json.py": "",
        "lance.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for name in ("bundle/.hidden", "bundle/__pycache__/inner.pyc"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "bundle" / "huge.bin").write_bytes(b"0" * (own_code.MAX_DATA + 1))
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    sendable = __import__("sendable")
    sent: list[str] = []

    class Session:
        def addArtifacts(self, path: str, *, pyfile: bool) -> None:  # noqa: N802 - Spark's name
            assert pyfile
            sent.append(path)

    session: Any
    session, another = Session(), Session()
    for each in (session, session, another):
        send(each, sendable.f)
    assert len(sent) == 2
    assert len(set(sent)) == 1
    with zipfile.ZipFile(sent[0]) as archive:
        # A package is whole: a part of it would hide from another transform what that needs of it.
        assert set(archive.namelist()) == set(files) - {"json.py", "lance.py"}
    # What is installed is there already.
    send(session, pytest.raises)
    assert len(sent) == 2


def test_code_travels_once_for_each_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    file = tmp_path / "versioned.py"
    file.write_text("def f(rows):\n    return rows\n")
    versioned = __import__("versioned")

    class Session:
        def __init__(self) -> None:
            self.names: list[str] = []

        def addArtifacts(self, path: str, *, pyfile: bool) -> None:  # noqa: N802 - Spark's name
            self.names.append(Path(path).name)

    def names() -> list[str]:
        """Of files that a later process sends to a session of its own."""
        own_code._archive.cache_clear()
        session: Any = Session()
        for _ in range(2):
            send_instep(session)
            send(session, versioned.f)
        return list(session.names)

    first, again = names(), names()
    file.write_text("def f(rows):\n    return rows.limit(1)\n")
    versioned = importlib.reload(versioned)
    changed = names()
    assert len(first) == 2, "each is sent once"
    assert again == first
    assert changed[0] == first[0], "Instep is the same"
    assert changed[1] != first[1]


def test_tasks_get_the_code_that_was_fingerprinted_whatever_its_files_hold_by_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that was there before a deployment, and sends its code for the first time after it."""
    files = {
        "deployed/__init__.py": "",
        "deployed/main.py": "from deployed.words import say\ndef f(rows):\n    say()\n",
    }
    old = {**files, "deployed/words.py": "def say():\n    return 'old'\n"}
    (tmp_path / "deployed").mkdir()
    for name, text in old.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    main = importlib.import_module("deployed.main")
    loaded_fingerprint("deployed.main:f", main.f)
    (tmp_path / "deployed" / "words.py").write_text("def say():\n    return 'new'\n")
    sent: list[str] = []

    class Session:
        def addArtifacts(self, path: str, *, pyfile: bool) -> None:  # noqa: N802 - Spark's name
            sent.append(path)

    session: Any = Session()
    send(session, main.f)
    with zipfile.ZipFile(sent[0]) as archive:
        assert {name: archive.read(name).decode() for name in archive.namelist()} == old


@pytest.mark.parametrize(
    ("code", "said"),
    [("import sys\nsys.exit(0)\n", "SystemExit: 0"), ("1 / 0\n", "ZeroDivisionError"), ("def f(:\n", "SyntaxError")],
)
def test_a_module_that_cannot_be_imported_is_no_run_that_went_well(tmp_path: Path, code: str, said: str) -> None:
    """A script that ends the process when it is imported, above all: nothing was indexed, and the exit code was 0."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "mine.py").write_text(code)
    (tmp_path / "instep.yaml").write_text(
        """
name: p
targets: {main: {type: lance, uri: .instep/index}}
entities:
  Document: {source: {type: files, path: docs}, transform: "mine:f"}
"""
    )
    command = [sys.executable, "-m", "instep", "run"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"transform mine:f cannot be imported: {said}" in done.stderr
    assert "report" not in done.stderr


@pytest.mark.parametrize(
    ("code", "hint"),
    [("import nowhere_at_all\n", "This has to work: python -c 'import mine'"), (None, "in the project's folder")],
)
def test_check_finds_a_function_that_cannot_be_imported_and_says_what_to_do(
    tmp_path: Path, code: str | None, hint: str
) -> None:
    _declare(tmp_path, 'parse: {type: python, function: "mine:f"}')
    if code is not None:
        (tmp_path / "mine.py").write_text(code)
    command = [sys.executable, "-m", "instep", "check"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    (line,) = [each for each in done.stdout.splitlines() if "cannot be imported" in each]
    assert line.startswith("✗ code of Document: parse.function mine:f")
    assert hint in done.stdout


def test_what_functions_print_is_not_in_the_json(tmp_path: Path) -> None:
    _declare(tmp_path, 'chunk: {type: python, function: "mine:cut"}')
    (tmp_path / "mine.py").write_text("print('loaded')\ndef cut(text, kind):\n    print('cut')\n    return [text]\n")
    for command in (["run"], ["plan"], ["check"], ["status"], ["search", "moon"]):
        called = [sys.executable, "-m", "instep", *command, "--json"]
        done = subprocess.run(called, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert json.loads(done.stdout), done.stderr
        if command == ["run"]:
            assert {"loaded", "cut"} <= set(done.stderr.splitlines())


def test_functions_are_found_in_the_folder_of_the_project(tmp_path: Path) -> None:
    """From wherever the command is called."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("The moon pulls the sea.")
    (tmp_path / "mine.py").write_text("def embed(texts):\n    return [[float(len(each)), 1.0] for each in texts]\n")
    (tmp_path / "instep.yaml").write_text(
        """
name: p
engine: inline
targets: {main: {type: lance, uri: .instep/index}}
entities:
  Document: {source: {type: files, path: docs}, embed: {type: python, function: "mine:embed", dimensions: 2}}
"""
    )
    for command in (["run"], ["search", "moon", "--mode", "vector"]):
        whole = [sys.executable, "-m", "instep", *command, "--project", str(tmp_path)]
        done = subprocess.run(whole, cwd="/", capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def _declare(folder: Path, own: str) -> None:
    """A project of one document, with a function of its own."""
    (folder / "docs").mkdir()
    (folder / "docs" / "a.txt").write_text("The moon pulls the sea.")
    (folder / "instep.yaml").write_text(
        f"""
name: p
targets: {{main: {{type: lance, uri: .instep/index}}}}
entities:
  Document:
    source: {{type: files, path: docs}}
    {own}
    embed: {{type: hashing, dimensions: 16}}
"""
    )
