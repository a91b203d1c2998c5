"""The page that a chunk begins on, and the headings that it stands under."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pypdf import PdfWriter

import instep
from instep.pipeline.documents.chunk import Chunker
from instep.pipeline.documents.functions import ParsedDocument
from instep.pipeline.documents.parse import FILE_PARSER, Parsed, ParseFailure
from instep.pipeline.documents.places import (
    headings_at,
    joined_pages,
    markdown_headings,
    page_at,
    pages_in,
    starts_of,
)
from instep.project import Project
from tests.documents.test_formats import parsed as by_kreuzberg
from tests.documents.test_parse import pdf

SAMPLES = Path(__file__).parent / "samples"
MOST = 1_000_000


def parsed(data: str | bytes, name: str) -> Parsed:
    data = data.encode() if isinstance(data, str) else data
    return FILE_PARSER.parse(data, f"file:///{name}", max_line_bytes=MOST, max_bytes=MOST)


def of_pages(*texts: str) -> bytes:
    writer, out = PdfWriter(), io.BytesIO()
    for each in texts:
        writer.append(io.BytesIO(pdf(each)))
    writer.write(out)
    return out.getvalue()


@given(
    st.lists(st.sampled_from(["one", "two words", "# A heading", "a. b. c.", "x" * 30, ""]), max_size=40),
    st.booleans(),
    st.integers(4, 60),
    st.data(),
)
def test_a_chunk_begins_where_its_text_stands(
    blocks: list[str], markdown: bool, size: int, data: st.DataObject
) -> None:
    text = "\n\n".join(blocks)
    chunker = Chunker(size, data.draw(st.integers(0, size - 1)))
    (chunks,) = chunker.cut([("markdown" if markdown else "text", text)])
    assert not isinstance(chunks, ParseFailure)
    end = 0
    for chunk, start in chunks:
        assert start is not None
        assert text[start:].startswith(chunk)
        if not chunker.overlap:
            assert not text[end:start].strip(), "all that lies between two chunks is white space"
        end = start + len(chunk)


def test_a_chunk_that_is_not_in_the_text_has_no_place_nor_have_those_behind_it() -> None:
    assert starts_of("a b c", ["a", "B", "c"]) == [0, None, None]


def test_headings_of_markdown_are_those_that_are_open() -> None:
    text = "intro\n\n# Tides #\n\na\n\nNeap\n----\n\nb\n\n```\n# no heading\n```\n\n### Deep\n\nc\n\n## Spring\n\nd\n\n"
    text += "Top\n===\n\ne"
    headings = list(markdown_headings(text))
    assert [(each.level, each.text) for each in headings] == [
        (1, "Tides"),
        (2, "Neap"),
        (3, "Deep"),
        (2, "Spring"),
        (1, "Top"),
    ]
    places = [text.index(each) for each in ("intro", "\na\n", "\nb\n", "```", "\nc\n", "\nd\n", "\ne")]
    assert headings_at(headings, [*places, None]) == [
        None,
        ["Tides"],
        ["Tides", "Neap"],
        ["Tides", "Neap"],
        ["Tides", "Neap", "Deep"],
        ["Tides", "Spring"],
        ["Top"],
        None,
    ]


@pytest.mark.parametrize(
    "text", ["- item\n---\n", "| a |\n---\n", "> said\n---\n", "    code\n---\n", "\n---\n", "####### x", "#x"]
)
def test_a_rule_is_no_heading(text: str) -> None:
    assert list(markdown_headings(text)) == []


def test_pages_of_a_pdf_begin_where_their_texts_do() -> None:
    found = parsed(of_pages("", "first", "", "third", "fourth"), "a.pdf")
    assert found.text == "first\n\n\n\nthird\n\nfourth"
    assert {each: page_at(found.pages, found.text.index(each)) for each in ("first", "third", "fourth")} == {
        "first": 2,
        "third": 4,
        "fourth": 5,
    }
    assert page_at((), 3) is None
    assert page_at(found.pages, None) is None


@given(st.lists(st.text(st.sampled_from("ab \n\0"), max_size=6), max_size=6))
def test_pages_are_joined_as_their_texts_are(pages: list[str]) -> None:
    text, starts = joined_pages(pages)
    assert text == "\n\n".join(each.strip() for each in pages).replace("\0", "").strip()
    assert starts == sorted(starts)
    for page, start in zip(pages, starts, strict=True):
        own = page.strip().replace("\0", "").strip()
        assert text[start:].lstrip().startswith(own)


def test_pages_are_found_in_markdown_made_of_them() -> None:
    text = "# Tides\n\nHigh water.\n\n| Brest | 7.1 |\n\n## Neap\n\nLow."
    pages = ["Tides\r\nHigh water.", "", "Brest 7.1", "Neap\r\nLow."]
    assert [text[at:][:5] for at in pages_in(text, pages)] == ["# Tid", "| Bre", "| Bre", "## Ne"]
    assert pages_in(text, ["Tides", "of another document"]) == []
    assert pages_in("", []) == []


def test_a_pdf_as_markdown_keeps_headings_at_the_top_of_a_page_and_its_pages() -> None:
    found = by_kreuzberg((SAMPLES / "a.pdf").read_bytes(), "a.pdf")
    assert found.text.startswith("# Tides\n\nFirst page text of tides.\n\n## Neap\n\nSecond page words.")
    assert [found.text[at:].split("\n")[0] for at in found.pages] == ["# Tides", "## Neap", "Third page end."]


def own_pages(data: bytes, uri: str) -> ParsedDocument:
    text = data.decode()
    return ParsedDocument(text, pages=[0, text.index("\f") + 1]) if "\f" in text else ParsedDocument(text)


def project(folder: Path, **more: object) -> instep.Instep:
    entity = {
        "source": {"type": "files", "path": "docs"},
        "target": "main",
        "chunk": {"size": 40},
        "columns": {
            "page": {"type": "int", "from": "chunk:page"},
            "section": {"type": "string[]", "from": "chunk:headings"},
        },
    }
    declared = {
        "name": "p",
        "root": folder,
        "engine": "inline",
        "targets": {"main": {"type": "lance", "uri": "index"}},
        "entities": {"Guide": entity | more},
    }
    return instep.Instep(Project.model_validate(declared))


def test_chunks_are_found_by_page_and_by_heading(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    guide = "# Tides\n\nWater rises.\n\n## Neap\n\nWater that is low and slow.\n\n## Spring\n\nWater that is high.\n"
    (docs / "guide.md").write_text(guide)
    (docs / "book.pdf").write_bytes(of_pages("Water of the page one.", "Water of the page two."))
    made = project(tmp_path)
    made.run()
    found = {each.text.split("\n")[-1]: each.columns for each in made.search("water", limit=20)}
    assert found["Water rises."] == {"page": None, "section": ["Tides"]}
    assert found["Water that is low and slow."] == {"page": None, "section": ["Tides", "Neap"]}
    assert found["Water that is high."] == {"page": None, "section": ["Tides", "Spring"]}
    assert found["Water of the page two."] == {"page": 2, "section": None}
    (hit,) = made.search("water", where="section CONTAINS 'Spring'")
    assert hit.text.endswith("high.")
    assert [each.columns["page"] for each in made.search("water", where="page >= 1")] == [1, 2]
    assert made.run()[0].state is None, "nothing to do"
    # A heading that is another one changes the column of the chunks below it, and embeds no text but its own.
    (docs / "guide.md").write_text(guide.replace("# Tides", "# Levels"))
    made.run()
    (hit,) = made.search("water", where="section CONTAINS 'Spring'")
    assert hit.columns["section"] == ["Levels", "Spring"]


def wrong_pages(data: bytes, uri: str) -> ParsedDocument:
    return ParsedDocument(data.decode(), pages=json.loads(data))


@pytest.mark.parametrize("pages", ['["x"]', "[3, 1]", "[-1]", "[true]", '"abc"', "5", "null"])
def test_pages_that_cannot_be_are_a_failure_of_their_document(tmp_path: Path, pages: str) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "good.txt").write_text("[0, 2, 2, 99]")
    (tmp_path / "docs" / "wrong.txt").write_text(pages)
    made = project(tmp_path, parse={"type": "python", "function": f"{__name__}:wrong_pages"})
    made.run()
    assert [(each.uri, "`pages`" in each.reason) for each in made.failures()] == [("project:///docs/wrong.txt", True)]
    assert [each.columns["page"] for each in made.search("99")] == [1]


def test_a_function_that_parses_says_where_pages_begin(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("Water of the first page, long.\n\f\nWater of the second page, long.")
    made = project(tmp_path, parse={"type": "python", "function": f"{__name__}:own_pages"})
    made.run()
    assert sorted((each.columns["page"], each.text[13:18]) for each in made.search("water")) == [
        (1, "first"),
        (2, "secon"),
    ]
