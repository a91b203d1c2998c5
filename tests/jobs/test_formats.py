"""A folder of office files, packed files and texts in other character sets, from the project file to the index."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from typing import Any

import pytest

import instep
from instep.pipeline.documents import parser_process
from instep.project import Project
from tests.documents.test_parse import pdf

SAMPLES = Path(__file__).parents[1] / "documents" / "samples"


def opened(root: Path, **entity: Any) -> instep.Instep:
    source = {"type": "files", "path": "docs", **entity.pop("source", {})}
    targets = {"index": {"type": "lance", "uri": "index"}}
    whole = {"source": source, "target": "index", **entity}
    declared = {"name": "p", "root": root, "engine": "inline", "targets": targets, "entities": {"Page": whole}}
    return instep.Instep(Project.model_validate(declared))


def texts(root: Path, **entity: Any) -> dict[str, str]:
    """What is indexed of each file, and why it failed."""
    project = opened(root, **entity)
    project.run()
    failed = {each.uri: each.reason for each in project.failures()}
    words = ("tides", "tide", "words", "größe", "port")
    found = {hit.source_uri: hit.text for each in words for hit in project.search(each, limit=50)}
    return {uri.rsplit("/", 1)[-1]: text for uri, text in {**failed, **found}.items()}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    return tmp_path


def test_office_files_are_indexed_unasked_once_their_parser_is_declared(root: Path) -> None:
    for name in ("a.docx", "a.odt", "a.xlsx"):
        shutil.copy(SAMPLES / name, root / "docs")
    (root / "docs" / "plain.md").write_text("words of Markdown")
    assert texts(root) == {"plain.md": "words of Markdown"}
    assert sorted(texts(root, parse={"type": "kreuzberg"})) == ["a.docx", "a.odt", "a.xlsx", "plain.md"]


def test_without_their_parser_the_reason_says_what_reads_them(root: Path) -> None:
    shutil.copy(SAMPLES / "a.docx", root / "docs")
    (root / "docs" / "named.docx").write_text("words in a file that is only named so")
    (root / "docs" / "plain.md").write_text("words of Markdown")
    (plan,) = opened(root, source={"include": ["**"]}).plan()
    (warning,) = plan.warnings
    assert "so they fail: 2 .docx; declare `parse: {type: kreuzberg}` (pip install 'instep[formats]')" in warning
    found = texts(root, source={"include": ["**"]})
    assert found["a.docx"] == ".docx is read with `parse: {type: kreuzberg}` (instep[formats])"
    assert found["named.docx"] == "words in a file that is only named so"


def test_the_plan_of_what_is_read_warns_of_nothing(root: Path) -> None:
    shutil.copy(SAMPLES / "a.docx", root / "docs")
    declared: list[dict[str, Any]] = [{"source": {"include": ["**"]}, "parse": {"type": "kreuzberg"}}, {"source": {}}]
    for entity in declared:
        (plan,) = opened(root, **entity).plan()
        assert not plan.warnings


def test_a_packed_file_is_as_what_is_in_it_and_no_larger_than_allowed(root: Path) -> None:
    (root / "docs" / "good.md.gz").write_bytes(gzip.compress(b"# Tides\n\nwords"))
    (root / "docs" / "bomb.md.gz").write_bytes(gzip.compress(b"tide " * 100_000))
    (root / "docs" / "cut.md.gz").write_bytes(gzip.compress(b"tide and ebb")[:-9])
    (root / "docs" / "not.md.gz").write_bytes(b"words that are not packed")
    found = texts(root, source={"include": ["**"]}, limits={"max_document_bytes": "100KB"})
    assert found["good.md.gz"] == "# Tides\n\nwords"
    assert found["not.md.gz"] == "words that are not packed"
    assert found["bomb.md.gz"] == "too large: more than 100,000 bytes when unpacked; see max_document_bytes"
    assert found["cut.md.gz"].startswith("broken gzip: ")


def test_another_chunk_size_opens_none_of_five_hundred_pdfs(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    ask = parser_process._Process.ask

    def counted(process: parser_process._Process, each: parser_process._Asked) -> parser_process._Said:
        asked.append(each.uri)
        return ask(process, each)

    monkeypatch.setattr(parser_process._Process, "ask", counted)
    for number in range(500):
        (root / "docs" / f"{number}.pdf").write_bytes(pdf(f"The tide of day {number}"))
    for size, parsed in ((800, 500), (400, 0)):
        asked.clear()
        (done,) = opened(root, chunk={"size": size}).run()
        assert (done.counts.written, done.counts.failed, len(asked)) == (500, 0, parsed)


def test_a_declared_character_set_is_that_of_files_that_are_not_utf8_and_is_tried_on_what_failed(root: Path) -> None:
    (root / "docs" / "utf8.txt").write_text("Größe")
    (root / "docs" / "old.txt").write_bytes("Größe".encode("cp1252"))
    found = texts(root)
    assert found["utf8.txt"] == "Größe"
    assert found["old.txt"] == "not UTF-8 at byte 2; it may be cp1252 or gb18030: say which with `encoding`"
    assert texts(root, encoding="cp1252") == {"utf8.txt": "Größe", "old.txt": "Größe"}


def test_a_character_set_that_python_does_not_know_is_refused_before_anything_is_done(root: Path) -> None:
    for encoding in ("cp9999", "base64", ""):
        with pytest.raises(ValueError, match="is not a character set that Python knows"):
            opened(root, encoding=encoding)
    with pytest.raises(ValueError, match="is for files only, and this source delivers texts"):
        opened(root, encoding="cp1252", source={"type": "feed"})
