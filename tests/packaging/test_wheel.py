"""The wheel works in a clean virtual environment, without the repository."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]


def uv() -> str:
    found = shutil.which("uv") or shutil.which(str(REPOSITORY / ".uv" / "bin" / "uv"))
    assert found, "uv is missing: `make install` brings it"
    return found


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build = ("build", "--wheel", "--no-build-isolation", "--python", sys.executable, "--out-dir", folder)
    done = run(uv(), *build, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def clean(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment that holds the wheel and what its metadata asks for."""
    folder = tmp_path_factory.mktemp("clean")
    assert run(uv(), "venv", "--python", sys.executable, folder / "venv", cwd=folder).returncode == 0
    # Links into uv's cache: the environment would be a gigabyte. The cache has it all after `make install`.
    pins = ("--constraints", REPOSITORY / "requirements.lock", "--link-mode", "symlink")
    install = (uv(), "pip", "install", "--python", folder / "venv" / "bin" / "python", *pins, wheel)
    done = run(*install, "--offline", cwd=folder)
    if done.returncode:
        done = run(*install, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_wheel_holds_types_migrations_and_templates(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {"instep/py.typed", "instep/cli/templates/instep.yaml", "instep/ledger/migrations/env.py"} <= set(names)
    assert any(name.startswith("instep/ledger/migrations/versions/") for name in names)
    tops = {name.split("/")[0] for name in names}
    assert tops == {"instep", next(top for top in tops if top.endswith(".dist-info"))}


def test_the_contract_suites_come_with_their_plug_in_for_pytest(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (declared,) = [name for name in archive.namelist() if name.endswith(".dist-info/entry_points.txt")]
    text = archive.read(declared).decode()
    assert "[pytest11]\ninstep = instep.testing.plugin" in text
    suites = {f"instep/testing/{name}.py" for name in ("plugin", "target", "table_target", "source", "embedder")}
    assert suites <= set(archive.namelist())


def test_the_command_works_outside_the_repository(clean: Path) -> None:
    command = clean / "venv" / "bin" / "instep"
    assert run(command, "--version", cwd=clean).stdout.startswith("instep ")
    done = run(command, "init", "docs", cwd=clean)
    assert (done.returncode, done.stderr) == (0, "")
    assert (clean / "docs" / "instep.yaml").exists()


def test_the_python_api_is_there_and_is_that_of_the_wheel(clean: Path) -> None:
    code = "import instep; print(instep.__file__); [getattr(instep, name) for name in instep.__all__]"
    done = run(clean / "venv" / "bin" / "python", "-W", "error", "-c", code, cwd=clean)
    assert (done.returncode, done.stderr) == (0, "")
    assert str(clean) in done.stdout


def test_documents_are_indexed_without_pyspark_and_what_needs_it_names_the_extra(clean: Path) -> None:
    command = clean / "venv" / "bin" / "instep"
    assert not list((clean / "venv").glob("lib/*/site-packages/pyspark"))
    project = clean / "small"
    project.mkdir()
    (project / "tides.md").write_text("# Tides\n\nThe moon pulls the sea.\n")
    assert run(command, "init", cwd=project).returncode == 0
    for arguments in (["check"], ["run", "--json"], ["search", "moon"], ["diff"]):
        done = run(command, *arguments, cwd=project)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr)
    (project / "winds.md").write_text("# Winds\n\nThe wind fills the sails.\n")
    for arguments in (["run", "--engine", "spark"], ["check", "--spark"]):
        done = run(command, *arguments, cwd=project)
        assert done.returncode == 1
        assert "Run: pip install 'instep[spark]'" in done.stdout + done.stderr
    with (project / "instep.yaml").open("a") as declared:
        declared.write("  Row: {source: {type: spark, path: rows}, key: id}\n")
    done = run(command, "check", cwd=project)
    assert done.returncode == 1
    assert "pip install 'instep[spark]'" in done.stdout
    done = run(command, "plan", "Row", cwd=project)
    assert done.returncode == 1
    assert "pip install 'instep[spark]'" in done.stderr
    # Nor does a worker start: it would fail wants that one elsewhere could fulfil.
    assert run(command, "want", "Row", cwd=project).returncode == 0
    done = run(command, "worker", "--until-idle", cwd=project)
    assert done.returncode == 1
    assert "pip install 'instep[spark]'" in done.stderr
    (want,) = json.loads(run(command, "wants", "--json", cwd=project).stdout)
    assert (want["state"], want["attempts"]) == ("Idle", 0)
