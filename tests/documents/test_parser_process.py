"""Documents that bring their parser down, keep it busy, or need too much memory fail, and their neighbours do not."""

from __future__ import annotations

import gzip
import os
import pickle
import shutil
import signal
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path

import psutil
import pytest

from instep.errors import Transient, UserError
from instep.pipeline.documents import parser_process
from instep.pipeline.documents.formats import FormatParser
from instep.pipeline.documents.parse import FILE_PARSER, Parsed, ParseFailure
from instep.pipeline.documents.parser_process import IsolatedParser

SAMPLES = Path(__file__).parent / "samples"
GOOD = (SAMPLES / "a.pdf").read_bytes()
MINUTES, MUCH, MOST = 600_000, 4_000_000_000, 1_000_000_000


def isolated(time_limit: int = MINUTES, memory: int = MUCH) -> IsolatedParser:
    made: IsolatedParser = pickle.loads(pickle.dumps(IsolatedParser(FILE_PARSER, time_limit, memory)))
    return made


def parse(parser: IsolatedParser | FormatParser, data: bytes, name: str = "a.pdf") -> Parsed:
    return parser.parse(data, f"file:///docs/{name}", max_line_bytes=MOST, max_bytes=MOST)


def failure(parser: IsolatedParser, data: bytes) -> ParseFailure:
    with pytest.raises(ParseFailure) as caught:
        parse(parser, data)
    return caught.value


def a_pdf(content: bytes) -> bytes:
    """One page that draws this."""
    packed = zlib.compress(content)
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /Contents 4 0 R /Resources << /Font << /F 5 0 R >> >> >>",
        b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(packed), packed),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    out, places = b"%PDF-1.4\n", []
    for number, each in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, each)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    start = len(out)
    out += b"xref\n0 6\n0000000000 65535 f \n%s" % table
    return out + b"trailer << /Size 6 /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % start


def slow(lines: int = 300_000) -> bytes:
    """A PDF that keeps pypdf busy for many seconds."""
    return a_pdf(b"BT /F 12 Tf 10 10 Td " + b"(word) Tj 0 -14 Td " * lines + b"ET")


def children() -> list[psutil.Process]:
    return [each for each in psutil.Process().children() if parser_process.__name__ in " ".join(each.cmdline())]


def test_a_pdf_is_parsed_as_in_this_process() -> None:
    here, apart = parse(FILE_PARSER, GOOD), parse(isolated(), GOOD)  # type: ignore[arg-type]  # has the same method
    assert (apart.kind, apart.title, apart.text, list(apart.pages)) == (
        here.kind,
        here.title,
        here.text,
        list(here.pages),
    )
    assert apart.text
    assert isolated().fingerprint == FILE_PARSER.fingerprint


def test_texts_need_no_other_process() -> None:
    before = len(children())
    assert parse(isolated(), b"# Tides\n\nEbb and flood.", "a.md").title == "Tides"
    assert len(children()) == before


@pytest.mark.parametrize("name", ["a.html", "a.html.gz"])
def test_a_page_whose_tags_are_deep_in_each_other_fails_in_time(name: str) -> None:
    """The parser's time grows with the square of their depth."""
    page = b"<div>" * 100_000 + b"deep"
    began = time.monotonic()
    with pytest.raises(ParseFailure) as caught:
        parse(isolated(time_limit=300), gzip.compress(page) if name.endswith(".gz") else page, name)
    assert caught.value.reason == "takes longer than 300ms to parse (parse_time)"
    assert time.monotonic() - began < 60, "it was not parsed to the end"


def test_a_page_that_needs_too_much_memory_fails_and_the_next_one_is_parsed() -> None:
    parser = isolated(memory=60_000_000)
    page = b"<table>" + b"<tr><td>word here<td>7.12345" * 100_000
    with pytest.raises(ParseFailure) as caught:
        parse(parser, page, "a.html")
    assert caught.value.reason == "needs more than 60,000,000 bytes to parse (parse_memory)"
    assert parse(parser, b"<p>small" + b"<b>" * 21_000, "a.html").text == "small"


def test_a_broken_pdf_fails_for_the_same_reason() -> None:
    found = failure(isolated(), b"%PDF-1.4 nothing")
    assert (found.stage, found.reason) == ("parse", "truncated PDF: its end mark is missing")


def test_a_pdf_that_takes_too_long_fails_and_the_next_one_is_parsed() -> None:
    parser, began = isolated(time_limit=300), time.monotonic()
    assert failure(parser, slow()).reason == "takes longer than 300ms to parse (parse_time)"
    assert time.monotonic() - began < 30, "it was not parsed to the end"
    assert parse(isolated(), GOOD).text


def test_a_parser_that_hangs_without_working_is_ended_and_the_next_file_is_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pypdf").mkdir()
    (tmp_path / "pypdf" / "__init__.py").write_text("import time\n\n\ndef PdfReader(file):\n    time.sleep(3_600)\n")
    (tmp_path / "pypdf" / "errors.py").write_text("class DependencyError(Exception):\n    pass\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    parser, before = isolated(time_limit=200), len(children())
    assert failure(parser, GOOD).reason == "takes longer than 200ms to parse (parse_time)"
    assert len(children()) <= before, "nothing is left of it"
    monkeypatch.undo()
    assert parse(parser, GOOD).text


def test_a_pdf_that_needs_too_much_memory_fails_and_the_next_one_is_parsed() -> None:
    parser = isolated(memory=30_000_000)
    assert failure(parser, slow(2_000_000)).reason == "needs more than 30,000,000 bytes to parse (parse_memory)"
    assert parse(parser, GOOD).text


def test_a_pdf_whose_parser_crashes_fails_and_the_next_one_is_parsed() -> None:
    parser, found = isolated(), []
    parse(parser, GOOD)
    (child,) = [each for each in children() if each.status() != psutil.STATUS_ZOMBIE][-1:]

    def crash() -> None:
        before = sum(child.cpu_times()[:2])
        while sum(child.cpu_times()[:2]) < before + 0.2:  # It is at work.
            time.sleep(0.01)
        child.send_signal(signal.SIGSEGV)

    thread = threading.Thread(target=crash)
    thread.start()
    found.append(failure(parser, slow()).reason)
    thread.join()
    assert found == ["its parser ended by SIGSEGV: the file is broken, or needs too much memory"]
    assert parse(parser, GOOD).text


def test_a_process_that_cannot_start_is_no_fault_of_the_document(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(UserError, match="the process that parses documents ended: exit code 1"):
        parse(isolated(time_limit=MINUTES + 1), GOOD)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(Transient, match="the process that parses documents cannot start: No such file"):
        parse(isolated(time_limit=MINUTES + 2), GOOD)


def test_the_other_process_ends_when_this_one_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time\n"
        "from instep.pipeline.documents.parse import FILE_PARSER\n"
        "from instep.pipeline.documents.parser_process import IsolatedParser, _process_of\n"
        f"parser = IsolatedParser(FILE_PARSER, {MINUTES}, {MUCH})\n"
        f"data = open({str(SAMPLES / 'a.pdf')!r}, 'rb').read()\n"
        "parser.parse(data, 'file:///a.pdf', max_line_bytes=10**6, max_bytes=10**9)\n"
        "print(_process_of(parser)._process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        child = psutil.Process(int(process.stdout.readline()))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    psutil.wait_procs([child], timeout=30)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
