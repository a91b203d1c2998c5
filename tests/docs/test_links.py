"""Links between the documents lead somewhere, to the heading too."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.web.screenshots import PICTURES

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]


def headings(page: Path) -> set[str]:
    """Their anchors, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    found = (re.sub(r"<!--.*?-->", "", each).strip().lower() for each in re.findall(r"^#+ (.*)$", text, re.MULTILINE))
    return {re.sub(r"[^\w\- ]", "", each).replace(" ", "-") for each in found}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", text):
        there = page.parent / target if target else page
        assert there.exists(), target
        if anchor and there.suffix == ".md":
            assert anchor in headings(there), f"{target}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_addresses_in_the_repository_lead_somewhere(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for target in re.findall(r"https://github\.com/instep-dev/instep/(?:blob|tree)/main/([^)#\s]+)", text):
        assert (ROOT / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_modules_that_are_named_exist(page: Path) -> None:
    """`jobs/wave.py` is one of Instep's, `tests/proof.py` one of the repository."""
    for name in re.findall(r"`((?:[a-z_]+/)+[a-z_]+\.py)`", page.read_text(encoding="utf-8")):
        assert any((root / name).exists() for root in (ROOT, ROOT / "src" / "instep", page.parent)), name


def test_each_view_is_shown_in_light_and_in_dark_and_no_picture_is_left_over() -> None:
    shown = {
        (path, scheme)
        for page in ROOT.glob("docs/*.md")
        for path, scheme in re.findall(r"!\[.+\]\(images/(.+)\.png#only-(\w+)\)", page.read_text(encoding="utf-8"))
    }
    expected = {(f"{view.name}-{scheme}", scheme) for view in PICTURES for scheme in ("light", "dark")}
    assert shown == expected
    assert {path.stem for path in ROOT.glob("docs/images/*")} == {name for name, _ in shown}
    in_readme = re.findall(r'"(docs/images/.+?)"', (ROOT / "README.md").read_text(encoding="utf-8"))
    assert [each for each in in_readme if not (ROOT / each).exists()] == []
