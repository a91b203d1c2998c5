"""The table of extras on the first page has all that there are, and each that is named anywhere is one."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from instep.error_transport import EXTRAS
from tests.docs.blocks import sections

ROOT = Path(__file__).parents[2]
DECLARED = {*tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]}
FOLDERS = ("deploy", "examples", "integrations")
#: Where a user reads what to install.
PLACES = [
    *(ROOT / "src").rglob("*.py"),
    *(path for path in ROOT.glob("docs/**/*.md") if path.parent.name != "adr"),
    *(
        path
        for folder in ("deploy", "examples", "integrations")
        for path in (ROOT / folder).rglob("*")
        if path.is_file()
    ),
    ROOT / "README.md",
]


def test_the_first_page_says_of_every_extra_what_it_is_for() -> None:
    rows = re.findall(r"^\| (`.*?) \| .+ \|$", sections("index.md")["Extras"], re.MULTILINE)
    named = [each for row in rows for each in re.findall(r"`([\w-]+)`", row)]
    assert sorted(named) == sorted(DECLARED)


def test_every_extra_that_is_named_is_one() -> None:
    found = {
        (extra.strip(), path.relative_to(ROOT).as_posix())
        for path in PLACES
        for extras in re.findall(r"\binstep\[([\w, -]+)\]", path.read_text(encoding="utf-8", errors="replace"))
        for extra in extras.split(",")
    }
    assert len({extra for extra, _ in found}) > 20
    assert {each for each in found if each[0] not in DECLARED} == set()
    assert {*EXTRAS.values()} <= DECLARED
