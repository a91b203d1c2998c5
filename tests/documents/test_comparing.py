"""What a target holds of each document, against a model made of dictionaries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from instep.domain.discrepancies import Held
from instep.domain.manifest import ManifestEntry
from instep.pipeline.documents.comparison import HELD, compare, held_rows
from instep.pipeline.documents.diff import chunk_digests, document_digests
from instep.targets.document_target import contents_schema

#: Document, chunk, text.
Row = tuple[str, str, str]

DOCUMENTS = [f"doc_{name}" for name in ("a", "b", "cé", "d", "e", "longer than any that is recorded")]
rows = st.lists(st.tuples(st.sampled_from(DOCUMENTS), st.sampled_from("123"), st.sampled_from("xy")), max_size=20)


def batches(found: list[Row], size: int) -> Iterator[pa.RecordBatch]:
    for at in range(0, len(found), size):
        whole = [
            {
                "document_id": document,
                "document_hash": "",
                "source_uri": f"file:///{document}",
                "source_version": "",
                "chunk_id": chunk,
                "chunk_hash": text,
                "chunk_index": 0,
            }
            for document, chunk, text in found[at : at + size]
        ]
        yield pa.RecordBatch.from_pylist(whole, schema=contents_schema())


def digest(chunks: dict[str, str]) -> int:
    numbers = chunk_digests(pa.array(list(chunks), pa.string()), pa.array(list(chunks.values()), pa.string()))
    return int(document_digests(numbers, np.zeros(len(chunks), np.int64), 1)[0])


def columns(recorded: dict[str, ManifestEntry]) -> pa.Table:
    """In any order: a ledger gives them in that of its collation."""
    entries = list(recorded.values())
    kinds: dict[str, Any] = {"document_id": pa.string(), "chunks": pa.int64(), "digest": pa.int64()}
    return pa.table({name: pa.array([getattr(each, name) for each in entries], kind) for name, kind in kinds.items()})


def grouped(found: list[Row]) -> dict[str, list[tuple[str, str]]]:
    by_document = defaultdict[str, list[tuple[str, str]]](list)
    for document, chunk, text in found:
        by_document[document].append((chunk, text))
    return by_document


@example(indexed=[("doc_a", "1", "x")], stored=[("doc_a", "1", "y")], same=False, size=1, known=True)
@given(indexed=rows, stored=rows, same=st.booleans(), size=st.integers(1, 7), known=st.booleans())
def test_differing_documents_are_found_with_their_stored_rows(
    indexed: list[Row], stored: list[Row], same: bool, size: int, known: bool
) -> None:
    recorded = {
        document: ManifestEntry(document, "", 0, "", "", len(dict(chunks)), 0, digest(dict(chunks)) if known else None)
        for document, chunks in grouped(indexed).items()
        if document in DOCUMENTS[:4]
    }
    if same:  # Nearly: all that is recorded, and a little of what is not.
        kept = [(name, *chunk) for name, chunks in grouped(indexed).items() for chunk in dict(chunks).items()]
        stored = kept + stored[:2]
    there = grouped(stored)
    rows_there = pa.Table.from_batches([held_rows(each) for each in batches(stored, size)], HELD)
    found = compare(rows_there, columns(recorded))
    assert found.rows == len(stored)
    for document in {*recorded, *there}:
        chunks = there.get(document, [])
        entry = recorded.get(document)
        whole = entry is not None and len(chunks) == entry.chunks and entry.digest in (None, digest(dict(chunks)))
        assert (document not in found.held) == whole
        if document in found.held:
            held = found.held[document]
            assert held[:2] == (len(chunks), len(dict(chunks)))
            # Of a chunk that is there with two texts, either may be looked at.
            if len(dict(chunks)) == len(set(chunks)):
                assert held == Held(len(chunks), len(dict(chunks)), digest(dict(chunks)))
    assert found.uris == {each: f"file:///{each}" for each in there if each not in recorded}
