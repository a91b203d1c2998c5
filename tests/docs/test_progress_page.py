"""A browser that connects as docs/progress.md shows gets the progress of jobs, of which the page says how it looks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import instep
from tests.docs.page import blocks_of
from tests.docs.world import PROJECT, make_documents
from tests.web.browsing import running_browser
from tests.web.serving import TOKEN, Site

pytestmark = pytest.mark.proof

FIRST = "async () => { %s; return await new Promise(given => { socket.onmessage = each => given(each.data) }) }"


def test_the_first_message_has_what_the_page_shows(tmp_path: Path) -> None:
    make_documents(tmp_path)
    (tmp_path / "instep.yaml").write_text(PROJECT)
    instep.load(tmp_path).run()
    shown, (code,) = (
        [each.text for each in blocks_of("docs/progress.md") if each.language == of] for of in ("json", "js")
    )
    with Site(tmp_path).served() as site, running_browser() as browser:
        page = browser.new_page()
        page.goto(site.address)
        here = code.replace("127.0.0.1:8321", site.address.removeprefix("http://"))
        said = json.loads(page.evaluate(FIRST % f"const token = {TOKEN!r}, last = null; {here}"))
    asked, answer = map(json.loads, shown)
    assert asked.items() <= {"subscribe": "searchIndexJobStatus", "job": None, "after": None}.items()
    assert _keys(answer) == _keys(said)


def _keys(value: Any) -> set[str]:
    """But for those of entities and states, which are names."""
    data = value["data"]
    return {*value, *data, *data["stats"], *data["stats"]["jobStats"]}
