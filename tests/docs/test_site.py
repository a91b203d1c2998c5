"""The site of the documentation builds strictly, has all pages in its navigation, and names all of Python's API."""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import instep

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs"


def _named(part: Any) -> Iterator[str]:
    """The pages that a part of the navigation names."""
    if isinstance(part, str):
        yield part
    else:
        for each in part.values() if isinstance(part, dict) else part:
            yield from _named(each)


def test_the_navigation_has_each_page_once() -> None:
    """Decisions (`docs/adr`) are reached from the pages that name them."""
    project = tomllib.loads((ROOT / "zensical.toml").read_text())["project"]
    assert sorted(_named(project["nav"])) == sorted(page.name for page in PAGES.glob("*.md"))


def test_the_reference_has_all_names_of_the_package() -> None:
    named = re.findall(r"^::: instep\.(\w+)$", (PAGES / "reference.md").read_text(), re.MULTILINE)
    assert sorted([*named, "__version__"]) == sorted(instep.__all__)


def test_all_that_methods_of_a_project_take_and_give_are_names_of_the_package() -> None:
    methods = [each for name, each in inspect.getmembers(instep.Instep, inspect.isfunction) if name[0] != "_"]
    written = " ".join(str(each) for method in methods for each in method.__annotations__.values())
    named = set(re.findall(r"(?<![\w.])[A-Z]\w+", written)) - {"Callable", "Collection", "Iterable", "None", "Sequence"}
    assert {"Hits", "Runs", "Progress"} <= named <= set(instep.__all__)


def test_all_names_of_the_package_and_their_members_are_described() -> None:
    bare = []
    for name in sorted({*instep.__all__} - {"__version__", "SearchMode"}):
        shown = getattr(instep, name)
        members = inspect.getmembers(shown, lambda each: isinstance(each, property) or inspect.isroutine(each))
        ours = (
            [
                member
                for called, member in members
                if called[0] != "_"
                and any(called in base.__dict__ for base in shown.__mro__ if base.__module__.startswith("instep."))
            ]
            if inspect.isclass(shown)
            else []
        )
        bare += [f"{name} {each}" for each in (shown, *ours) if not inspect.getdoc(each)]
    assert bare == []


def _built(folder: Path) -> subprocess.CompletedProcess[str]:
    """What `make docs` does, in a copy: a test writes nothing into the checkout."""
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(PAGES, tmp_path / "docs")
    shutil.copy(ROOT / "zensical.toml", tmp_path)
    (tmp_path / "src").symlink_to(ROOT / "src")
    return tmp_path


@pytest.mark.proof
def test_the_site_is_built_and_describes_what_python_has(copy: Path) -> None:
    done = _built(copy)
    assert done.returncode == 0, done.stdout + done.stderr
    site = copy / "build" / "site"
    assert len([*site.rglob("index.html")]) >= len([*PAGES.glob("*.md")])
    described = (site / "reference" / "index.html").read_text()
    assert 'id="instep.Instep.search"' in described


@pytest.mark.proof
@pytest.mark.parametrize(
    ("slip", "said"),
    [
        ("See [there](nowhere.md).", "page does not exist"),
        ("See [there](search.md#nowhere).", "anchor does not exist"),
        ("::: instep.Nowhere", "instep.Nowhere could not be found"),
    ],
)
def test_a_link_or_a_name_that_leads_nowhere_fails_it(copy: Path, slip: str, said: str) -> None:
    for page in (copy / "docs").rglob("*.md"):
        if page.name not in ("index.md", "search.md"):
            page.unlink()
    (copy / "docs" / "index.md").write_text(f"# Instep\n\n{slip}\n")
    (copy / "docs" / "search.md").write_text("# Search\n")
    settings = (copy / "zensical.toml").read_text()
    (copy / "zensical.toml").write_text(re.sub(r"^nav = \[.*?^\]$", "", settings, flags=re.DOTALL | re.MULTILINE))
    done = _built(copy)
    assert done.returncode != 0
    assert said in done.stdout + done.stderr
