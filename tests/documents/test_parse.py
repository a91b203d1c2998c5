"""Parsing: what becomes text, what becomes a failure and why."""

from __future__ import annotations

import codecs
import io
import sys

import pytest
from pypdf import PdfWriter

from instep.pipeline.documents.parse import FileParser, Parsed, ParseFailure

URI = "file:///folder/"
LINE = MOST = 1_000_000


def parsed(data: bytes, name: str, max_line_bytes: int = LINE, encoding: str | None = None) -> Parsed:
    parser = FileParser(encoding)
    return parser.parse(data, URI + name, max_line_bytes=max_line_bytes, max_bytes=MOST)


def reason(data: bytes, name: str, max_line_bytes: int = LINE) -> str:
    with pytest.raises(ParseFailure) as caught:
        parsed(data, name, max_line_bytes)
    assert caught.value.stage == "parse"
    return caught.value.reason


def pdf(text: str = "Hello PDF", title: str = "") -> bytes:
    """A small PDF with one page, written by hand."""
    stream = f"BT /F1 24 Tf 72 700 Td ({text}) Tj ET".encode() if text else b""
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>",
        b"<</Length %d>>stream\n%s\nendstream" % (len(stream), stream),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        b"<</Title(%s)>>" % title.encode(),
    ]
    out, offsets = b"%PDF-1.4\n", []
    for number, content in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj%s endobj\n" % (number, content)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    trailer = b"trailer<</Size %d/Root 1 0 R/Info 6 0 R>>" % (len(objects) + 1)
    return out + b"xref\n0 %d\n0000000000 65535 f \n%s%s\nstartxref\n%d\n%%%%EOF\n" % (
        len(objects) + 1,
        table,
        trailer,
        len(out),
    )


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.md", "markdown"),
        ("a.MARKDOWN", "markdown"),
        ("a.rst", "rst"),
        ("a.txt", "text"),
        ("a.py", "python"),
        ("a.TSX", "tsx"),
        ("a.toml", "code"),
        ("a.csv", "csv"),
        ("a.tab", "tsv"),
        ("Makefile", "text"),
        ("a.unknown", "text"),
        ("a.html", "markdown"),
    ],
)
def test_the_suffix_decides_the_format(name: str, kind: str) -> None:
    assert parsed(b"some words", name).kind == kind


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("# First #\n\n# Second", "First"),
        ("words\n\n## Deep *one*\n", "Deep *one*"),
        ("Under\nlined\n======\n", "lined"),
        ("```\n# not this\n```\n\n# But this", "But this"),
        ("---\ntitle: 'From matter'\ntags: [a]\n---\n# Heading", "From matter"),
        ("---\nlayout: x\n---\n# Heading", "Heading"),
        ("no heading", "a b.md"),
        ("#no space\n", "a b.md"),
    ],
)
def test_markdown_has_a_title(text: str, title: str) -> None:
    assert parsed(text.encode(), "a%20b.md").title == title


def test_front_matter_is_not_part_of_the_text_but_a_rule_is() -> None:
    assert parsed(b"---\ntitle: x\n---\nbody", "a.md").text == "body"
    assert parsed(b"+++\ntitle = 'x'\n+++\nbody", "a.md")[:3] == ("markdown", "x", "body")
    assert parsed(b"words\n\n---\n\nmore", "a.md").text == "words\n\n---\n\nmore"


@pytest.mark.parametrize(
    "text",
    [
        "---\n\n# Chapter one\n\nThe whale.\n\n---\n\n# Chapter two\n",
        "---\nWARNING: kerosene burns\n\nA paragraph.\n\n...\n\nAnd so on.\n",
        "---\n# A heading, which YAML takes for a comment\n---\nbody",
        "---\n- a list\n---\nbody",
        "---\n\nThe whale: a chapter that seems to be a mapping.\n\n---\n\nMore.\n",
        "---\nonly: the beginning\n",
        "+++\nno TOML\n+++\nbody",
        "+++\ntitle = 'x'\n---\nanother end\n",
        "---\n" + "[" * 60_000 + "\n---\nbody",
        "---\nx: " + "{" * 200 + "}" * 200 + "\n---\nbody",
        "---\n" + "a: " + "b" * 70_000 + "\n---\nbody",
    ],
)
def test_text_between_two_horizontal_rules_is_text(text: str) -> None:
    assert parsed(text.encode(), "a.md").text == text


