"""Names of installed packages stand for the functions and classes that these publish, each in the group of its kind."""

from __future__ import annotations

from pathlib import Path

import pytest

from instep.errors import UserError
from instep.pipeline.loading import full_name
from tests.jobs.own_code import entry_point

#: A setting, and the group that docs/functions.md names for it.
GROUPS = {
    "source.class": "instep.sources",
    "parse.function": "instep.parsers",
    "chunk.function": "instep.chunkers",
    "embed.function": "instep.embedders",
    "search.rerank.function": "instep.rerankers",
    "targets.index.class": "instep.targets",
}


@pytest.mark.parametrize("setting", GROUPS)
def test_a_name_stands_for_what_a_package_publishes_for_that_setting_alone(
    setting: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    entry_point(tmp_path, GROUPS[setting], "mine", "theirs.module:thing")
    assert full_name("mine", setting) == "theirs.module:thing"
    for other in GROUPS.keys() - {setting}:
        with pytest.raises(UserError, match=f"among its entry points of {GROUPS[other]}"):
            full_name("mine", other)


def test_the_documentation_names_every_group() -> None:
    page = (Path(__file__).parents[2] / "docs" / "functions.md").read_text()
    assert [group for group in GROUPS.values() if group not in page] == []
