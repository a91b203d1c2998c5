"""Check what is to be released: `make dist`.

The source distribution gives the same wheel as the repository, and the list of components has what that asks for. The
wheel is installed for every Python that it is for and that is here, first without PySpark: the tutorial is run with it,
then `instep check --spark`.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Final

from tests.docs.blocks import DOCS, blocks, commands
from tests.packaging.components import without
from tests.packaging.test_wheel import run, uv

PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")


def main() -> int:
    dist = Path(sys.argv[1]).resolve()
    (wheel,), (source,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as folder:
        _done(uv(), "build", "--wheel", "--out-dir", folder, source, cwd=dist)
        (again,) = Path(folder).glob("*.whl")
        if contents(again) != contents(wheel):
            print(f"{source.name} gives another wheel than the repository")
            return 1
    print(f"{source.name} gives the same wheel as the repository")
    if missing := without(dist / "instep.cdx.json", wheel):
        print(f"The list of components lacks what the wheel asks for: {', '.join(sorted(missing))}")
        return 1
    print("The list of components has all that the wheel asks for")
    found = {version: _find(version) for version in PYTHONS}
    if not any(found.values()):
        print(f"No Python is here that it could be tried with: {', '.join(PYTHONS)}")
        return 1
    for version, python in found.items():
        print(f"Python {version}: {_try(python, wheel) if python else 'is not here'}", flush=True)
    return 0


def contents(wheel: Path) -> dict[str, int]:
    """Names and checksums of the files in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {each.filename: each.CRC for each in archive.infolist()}


def _find(version: str) -> Path | None:
    found = run(uv(), "python", "find", "--no-python-downloads", version, cwd=Path.cwd())
    return Path(found.stdout.strip()) if found.returncode == 0 else None


def _try(python: Path, wheel: Path) -> str:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        binaries = place / "venv" / "bin"
        _done(uv(), "venv", "--python", python, place / "venv", cwd=place)
        install: tuple[str | Path, ...] = (uv(), "pip", "install", "--python", binaries / "python")
        _done(*install, f"{wheel}[static]", cwd=place)
        tutorial = (DOCS / "tutorial.md").read_text(encoding="utf-8")
        (project,) = blocks(tutorial, "yaml")
        (place / "instep.yaml").write_text(project)
        path = f"PATH={binaries}{os.pathsep}{os.environ['PATH']}"
        said = _done("env", path, "sh", "-ec", "\n".join(commands(tutorial)[1:]), cwd=place)
        if "found by words and meaning" not in said:
            raise SystemExit(f"The tutorial does not end as it should:\n{said}")
        _done(*install, f"{wheel}[static,spark]", cwd=place)
        _done(binaries / "instep", "check", "--spark", cwd=place)
        return "the tutorial works without PySpark, and Spark with it"


def _done(*command: str | Path, cwd: Path) -> str:
    done = run(*command, cwd=cwd)
    if done.returncode:
        shown = subprocess.list2cmdline(map(str, command))
        raise SystemExit(f"{shown} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
