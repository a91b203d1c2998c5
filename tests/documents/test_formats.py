"""Files of offices, e-books and notebooks become Markdown, or failures that say why."""

from __future__ import annotations

import gzip
import io
import pickle
import re
import zipfile
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from instep.errors import UserError
from instep.pipeline.documents import formats
from instep.pipeline.documents.formats import SUFFIXES, FormatParser
from instep.pipeline.documents.parse import FileParser, Parsed, ParseFailure
from instep.pipeline.documents.places import markdown_headings

SAMPLES = Path(__file__).parent / "samples"
MOST = 1_000_000


def parsed(data: bytes, name: str, *, max_bytes: int = MOST, max_line_bytes: int = MOST) -> Parsed:
    parser: FormatParser = pickle.loads(pickle.dumps(FormatParser.of(None)))
    return parser.parse(data, f"file:///f/{name}", max_line_bytes=max_line_bytes, max_bytes=max_bytes)


def failure(made: Callable[[], object]) -> str:
    with pytest.raises(ParseFailure) as caught:
        made()
    return caught.value.reason


@pytest.mark.parametrize(
    ("name", "title", "said"),
    [
        ("a.docx", "Tide tables", ["# Tides", "## Neap", "| May | 3.2 |"]),
        ("a.pptx", "Spring tide", ["## Spring tide", "High water"]),
        ("a.xlsx", "Levels", ["## Levels", "| Brest | 7.1 |", "## Other"]),
        ("a.doc", "Test", ["This is a harmless test document."]),
        ("a.ppt", "Embedded Objects", ["This slide contains an embedded object"]),
        ("a.xls", "Levels", ["| Brest |"]),
        ("a.odt", "Tides", ["# Tides", "Ebb and flood."]),
        ("a.ods", "Levels", ["| Brest | 7.1 |"]),
        ("a.rtf", "Tides of RTF", ["# Tides", "flōod"]),
        ("a.epub", "Sea book", ["# One", "Ebb and flood."]),
        ("a.ipynb", "Notebook", ["# Notebook", "print(1)"]),
    ],
)
def test_a_file_becomes_markdown_with_its_title(name: str, title: str, said: list[str]) -> None:
    found = parsed((SAMPLES / name).read_bytes(), name)
    assert (found.kind, found.title) == ("markdown", title)
    assert [each for each in said if each not in found.text] == []


def test_only_a_pdf_has_pages() -> None:
    paged = {each.suffix for each in SAMPLES.iterdir() if parsed(each.read_bytes(), each.name).pages}
    assert paged == {".pdf"}


def test_every_format_has_a_sample() -> None:
    assert {each.suffix for each in SAMPLES.iterdir()} - {".md"} == SUFFIXES


def test_other_files_are_parsed_as_without_it() -> None:
    page = b"<title>Page</title><p>words</p>"
    plain = FileParser().parse(page, "file:///f/a.html", max_line_bytes=MOST, max_bytes=MOST)
    assert parsed(page, "a.html") == plain


