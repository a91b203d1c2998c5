"""What becomes of a document by what its source answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from instep.domain.manifest import Action, DocumentChange, SourceDocument
from instep.domain.waves import WaveSlice
from instep.pipeline.documents import reading
from instep.pipeline.documents.chunk import DEFAULT_LIMITS, Chunker
from instep.pipeline.documents.parse import FILE_PARSER, Parsed
from instep.pipeline.documents.rows import change_batch
from instep.sources.document_source import Answer, Content, Listing, Unreadable, Vanished


@dataclass(frozen=True)
class Answering:
    """A source that answers this, in order."""

    answers: Sequence[Answer]
    titled: bool = True

    def list(self, progress: object = None) -> Listing:
        raise AssertionError("no listing is expected")

    def contents(self, documents: Iterable[SourceDocument], *, max_bytes: int) -> Iterator[Answer]:
        for _, answer in zip(documents, self.answers, strict=True):
            yield answer


def ends(*answers: Answer, previous_hash: str = "", parse: reading.Parse = FILE_PARSER.parse) -> list[dict[str, Any]]:
    """The end rows of documents that are answered so."""
    return [row for row in rows(*answers, previous_hash=previous_hash, parse=parse) if row["end_of_document"]]


def rows(*answers: Answer, previous_hash: str = "", parse: reading.Parse = FILE_PARSER.parse) -> list[dict[str, Any]]:
    changes = [
        DocumentChange(Action.INSERT, f"doc_{number}", f"file:///{number}.md", 10, "1", 0, previous_hash, "new")
        for number, _ in enumerate(answers)
    ]
    reader = reading.Reader(Answering(answers), Chunker(), DEFAULT_LIMITS, parse=parse)
    batches = reader.rows(iter([change_batch(WaveSlice("s", 1, 0, 1, changes))]))
    return [row for batch in batches for row in batch.to_pylist()]


def content(text: str, title: str | None = None) -> Content:
    return Content(text.encode(), len(text), "2", title, text=title is not None)


def test_an_unreadable_document_fails_and_a_vanished_one_does_not() -> None:
    unreadable, gone, good = ends(Unreadable("input/output error"), Vanished(), content("words"))
    assert (unreadable["failure_stage"], unreadable["failure_reason"]) == ("read", "input/output error")
    assert not unreadable["vanished"]
    assert (gone["failure_stage"], gone["vanished"]) == (None, True)
    assert (good["failure_stage"], good["vanished"], good["source_version"]) == (None, False, "2")


def test_any_exception_of_a_parser_fails_one_document() -> None:
    def parse(data: bytes, uri: str, *, max_line_bytes: int, max_bytes: int) -> Parsed:
        if uri.endswith("/1.md"):
            raise RuntimeError("an unexpected case")
        return FILE_PARSER.parse(data, uri, max_line_bytes=max_line_bytes, max_bytes=max_bytes)

    first, bad, last = ends(*[content("words")] * 3, parse=parse)
    assert (bad["failure_stage"], bad["failure_reason"]) == ("parse", "RuntimeError: an unexpected case")
    assert (first["failure_stage"], last["failure_stage"]) == (None, None)


def test_a_title_that_the_source_says_comes_before_that_of_the_text() -> None:
    said, own, blank = ends(
        content("# Own\n\nwords", "Said"), content("# Own\n\nwords"), content("# Own\n\nwords", " ")
    )
    assert [each["title"] for each in (said, own, blank)] == ["Said", "Own", "Own"]


def test_unchanged_bytes_are_not_chunked_again() -> None:
    same = content("words")
    (end,) = rows(same, previous_hash=same.hash)
    assert (end["end_of_document"], end["unchanged"]) == (True, True)
    chunk, end = rows(content("other words"), previous_hash=same.hash)
    assert (chunk["text"], end["unchanged"]) == ("other words", False)


@dataclass
class Asked:
    """A source that keeps how many documents it was asked for at once."""

    numbers: list[int]

    def list(self, progress: object = None) -> Listing:
        raise AssertionError("no listing is expected")

    def contents(self, documents: Iterable[SourceDocument], *, max_bytes: int) -> Iterator[Answer]:
        wanted = [*documents]
        self.numbers.append(len(wanted))
        yield from [Vanished()] * len(wanted)


@pytest.mark.parametrize(
    ("most", "size", "asked"), [(25, 1 << 30, [30, 20]), (10_000, 1 << 30, [50]), (25, 100, [20, 20, 10])]
)
def test_a_source_is_asked_for_several_slices_together_up_to_a_size(
    monkeypatch: pytest.MonkeyPatch, most: int, size: int, asked: list[int]
) -> None:
    monkeypatch.setattr(reading, "_TOGETHER", most)
    monkeypatch.setattr(reading, "_TOGETHER_BYTES", size)
    changes = [
        DocumentChange(Action.INSERT, f"doc_{number}", f"file:///{number}.md", 5, "1", 0, "", "new")
        for number in range(10)
    ]
    source = Asked([])
    slices = [change_batch(WaveSlice(f"s{number}", 1, 0, 1, changes)) for number in range(5)]
    assert sum(batch.num_rows for batch in reading.Reader(source, Chunker(), DEFAULT_LIMITS).rows(iter(slices))) == 50
    assert source.numbers == asked