@pytest.mark.parametrize(
    ("front", "title"),
    [
        ("---\nTitle: 'Two: parts'\ndate: 2024-02-30\n...\n", "Two: parts"),
        ("---\ntitle: >\n  On two\n  lines\n---\n", "On two lines"),
        ("---\ntitle: 2024\nodd: !!python/object:os.system x\n---\n", "2024"),
        ("---\ntitle: [a, list]\n---\n", "Heading"),
        ("---\n---\n", "Heading"),
        ('+++\ntitle = "T"\n[more]\nx = 1\n+++\n', "T"),
        ("---\r\ntitle: T\r\n---\r\n", "T"),
    ],
)
def test_front_matter_is_a_mapping_of_yaml_or_toml(front: str, title: str) -> None:
    assert parsed(f"{front}# Heading".encode(), "a.md")[:3] == ("markdown", title, "# Heading")


def test_a_title_has_only_characters_that_every_target_holds() -> None:
    assert parsed(b'---\ntitle: "a\\0b \\uD800 c\\nd"\n---\nx', "a.md").title == "a b ? c d"
    assert parsed(b'+++\ntitle = "a\\u0000b"\n+++\nx', "a.md").title == "a b"
    assert parsed(pdf(title="a\0b"), "a.pdf").title == "a b"
    assert "\0" not in parsed(b"<title>a&#0;b&#xD800;</title>x", "a.html").title.encode().decode()
    assert len(parsed(b"# " + b"x" * 9_000, "a.md").title) == 300


def test_restructuredtext_has_the_title_of_its_first_section() -> None:
    assert parsed(b"=====\nTitle\n=====\n\nText\n----\n", "a.rst").title == "Title"
    assert parsed(b"not this\n==\n\nSection\n~~~~~~~\n", "a.rst").title == "Section"


def test_html_in_a_declared_encoding_is_read_in_it() -> None:
    page = '<meta charset="iso-8859-1"><p>caf\xe9</p>'.encode("latin-1")
    assert parsed(page, "a.html").text == "café"
    assert reason(b"<p>caf\xe9</p>", "a.html").startswith("not UTF-8 at byte 6; ")


@pytest.mark.parametrize("name", ["a.xml", "a.html", "a.xhtml", "a.txt"])
@pytest.mark.parametrize(
    ("encoding", "text"), [("ISO-8859-1", "café"), ("windows-1251", "да"), ("ISO-2022-JP", "潮汐")]
)
def test_the_character_set_that_xml_declares_is_that_of_its_text(name: str, encoding: str, text: str) -> None:
    page = f"<?xml version='1.0'\n encoding = \"{encoding}\" ?><p>{text}</p>".encode(encoding)
    assert text in parsed(page, name).text
    assert text in parsed(page, name, encoding="ascii").text, "it is not in that"


def test_a_declared_encoding_of_the_project_is_before_what_a_page_says_and_a_mark_before_both() -> None:
    for page in (b'<?xml version="1.0" encoding="ISO-8859-1"?><p>%s</p>', b'<meta charset="ISO-8859-1"><p>%s</p>'):
        for name in ("a.html", "a.xml"):
            assert "да" in parsed(page % "да".encode("cp1251"), name, encoding="cp1251").text
        marked = codecs.BOM_UTF8 + page % "é".encode()
        assert "é" in parsed(marked, "a.html", encoding="cp1251").text


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_xml_in_utf16_needs_no_mark(encoding: str) -> None:
    page = "<?xml version='1.0' encoding='UTF-16'?><p>潮汐 tide</p>"
    assert parsed(page.encode(encoding), "a.xml").text == page
    assert parsed(page.encode(encoding), "a.html").text == "潮汐 tide"
    assert "潮汐" in parsed(page.encode(), "a.xml").text, "it is not what it says"


def test_source_code_is_in_the_character_set_that_it_declares() -> None:
    for head in ("# -*- coding: koi8-r -*-\n", "#!/usr/bin/python\n# vim: set fileencoding=koi8-r :\n"):
        assert parsed((head + "x = 'да'").encode("koi8-r"), "a.py").text == head + "x = 'да'"