def test_a_broken_file_fails_alone_and_its_reason_may_quote_it() -> None:
    data = (SAMPLES / "a.docx").read_bytes()
    with pytest.raises(ParseFailure) as caught:
        parsed(data[: len(data) // 2], "a.docx")
    assert caught.value.reason.startswith("cannot be read: ")
    assert caught.value.quoting
    assert failure(lambda: parsed(b"no zip at all", "a.pptx")).startswith("cannot be read: ")


def test_a_document_that_is_larger_when_it_is_unpacked_is_refused() -> None:
    inside = io.BytesIO()
    original = zipfile.ZipFile(SAMPLES / "a.docx")
    with zipfile.ZipFile(inside, "w", zipfile.ZIP_DEFLATED) as bomb:
        for each in original.namelist():
            data = original.read(each)
            if each == "word/document.xml":
                words = b"<w:p><w:r><w:t>" + b"tide " * 2_000_000 + b"</w:t></w:r></w:p>"
                data = data.replace(b"<w:body>", b"<w:body>" + words)
            bomb.writestr(each, data)
    assert len(inside.getvalue()) < 100_000
    assert failure(lambda: parsed(inside.getvalue(), "a.docx")).startswith("too large: 10,")


def test_what_is_packed_is_as_what_is_in_it() -> None:
    found = parsed(gzip.compress((SAMPLES / "a.odt").read_bytes()), "a.odt.gz")
    assert (found.kind, found.title) == ("markdown", "Tides")


def test_the_project_says_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> str:
        raise PackageNotFoundError

    monkeypatch.setattr(formats, "version", missing)
    with pytest.raises(UserError) as caught:
        FormatParser.of(None)
    assert caught.value.hint == "pip install 'instep[formats]'"


def test_another_library_parses_otherwise() -> None:
    files = FileParser()
    prints = {FormatParser(files, each).fingerprint for each in ("4.10.4", "4.11.0")} | {files.fingerprint}
    assert len(prints) == 3


#: What is in no file of the samples.
OTHERS = {
    ".html": b"<h1>Tides</h1><table><tr><th>port<th>level<tr><td>Brest</td><td>7.1</td></tr></table>",
    ".md": b"# Tides\n\n| port | level |\n| --- | --- |\n| Brest | 7.1 |\n",
    ".csv": b"port,level\nBrest,7.1\n",
    ".xml": b"<h1>Tides</h1><table><tr><td>Brest</td><td>7.1</td></tr></table>",
}
ROW = re.compile(r"\| `(\.\w+)`( without)?[^|]*\| ([^|]+) \| ([^|]+) \| ([^|]+) \| [\d,]* *\|")


def rows() -> list[tuple[str, bool, set[str]]]:
    """What the documentation says of each format: whether kreuzberg parses it, and what is kept."""
    page = (Path(__file__).parents[2] / "docs" / "documents.md").read_text()
    found = [*ROW.finditer(page)]
    assert {each[1] for each in found} == SUFFIXES | OTHERS.keys()
    columns = {"headings": 3, "tables": 4, "pages": 5}
    return [
        (each[1], each[2] is None, {name for name, column in columns.items() if each[column].isascii()})
        for each in found
    ]


@pytest.mark.parametrize(("suffix", "by_kreuzberg", "said"), rows())
def test_the_documentation_says_what_is_kept_of_each_format(suffix: str, by_kreuzberg: bool, said: set[str]) -> None:
    kept = set()
    for sample in [None] if suffix in OTHERS else sorted(SAMPLES.glob(f"*{suffix}")):
        data = OTHERS[suffix] if sample is None else sample.read_bytes()
        if suffix == ".eml":
            data = b"Content-Type: text/html\n\n" + OTHERS[".html"]
        elif sample is not None and sample.name == "html.msg":
            page = data[data.index(b"<html>") : data.index(b"</html>")]
            data = data.replace(page, b"<h1>H</h1><table><tr><td>a<td>b<tr><td>c<td>d".ljust(len(page)))
        if by_kreuzberg:
            found = parsed(data, f"a{suffix}")
        else:
            found = FileParser().parse(data, f"file:///a{suffix}", max_line_bytes=MOST, max_bytes=MOST)
        if found.kind == "markdown" and list(markdown_headings(found.text)):
            kept.add("headings")
        if found.kind == "markdown" and re.search(r"^\|( -+ \|)+$", found.text, re.MULTILINE):
            kept.add("tables")
        if len(found.pages) > 1:
            kept.add("pages")
    assert kept == said


def test_what_is_not_kept_of_a_presentation_are_its_notes() -> None:
    assert b"Words for the speaker" in zipfile.ZipFile(SAMPLES / "a.pptx").read("ppt/notesSlides/notesSlide1.xml")
    assert "Words for the speaker" not in parsed((SAMPLES / "a.pptx").read_bytes(), "a.pptx").text
