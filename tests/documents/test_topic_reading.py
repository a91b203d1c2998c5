"""Messages that are read in whole columns have the outcome of those that are read one by one."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from instep.domain.manifest import Action, DocumentChange
from instep.domain.waves import WaveSlice
from instep.pipeline.documents.chunk import Chunker, Limits
from instep.pipeline.documents.reading import Reader
from instep.pipeline.documents.row_reading import TopicReader
from instep.pipeline.documents.rows import change_batch
from instep.sources.feed_lines import JsonLines
from instep.sources.kafka import KafkaTopic
from instep.sources.topic import TopicSource
from tests.documents.test_row_reading import KEYS, LIMITS, ODD, TITLES, texts, titles

SOURCE = TopicSource("Ticket", KafkaTopic("nowhere:1", "tickets"), JsonLines(), 1_000)
#: Messages that say no text, and one that is not at hand any more.
BROKEN = ['+{"id": "1"}', '+{"id": "1", "text": 7}', '+{"id": "1", "op": "move", "text": "a"}', "+{", "!not JSON", ""]


def line(text: Any, title: Any) -> str:
    return "+" + json.dumps({"id": "1", "text": text, "title": title})


def changes(locators: list[str], hashes: list[str]) -> pa.RecordBatch:
    found = [
        DocumentChange(
            Action.INSERT,
            f"doc_{at}",
            f"feed://Ticket/{KEYS[at] if at < len(KEYS) else at}",
            max(1, len(locator) - 1),
            f"tickets/0/{at}",
            at % 3,
            hashed,
            "new",
            locator,
        )
        for at, (locator, hashed) in enumerate(zip(locators, hashes, strict=True))
    ]
    return change_batch(WaveSlice("s", 1, 0, 1, found))


def told(batches: Any) -> list[Any]:
    rows = [row for batch in batches for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: (row["document_id"], row["end_of_document"], row["chunk_index"] or 0))


@given(
    said=st.lists(st.one_of(st.builds(line, texts, titles), st.sampled_from(BROKEN)), min_size=1, max_size=12),
    limits=st.sampled_from(LIMITS),
    known=st.booleans(),
)
@example(said=[line(each, "T") for each in ODD], limits=LIMITS[0], known=True)
@example(said=[line("a", each) for each in TITLES], limits=LIMITS[0], known=False)
@example(said=[line("a" * 10, "T") for _ in range(3)], limits=Limits(max_document_bytes=21), known=False)
@example(said=BROKEN, limits=LIMITS[0], known=False)
def test_messages_in_columns_are_as_messages_one_by_one(said: list[str], limits: Limits, known: bool) -> None:
    reader = Reader(SOURCE, Chunker(20), limits)
    hashes = [""] * len(said)
    if known:  # Each other one is as it is indexed.
        before = told(reader.rows(iter([changes(said, hashes)])))
        of = {row["document_id"]: row["document_hash"] for row in before if row["end_of_document"]}
        hashes = [of[f"doc_{at}"] or "" if at % 2 else "" for at in range(len(said))]
    asked = changes(said, hashes)
    assert told(TopicReader(reader, SOURCE).rows(iter([asked]))) == told(reader.rows(iter([asked])))


def test_a_message_whose_text_is_one_chunk_is_not_read_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = TopicReader(Reader(SOURCE, Chunker(20), Limits()), SOURCE)
    monkeypatch.setattr(TopicSource, "contents", None)
    (row, end) = told(reader.rows(iter([changes([line("a" * 20, None)], [""])])))
    assert (row["text"], end["end_of_document"]) == ("a" * 20, True)
