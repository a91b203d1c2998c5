"""Packages for orchestrators name the version of Instep that is here. `make integrations` runs their own tests."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import instep

ROOT = Path(__file__).parents[2]
#: The others are tests of recipes.
DECLARED = [path for path in sorted(ROOT.glob("integrations/*/pyproject.toml")) if "\n[project]\n" in path.read_text()]


def test_there_are_packages_for_airflow_and_dagster() -> None:
    assert [path.parent.name for path in DECLARED] == ["airflow", "dagster"]


@pytest.mark.parametrize("path", DECLARED, ids=lambda path: path.parent.name)
def test_a_package_fits_this_version_and_is_documented(path: Path) -> None:
    project = tomllib.loads(path.read_text())["project"]
    (needed,) = [each for each in map(Requirement, project["dependencies"]) if each.name == "instep"]
    assert instep.__version__ in needed.specifier
    assert project["name"] == f"instep-{path.parent.name}"
    assert f"pip install {project['name']}" in (ROOT / "docs" / "orchestrators.md").read_text()
    assert project["urls"]["Documentation"].endswith("/docs/orchestrators.md")
    assert (path.parent / project["readme"]).exists()
