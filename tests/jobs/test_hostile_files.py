"""Files that are made to break their parser: each fails alone, for a reason that tells, and nothing of it is left."""

from __future__ import annotations

import gzip
import io
import zipfile
from pathlib import Path

from tests.documents.test_parser_process import children
from tests.jobs.test_formats import SAMPLES, opened

TIDE = b"tide and ebb\n"


def packed(name: str, part: str, old: bytes, new: bytes, *, size: int | None = None) -> bytes:
    """A sample, in one part of which something else is written; `size`: what it says of that part's length."""
    out, original = io.BytesIO(), zipfile.ZipFile(SAMPLES / name)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for each in original.namelist():
            data = original.read(each)
            file.writestr(each, data.replace(old, new, 1) if each == part else data)
        length = file.getinfo(part).file_size
    data = out.getvalue()
    return data if size is None else data.replace(length.to_bytes(4, "little"), size.to_bytes(4, "little"))


def a_pdf_of(pages: int) -> bytes:
    content = b"BT /F 12 Tf 10 10 Td (tide) Tj ET"
    kids = b" ".join(b"%d 0 R" % (number + 5) for number in range(pages))
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[%s]/Count %d/Resources<</Font<</F 4 0 R>>>>>>" % (kids, pages),
        b"<</Length %d>>stream\n%s\nendstream" % (len(content), content),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
        *[b"<</Type/Page/Parent 2 0 R/Contents 3 0 R>>"] * pages,
    ]
    out, places = io.BytesIO(), []
    out.write(b"%PDF-1.4\n")
    for number, each in enumerate(objects, 1):
        places.append(b"%010d 00000 n \n" % out.tell())
        out.write(b"%d 0 obj\n%s\nendobj\n" % (number, each))
    start = out.tell()
    out.write(b"xref\n0 %d\n0000000000 65535 f \n%s" % (len(objects) + 1, b"".join(places)))
    out.write(b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, start))
    return out.getvalue()


BODY, DOCUMENT = b"<w:body>", "word/document.xml"
WORDS = b"<w:p><w:r><w:t>tide and ebb</w:t></w:r></w:p>" * 1_000_000
LAUGHS = b"<!DOCTYPE x [<!ENTITY a0 'lol'>%s]>" % b"".join(
    b"<!ENTITY a%d '%s'>" % (level, b"&a%d;" % (level - 1) * 10) for level in range(1, 12)
)
HOSTILE = {
    "bomb.docx": packed("a.docx", DOCUMENT, BODY, BODY + WORDS),
    "lying.docx": packed("a.docx", DOCUMENT, BODY, BODY + WORDS, size=1_000),
    "bomb.txt.gz": gzip.compress(TIDE * 1_000_000),
    "bomb.docx.gz": gzip.compress(bytes(13_000_000)),
    "pages.pdf": a_pdf_of(100_000),
    "laughs.odt": packed("a.odt", "content.xml", b"<office:document-content", LAUGHS + b"<office:document-content"),
    "deep.odt": packed("a.odt", "content.xml", b"</office:text>", b"<text:span>" * 300_000 + b"</office:text>"),
    "deep.html": b"<div>" * 100_000 + TIDE,
    "deep.eml": b'Content-Type: multipart/mixed; boundary="x"\n\n--x\n' * 100_000,
    "deep.ipynb": b'{"cells":' + b"[" * 100_000,
    "cut.msg": (SAMPLES / "a.msg").read_bytes()[:4_000],
    "nothing.pdf": b"%PDF-1.4",
}
SLOW = "takes longer than 4s to parse (parse_time)"
UNREADABLE = "cannot be read: "
REASONS: dict[str, str | tuple[str, ...]] = {
    "bomb.docx": "too large: ",
    "lying.docx": ("too large: ", UNREADABLE, "its parser ended by SIG", "needs more than ", SLOW),
    "bomb.txt.gz": "too large: more than 10,000,000 bytes when unpacked; see max_document_bytes",
    "bomb.docx.gz": "too large: more than 10,000,000 bytes when unpacked; see max_document_bytes",
    "pages.pdf": SLOW,
    "laughs.odt": UNREADABLE,
    "deep.odt": ("its parser ended by SIG", "needs more than "),
    "deep.html": SLOW,
    "deep.eml": (SLOW, "its parts cannot be told apart: "),
    "deep.ipynb": UNREADABLE,
    "cut.msg": UNREADABLE,
    "nothing.pdf": UNREADABLE,
}


def test_files_that_are_made_to_break_their_parser_fail_alone(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    for name, data in HOSTILE.items():
        (tmp_path / "docs" / name).write_bytes(data)
    good = ("a.docx", "a.eml", "a.msg", "a.odt", "a.pdf", "a.pptx", "a.rtf")
    for name in good:
        (tmp_path / "docs" / name).write_bytes((SAMPLES / name).read_bytes())
    limits = {"max_document_bytes": "10MB", "parse_time": "4s", "parse_memory": "500MB"}
    project = opened(tmp_path, source={"include": ["**"]}, parse={"type": "kreuzberg"}, limits=limits)
    project.run()
    failed = {each.uri.rsplit("/", 1)[-1]: each.reason for each in project.failures()}
    assert {name: failed.get(name, "") for name in HOSTILE if not failed.get(name, "").startswith(REASONS[name])} == {}
    assert failed.keys() == HOSTILE.keys()
    assert all(len(reason) < 400 and "Traceback" not in reason for reason in failed.values())
    assert {Path(hit.source_uri).name for hit in project.search("tide", limit=50)} >= {"a.docx", "a.eml", "a.odt"}
    assert len(children()) <= 1, "but for the one that waits for the next file"


def test_laughs_and_tags_of_xml_are_no_more_than_text(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "laughs.xml").write_bytes(b"<?xml version='1.0'?>" + LAUGHS + b"<x>&a11; tide</x>")
    (tmp_path / "docs" / "deep.xml").write_bytes(b"<a>\n" * 100_000 + TIDE)
    project = opened(tmp_path, source={"include": ["**"]})
    project.run()
    assert list(project.failures()) == []
    assert {Path(hit.source_uri).name for hit in project.search("tide", limit=50)} == {"laughs.xml", "deep.xml"}
