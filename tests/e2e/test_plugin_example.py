"""`examples/plugin`: its own tests pass, with the package as if it were installed."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.jobs.own_code import entry_point

PLUGIN = Path(__file__).parents[2] / "examples" / "plugin"


@pytest.mark.proof
def test_the_plug_in_proves_itself_with_our_suite(tmp_path: Path) -> None:
    package = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]
    for group, names in package["entry-points"].items():
        for name, value in names.items():
            entry_point(tmp_path, group, name, value, package=package["name"])
    path = os.pathsep.join([str(PLUGIN), str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"],
        cwd=PLUGIN,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    passed = int(done.stdout.splitlines()[-1].split()[0])
    assert passed > 150, "the whole suite"