def test_pdf_gives_text_and_title() -> None:
    assert parsed(pdf("Hello PDF", "The title"), "a.pdf")[:3] == ("pdf", "The title", "Hello PDF")


def test_a_truncated_pdf_is_a_failure_wherever_it_ends() -> None:
    whole = pdf()
    for size in (10, 200, 400, len(whole) - 10):
        assert "truncated" in reason(whole[:size], "a.pdf")


def test_bytes_behind_the_end_mark_of_a_pdf_do_no_harm() -> None:
    whole = pdf()
    for more in (b"\0" * 3_000, b"\n" * 5_000, b"<!-- sent by a server -->" * 200):
        assert parsed(whole + more, "a.pdf").text == "Hello PDF"
    # The beginning of a change to it, which has an end mark before it.
    for cut in (60, 3_000):
        assert "truncated" in reason(whole + b"\n7 0 obj\n<</Length 9000>>stream\n" + b"x" * cut, "a.pdf")


def test_broken_empty_and_wrong_pdfs_are_failures() -> None:
    assert "no text" in reason(pdf(text=""), "a.pdf")
    assert "not a PDF" in reason(b"# text", "a.pdf")
    assert "PDF" in reason(b"%PDF-1.4\n" + bytes(range(256)) * 20 + b"%%EOF", "a.pdf")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_decides_the_encoding_and_is_dropped(encoding: str) -> None:
    assert parsed("# Tïtle 漢".encode(encoding), "a.md")[:3] == ("markdown", "Tïtle 漢", "# Tïtle 漢")


def test_bytes_that_are_not_text_fail_with_their_position() -> None:
    assert reason(b"good \xff bad", "a.md").startswith("not UTF-8 at byte 5; ")
    assert reason(codecs.BOM_UTF16_LE + b"a\x00\x00\xd8", "a.md").startswith("not UTF-16 at byte")
    assert reason(b"text \x00\xff", "a.txt") == "binary, not text: NUL at byte 5"
    assert reason(codecs.BOM_UTF8 + b"a\x00", "a.txt").startswith("binary")


def test_a_line_over_the_limit_is_a_failure() -> None:
    assert "max_line_bytes" in reason(b"x" * 50_000_000, "a.txt")
    assert reason(b"short\n" + b"x" * 11, "a.txt", 10).endswith("at byte 6")
    assert parsed(b"x" * 10 + b"\n" + b"y" * 10 + b"\r\n", "a.txt", 10).text == "x" * 10 + "\n" + "y" * 10 + "\n"
    assert "max_line_bytes" in reason(b"<p>" + b"x" * 11, "a.html", 10)


def test_an_empty_file_is_an_empty_document() -> None:
    for name in ("a.md", "a.pdf", "a.html", "a.txt"):
        assert parsed(b"", name).text == ""


def test_line_ends_are_the_same_everywhere() -> None:
    assert parsed(b"a\r\nb\rc\n", "a.txt").text == "a\nb\nc\n"


def test_an_encrypted_pdf_is_said_to_be_one() -> None:
    def written(user: str) -> bytes:
        out, writer = io.BytesIO(), PdfWriter(clone_from=io.BytesIO(pdf("Hello PDF", "The title")))
        writer.encrypt(user, "owner", algorithm="RC4-128")
        writer.write(out)
        return out.getvalue()

    assert reason(written("secret"), "a.pdf") == "the PDF is encrypted"
    assert parsed(written(""), "a.pdf").text == "Hello PDF", "who needs no password is let in"


def test_a_pdf_that_needs_a_package_that_is_not_there_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    out, writer = io.BytesIO(), PdfWriter(clone_from=io.BytesIO(pdf("Hello PDF", "The title")))
    writer.encrypt("", "owner", algorithm="AES-256")
    writer.write(out)
    assert parsed(out.getvalue(), "a.pdf").text == "Hello PDF"
    for name in [each for each in sys.modules if each.partition(".")[0] == "pypdf"]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("cryptography", "Crypto"):
        monkeypatch.setitem(sys.modules, name, None)
    said = reason(out.getvalue(), "a.pdf")
    assert said.startswith("a package that this PDF needs is not installed: cryptography")
    assert "pip install 'pypdf[crypto]'" in said
