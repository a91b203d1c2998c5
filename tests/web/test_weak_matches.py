"""The page calls weak matches weak, where vectors know it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

import instep
from tests.web.conftest import Watched
from tests.web.serving import Site

PROJECT = """\
name: topics
engine: inline
targets: {index: {type: lance, uri: index}}
entities:
  Page:
    source: {type: files, path: docs}
    embed: {type: static}
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("weak")
    (folder / "docs").mkdir()
    (folder / "docs" / "tides.md").write_text(
        "# Tides\n\nThe moon pulls the sea, and neap tides come with half of it.\n"
    )
    (folder / "docs" / "bread.md").write_text("# Bread\n\nKnead flour, water and salt, and bake the loaf.\n")
    (folder / "instep.yaml").write_text(PROJECT)
    instep.load(folder).run()
    with Site(folder).served() as found:
        yield found


def test_a_hit_that_means_something_else_is_called_a_weak_match(watched: Watched) -> None:
    page = watched.go("/search?q=when+is+a+neap+tide")
    hits = page.get_by_role("main").get_by_role("listitem")
    tides, bread = (hits.filter(has=page.get_by_role("heading", name=each)) for each in ("Tides", "Bread"))
    expect(tides).to_be_visible()
    expect(tides).not_to_contain_text("weak match")
    expect(bread).to_contain_text("docs/bread.md · weak match")
