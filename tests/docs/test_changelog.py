"""The changelog has each section of a version once, and the version is said alike in all places."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import instep

ROOT = Path(__file__).parents[2]
VERSIONS = re.split(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
#: Those of Keep a Changelog.
SECTIONS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]


def test_each_version_has_each_section_once_and_by_its_name() -> None:
    titles = VERSIONS[::2]
    assert titles[0] == "[Unreleased]"
    assert len({*titles}) == len(titles)
    for title, text in zip(titles, VERSIONS[1::2], strict=True):
        found = re.findall(r"^### (.*)$", text, re.MULTILINE)
        assert sorted(found, key=SECTIONS.index) == sorted({*found}, key=SECTIONS.index), title


def test_the_package_and_its_metadata_have_one_version_and_the_changelog_says_whether_it_is_out() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert instep.__version__ == declared
    released = [re.match(r"\[(\S+)\] - \d{4}-\d\d-\d\d$", title) for title in VERSIONS[2::2]]
    newest = released[0][1] if released and released[0] else None
    assert newest == declared or f"{declared} will be the" in VERSIONS[1]
