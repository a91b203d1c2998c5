"""The recipe of docs/orchestrators.md, in a real dbt."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest

PAGE: Final = (Path(__file__).parents[3] / "docs" / "orchestrators.md").read_text()
SECTION: Final = re.split(r"^## ", PAGE, flags=re.MULTILINE)
PROJECT: Final = """\
name: shop
profile: shop
model-paths: [models]
models: {shop: {+materialized: table}}
"""
PROFILE: Final = "shop: {target: dev, outputs: {dev: {type: duckdb, path: shop.duckdb, threads: 1}}}\n"
STAGED: Final = "select 1 as id, 'A zebra has escaped' as title, timestamp '2026-01-01' as updated_at\n"
UNIQUE: Final = "models: [{name: tickets, columns: [{name: id, data_tests: [unique]}]}]\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project of dbt with the files that the page shows."""
    (recipe,) = [each for each in SECTION if each.startswith("dbt\n")]
    files = re.findall(r"^```\w+\n(?:--|#) (\S+)\n(.*?)^```", recipe, re.DOTALL | re.MULTILINE)
    assert [name for name, _ in files] == ["models/tickets.sql", "instep.yaml", "models/exposures.yml"]
    (tmp_path / "models").mkdir()
    for name, text in files:
        (tmp_path / name).write_text(text)
    (tmp_path / "dbt_project.yml").write_text(PROJECT)
    (tmp_path / "profiles.yml").write_text(PROFILE)
    (tmp_path / "models" / "stg_tickets.sql").write_text(STAGED)
    (tmp_path / "models" / "tests.yml").write_text(UNIQUE)
    return tmp_path


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    (command,) = re.findall(r"^    (dbt build .*)$", PAGE, re.MULTILINE)
    return subprocess.run(["bash", "-c", command], cwd=folder, check=False, capture_output=True, text=True)


def instep(folder: Path, *arguments: str) -> Any:
    done = subprocess.run(["instep", *arguments, "--json"], cwd=folder, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def test_an_index_follows_a_model_and_not_one_whose_test_fails(folder: Path) -> None:
    done = build(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    (hit,) = instep(folder, "search", "zebra")
    assert "zebra" in hit["text"]
    (folder / "models" / "stg_tickets.sql").write_text(STAGED + "union all " + STAGED.replace("zebra", "giraffe"))
    done = build(folder)
    assert done.returncode != 0
    assert len(instep(folder, "jobs")) == 1
