"""Start-up cost: what is not imported costs nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {"lance", "pyarrow", "pyspark", "sqlalchemy", "alembic", "numpy", "httpx", "pypdf", "fsspec", "pandas"}


@pytest.mark.parametrize("args", [["--help"], ["--version"], ["run", "--help"], ["schema"], ["init", "new"]])
def test_light_commands_import_no_heavy_library(args: list[str], tmp_path: Path) -> None:
    code = (
        "import instep.cli, json, sys; instep.cli.main(json.loads(sys.argv[1])); print(json.dumps(list(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(args)], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    modules = set(json.loads(done.stdout.splitlines()[-1]))
    assert "instep.cli" in modules
    assert modules & HEAVY == set()


def test_loading_a_project_needs_pydantic_and_yaml_only() -> None:
    code = "import instep.project, json, sys; print(json.dumps(list(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(json.loads(done.stdout)) & (HEAVY | {"rich", "typer"}) == set()
