"""A judged collection is made of the links between pages of documentation."""

from __future__ import annotations

import json
from pathlib import Path

from bench.linked import Linked, collect, linked

PAGES = frozenset({"a.md", "b.md", "c/d.md"})
PAGE = """# A

Water rises twice a day. How high it is on a given day is told by [the tables](b.md#high){.x}, as everywhere.

- An item that stays.
- An item about harbours, of which [D][d] says more.

See [b](b.md). A picture: [x](https://example.org/b.md), and this [page](a.md).

[d]: c/d.html
"""


def test_sentences_with_links_are_queries_and_their_paragraphs_are_gone() -> None:
    left, found = linked(PAGE, "a.md", PAGES)
    assert found == [
        Linked("How high it is on a given day is told by the tables, as everywhere.", ("b.md",)),
        Linked("An item about harbours, of which D says more.", ("c/d.md",)),
    ]
    assert left.split() == ["#", "A", "-", "An", "item", "that", "stays."]


def test_links_are_found_from_where_a_page_lies() -> None:
    _, found = linked("The words that stand beside it are [a](../a.md) and [d](d.md).", "c/d.md", PAGES)
    assert [each.pages for each in found] == [("a.md",)]


def test_a_collection_names_the_pages_that_answer(tmp_path: Path) -> None:
    folder = tmp_path / "book"
    (folder / "c").mkdir(parents=True)
    (folder / "a.md").write_text(PAGE)
    (folder / "b.md").write_text("# B\n\nHow high it is on a given day is told by [a page](c/d.md), as everywhere.\n")
    (folder / "c" / "d.md").write_text("# D\n\nHarbours.\n")
    assert collect(folder, tmp_path / "made") == (3, 3)
    judged = [json.loads(line) for line in (tmp_path / "made" / "judged.jsonl").read_text().splitlines()]
    assert [each["relevant"] for each in judged] == [["b.md"], ["c/d.md"], ["c/d.md"]]
    assert (tmp_path / "made" / "docs" / "b.md").read_text().strip() == "# B"
