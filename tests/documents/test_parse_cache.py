"""Texts that were parsed are kept whole or not at all, whatever happens while they are written."""

from __future__ import annotations

import logging
import os
import resource
import signal
import threading
import time
import zlib
from hashlib import sha256
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from instep.pipeline.documents import parse_cache, parser_process
from instep.pipeline.documents.parse import FILE_PARSER, FileParser
from instep.pipeline.documents.parse_cache import ParseCache
from instep.pipeline.documents.parser_process import IsolatedParser, _Said
from tests.documents.test_parser_process import GOOD, MINUTES, MUCH, a_pdf, failure, isolated, parse

FORK = get_context("fork")


def kept(folder: Path) -> IsolatedParser:
    return IsolatedParser(FILE_PARSER, MINUTES, MUCH, ParseCache(str(folder / "parsed")))


def files_in(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "parsed").rglob("*") if path.is_file())


def never(*_: object) -> _Said:
    raise AssertionError("it was parsed again")


def test_what_was_parsed_is_not_parsed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parser = kept(tmp_path)
    first = parse(parser, GOOD)
    assert [path.stat().st_mode & 0o777 for path in files_in(tmp_path)] == [0o600]
    monkeypatch.setattr(parser_process._Process, "ask", never)
    assert parse(kept(tmp_path), GOOD) == first


@pytest.mark.parametrize("change", ["content", "name", "damage", "empty"])
def test_another_file_or_a_damaged_text_is_parsed(tmp_path: Path, change: str) -> None:
    parser = kept(tmp_path)
    parse(parser, GOOD)
    (there,) = files_in(tmp_path)
    if change in ("damage", "empty"):
        there.write_bytes(zlib.compress(b"\xc1") if change == "damage" else b"")
    data = a_pdf(b"BT /F 12 Tf (other) Tj ET") if change == "content" else GOOD
    found = parse(parser, data, "b.pdf" if change == "name" else "a.pdf")
    assert found.text == parse(isolated(), data).text
    assert len(files_in(tmp_path)) == (1 if change in ("damage", "empty") else 2)


def test_a_failure_is_not_kept(tmp_path: Path) -> None:
    failure(kept(tmp_path), b"%PDF-1.4 nothing")
    assert files_in(tmp_path) == []


def test_a_place_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "parsed").write_text("a file")
    assert parse(kept(tmp_path), GOOD).text


def test_nothing_is_made_on_a_host_without_the_state_of_the_project(tmp_path: Path) -> None:
    assert parse(kept(tmp_path / "elsewhere"), GOOD).text
    assert list(tmp_path.iterdir()) == []


def test_texts_that_were_not_asked_for_in_a_month_are_removed(tmp_path: Path) -> None:
    parse(kept(tmp_path), GOOD)
    (old,) = files_in(tmp_path)
    os.utime(old, (0, time.time() - parse_cache.KEEP - 60))
    parse_cache._tidied.cache_clear()
    parse(kept(tmp_path), GOOD, "b.pdf")
    assert old not in files_in(tmp_path)
    (new,) = files_in(tmp_path)
    two_days_ago = time.time() - 2 * 86_400
    os.utime(new, (0, two_days_ago))
    parse(kept(tmp_path), GOOD, "b.pdf")
    assert new.stat().st_mtime > two_days_ago + 86_400, "it was asked for"


def written(number: int) -> bytes:
    """A text that takes a while to write."""
    return b"".join(sha256(b"%d %d" % (number, part)).digest() for part in range(60_000))


def put_for_ever(folder: str, texts: list[bytes]) -> None:
    cache = ParseCache(folder)
    for number in count():
        place = number % len(texts)
        cache.put("parser", f"{place:064}", texts[place])


def test_a_text_whose_writer_was_killed_is_whole_or_not_there(tmp_path: Path) -> None:
    cache, texts, found = ParseCache(str(tmp_path / "parsed")), [written(number) for number in range(3)], 0
    for turn in range(20):
        writer = FORK.Process(target=put_for_ever, args=(cache.folder, texts))
        writer.start()
        partial = set((tmp_path / "parsed").rglob("*.part"))
        while set((tmp_path / "parsed").rglob("*.part")) <= partial:
            time.sleep(0.001)
        time.sleep(0.01 * turn)
        os.kill(writer.pid or 0, signal.SIGKILL)
        writer.join()
        assert writer.exitcode == -signal.SIGKILL
        for number, text in enumerate(texts):
            there = cache.get("parser", f"{number:064}")
            assert there in (None, text)
            found += there is not None
    assert found, "it has written some"


def test_half_a_text_is_not_there(tmp_path: Path) -> None:
    cache, text = ParseCache(str(tmp_path / "parsed")), written(1)
    cache.put("parser", "a" * 64, text)
    (there,) = files_in(tmp_path)
    whole = there.read_bytes()
    for size in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        there.write_bytes(whole[:size])
        assert cache.get("parser", "a" * 64) is None
        there.write_bytes(whole[:size] + b"\0" * (len(whole) - size))  # What a system that went down may leave.
        assert cache.get("parser", "a" * 64) is None


def test_processes_and_threads_that_write_the_same_leave_it_whole(tmp_path: Path) -> None:
    cache, texts = ParseCache(str(tmp_path / "parsed")), [written(number) for number in range(2)]
    writers = [FORK.Process(target=put_for_ever, args=(cache.folder, texts)) for _ in range(2)]
    for writer in writers:
        writer.start()
    stop = threading.Event()

    def put() -> None:
        while not stop.is_set():
            cache.put("parser", f"{0:064}", texts[0])

    threads = [threading.Thread(target=put) for _ in range(2)]
    for thread in threads:
        thread.start()
    found = 0
    while found < 60:
        for number, text in enumerate(texts):
            there = cache.get("parser", f"{number:064}")
            assert there in (None, text)
            found += there is not None
    stop.set()
    for thread in threads:
        thread.join()
    for writer in writers:
        writer.kill()
        writer.join()


def parse_on_a_full_disk(folder: Path, said: Any) -> None:
    parser = kept(folder)
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    logging.basicConfig(filename=folder / "log", force=True)
    parse(parser, GOOD)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, most))
    for name in ("b.pdf", "c.pdf", "d.pdf"):
        parser.kept.put("parser", name * 10, written(1))  # type: ignore[union-attr]  # it is there
    said.put(parse(parser, GOOD).text)


def test_a_disk_that_is_full_is_said_once_and_leaves_nothing_behind(tmp_path: Path) -> None:
    said = FORK.SimpleQueue()
    process = FORK.Process(target=parse_on_a_full_disk, args=(tmp_path, said))
    process.start()
    assert said.get() == parse(isolated(), GOOD).text
    process.join()
    assert [path.suffix for path in files_in(tmp_path)] == [".z"]
    assert (tmp_path / "log").read_text() == (
        f"WARNING:instep.pipeline.documents.parse_cache:parsed texts are not kept in {tmp_path / 'parsed'}, and are "
        "parsed again when they are needed: File too large\n"
    )


def test_what_another_parser_made_is_not_taken(tmp_path: Path) -> None:
    parse(kept(tmp_path), GOOD)
    other = IsolatedParser(FileParser("cp1251"), MINUTES, MUCH, ParseCache(str(tmp_path / "parsed")))
    assert other.fingerprint != FILE_PARSER.fingerprint
    parse(other, GOOD)
    assert len(files_in(tmp_path)) == 2
