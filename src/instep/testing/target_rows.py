"""Shared by the parts of the targets' contract: documents, and how they get into an index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest

from instep.domain.identity import content_hash
from instep.domain.waves import Mark
from instep.domain.words import SEARCHED_BY_DEFAULT, Searched
from instep.pipeline.documents.words import searched_column
from instep.targets.document_target import SEARCHED, ChunkChanges, DocumentTarget, existing_schema, row_schema

DIMENSIONS = 4
BUCKETS = 4

#: (document, chunk text) of every row, as often as it is there.
Content = Counter[tuple[str, str]]

#: Documents by id, each the texts of its chunks.
Documents = Mapping[str, Sequence[str]]


def vector_of(text: str) -> list[float]:
    """Some direction that depends on the text."""
    digest = bytes.fromhex(content_hash(text.encode()))
    return [byte / 255 + 0.01 for byte in digest[:DIMENSIONS]]


#: Titles of documents that have another than their chunks would have: none of the first, and the id of others.
Titles = Mapping[str, str | None]


def rows_of(documents: Documents, *, epoch: int = 1, titles: Titles | None = None) -> pa.RecordBatch:
    rows = [
        {
            "document_id": document,
            "document_hash": content_hash("|".join(texts).encode()),
            "source_uri": f"file:///{document}",
            "source_version": "1",
            "chunk_id": content_hash(f"{document}|{index}".encode()),
            "chunk_hash": content_hash(text.encode()),
            "chunk_index": index,
            "title": (titles or {}).get(document, document if index else None),
            "text": text,
            "vector": vector_of(text),
            "_ref": "Document@global",
            "_instance": "i",
            "_version": epoch,
        }
        for document, texts in documents.items()
        for index, text in enumerate(texts)
    ]
    return with_words(rows, row_schema(DIMENSIONS))


def with_words(
    rows: Sequence[Mapping[str, Any]], schema: pa.Schema, searched: Searched = SEARCHED_BY_DEFAULT
) -> pa.RecordBatch:
    """Rows with what is searched of them."""
    made = pa.RecordBatch.from_pylist([{SEARCHED: "", **each} for each in rows], schema=schema)
    return made.set_column(schema.get_field_index(SEARCHED), schema.field(SEARCHED), searched_column(made, searched))


def expected(documents: Documents) -> Content:
    return Counter((document, text) for document, texts in documents.items() for text in texts)


NOTHING = existing_schema().empty_table()


def changes_of(documents: Documents, stale: pa.Table, *, epoch: int = 1, titles: Titles | None = None) -> ChunkChanges:
    """These documents in place of what is stale of them."""
    return ChunkChanges(
        rows_of(documents, epoch=epoch, titles=titles), stale, [name for name, texts in documents.items() if not texts]
    )


def replaced(
    target: DocumentTarget,
    physical: str,
    base: int,
    documents: Documents,
    *,
    epoch: int = 1,
    titles: Titles | None = None,
) -> bytes:
    """Stage these documents in place of whatever is there of them (no texts: delete)."""
    writer = target.writer(physical, base)
    stale = writer.existing(list(documents))
    return writer.stage(iter([changes_of(documents, stale, epoch=epoch, titles=titles)]))


def put(
    target: DocumentTarget,
    physical: str,
    documents: Documents,
    *,
    epoch: int,
    attempt: str,
    marks: Sequence[Mark] = (),
    titles: Titles | None = None,
) -> int:
    """Fence, replace, commit; returns the base."""
    base = target.fence(physical, epoch, marks)
    staged = replaced(target, physical, base, documents, epoch=epoch, titles=titles)
    target.commit(physical, base=base, epoch=epoch, attempt=attempt, staged=[staged], marks=marks)
    return base


def commit_slices(target: DocumentTarget, physical: str, base: int, worker: int, rounds: int) -> None:
    """Write as one of several concurrent processes."""
    for number in range(rounds):
        name = f"w{worker}-{number}"
        documents = {f"doc-{name}": [f"text {name}"], f"shared-{worker}": [f"round {number}"]}
        base = target.fence(physical, 1)
        staged = replaced(target, physical, base, documents)
        mark = Mark(name, 1, name.encode())
        target.commit(physical, base=base, epoch=1, attempt=name, staged=[staged], marks=[mark])


class OnOneIndex:
    """A part of the contract; see `instep.testing.target.TargetContract`."""

    physical = "Document__1"

    def content(self, target: DocumentTarget, physical: str) -> Content:
        raise NotImplementedError

    def if_idempotent(self, target: DocumentTarget, *contents: Content) -> Sequence[Content]:
        """Contents that may be seen too where rows are visible as soon as they are staged, and nowhere else."""
        return contents if target.kind == "idempotent" else []

    @pytest.fixture
    def index(self, target: DocumentTarget) -> str:
        target.create(self.physical, DIMENSIONS, BUCKETS)
        return self.physical
