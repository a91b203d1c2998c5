"""Rows that a run would write for documents of a source now, beside those that the target holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import pyarrow as pa

from instep.domain.manifest import DocumentChange
from instep.domain.waves import WaveSlice
from instep.pipeline.documents.diff import chunk_digests
from instep.pipeline.documents.pipeline import DocumentProgram
from instep.pipeline.documents.rows import change_batch
from instep.targets.document_target import ChunkChanges, existing_schema

if TYPE_CHECKING:
    from instep.pipeline.documents.embed.embedder import Texts, Vectors
    from instep.targets.document_target import DocumentTarget


Taken = Callable[[pa.RecordBatch], None]


def given(program: DocumentProgram, changes: Sequence[DocumentChange], take: Taken, *, vectors: bool) -> None:
    """Hand over the rows of these documents (of `row_schema`), a document's together, some thousand at a time.

    Without `vectors` nothing is embedded, and they say nothing. Of a document that cannot be read there are no rows.
    """
    into = cast("DocumentTarget", _Nowhere(take))
    program = replace(program, target=into, base=0)
    if not vectors:
        program = replace(program, embedder=_Unembedded(program.embedder.dimensions), cache=None)
    batch = change_batch(WaveSlice("", 0, 0, len(changes), list(changes)))
    for _ in program.write(program.read(iter([batch]))):
        pass


@dataclass(frozen=True)
class _Nowhere:
    """A target in which nothing is, and in which nothing stays."""

    take: Taken

    def writer(self, physical: str, base: int) -> _Nowhere:
        return self

    def existing(self, document_ids: Sequence[str], removed: Collection[str] = ()) -> pa.Table:
        return existing_schema().empty_table()

    def unfit(self, rows: pa.Table) -> Mapping[int, str]:
        return {}

    def stage(self, changes: Iterator[ChunkChanges]) -> bytes:
        for each in changes:
            if each.rows.num_rows:
                self.take(each.rows)
        return b"{}"


@dataclass(frozen=True)
class _Unembedded:
    """Replaces an embedder where vectors are not needed."""

    dimensions: int

    batch: int = 10_000
    cached: bool = False
    fingerprint: str = ""

    def embed(self, texts: Texts) -> Vectors:
        return np.ones((len(texts), self.dimensions), np.float32)


#: Stores keep vectors with a little less than their precision, and compute their lengths.
_NEAR = 1e-3


class RowDifference(NamedTuple):
    """Counts of the rows of a document that differ in any way; and in texts, titles and vectors."""

    rows: int
    texts: int
    titles: int
    vectors: int


def numbers(rows: pa.RecordBatch) -> dict[str, list[int]]:
    """The numbers of the chunks of each document, as `comparing` has them."""
    columns: Any = rows
    ids, hashes = columns["chunk_id"], columns["chunk_hash"]
    found: dict[str, list[int]] = {}
    made = chunk_digests(ids, hashes).tolist()
    for document, number in zip(rows["document_id"].to_pylist(), made, strict=True):
        found.setdefault(str(document), []).append(number)
    return found


def unlike(given: pa.RecordBatch, held: pa.Table) -> dict[str, RowDifference]:
    """Compare the given rows with the stored ones, and return the documents that differ, by chunks. (That a document
    has more or fewer of them than were indexed is told without looking.)
    """
    there = {each["chunk_id"]: each for each in held.to_pylist()}
    found: dict[str, Counter[str]] = {}
    for row in given.to_pylist():
        other = there.get(row["chunk_id"])
        if other is None or other["document_id"] != row["document_id"]:
            other = dict.fromkeys(row)
        differs = {
            "texts": row["text"] != other["text"],
            "titles": (row["title"] or "") != (other["title"] or ""),
            "vectors": not _near(row["vector"], other["vector"]),
        }
        if any(differs.values()):
            counted = found.setdefault(row["document_id"], Counter(rows=0, texts=0, titles=0, vectors=0))
            counted.update(rows=1, **{name: 1 for name, wrong in differs.items() if wrong})
    return {identity: RowDifference(**counted) for identity, counted in found.items()}


def _near(one: Sequence[float], other: Sequence[float] | None) -> bool:
    """Whether two vectors have nearly the same direction: stores may keep no lengths."""
    first, second = _direction(one), _direction(other or ())
    if not len(second):
        return not first.any()
    return first.shape == second.shape and bool(np.abs(first - second).max(initial=0.0) <= _NEAR)


def _direction(vector: Sequence[float]) -> np.ndarray[Any, np.dtype[np.float64]]:
    found = np.asarray(vector, np.float64)
    length = float(np.linalg.norm(found))
    return found / length if length else found
