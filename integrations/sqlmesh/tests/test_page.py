"""The recipe of docs/orchestrators.md, in a real SQLMesh."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

PAGE: Final = (Path(__file__).parents[3] / "docs" / "orchestrators.md").read_text()
CONFIG: Final = """\
gateways: {local: {connection: {type: duckdb, database: warehouse.duckdb}}}
default_gateway: local
model_defaults: {dialect: duckdb, start: 2026-01-01}
"""
MODEL: Final = """\
MODEL (name shop.tickets, kind FULL);
SELECT 1 AS id, 'A zebra has escaped' AS title, TIMESTAMP '2026-01-01' AS updated_at
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project of SQLMesh with what the page shows, and the project of Instep that it shows for dbt."""
    (recipe,) = [each for each in re.split(r"^## ", PAGE, flags=re.MULTILINE) if each.startswith("SQLMesh\n")]
    (after_all,) = re.findall(r"^```yaml\n(.*?)^```", recipe, re.DOTALL | re.MULTILINE)
    (macro,) = re.findall(r"^```python\n(.*?)^```", recipe, re.DOTALL | re.MULTILINE)
    (declared,) = re.findall(r"^```yaml\n# instep.yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    for name in ("macros", "models"):
        (tmp_path / name).mkdir()
    (tmp_path / "config.yaml").write_text(CONFIG + after_all)
    (tmp_path / "macros" / "__init__.py").touch()
    (tmp_path / "macros" / "search.py").write_text(macro)
    (tmp_path / "models" / "tickets.sql").write_text(MODEL)
    (tmp_path / "instep.yaml").write_text(declared)
    return tmp_path


def plan(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["sqlmesh", "plan", *arguments, "--auto-apply", "--no-prompts"]
    return subprocess.run(command, cwd=folder, check=False, capture_output=True, text=True)


def instep(folder: Path, *arguments: str) -> Any:
    done = subprocess.run(["instep", *arguments, "--json"], cwd=folder, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def test_an_index_follows_a_plan_of_production_and_no_other(folder: Path) -> None:
    done = plan(folder, "dev", "--include-unmodified")
    assert done.returncode == 0, done.stdout + done.stderr
    assert instep(folder, "jobs") == []
    done = plan(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    (hit,) = instep(folder, "search", "zebra")
    assert "zebra" in hit["text"]


def test_the_command_fails_when_the_index_does(folder: Path) -> None:
    declared = folder / "instep.yaml"
    declared.write_text(declared.read_text().replace("Ticket:", "Other:"))
    done = plan(folder)
    assert done.returncode != 0
    assert "no entity is named" in done.stdout + done.stderr
