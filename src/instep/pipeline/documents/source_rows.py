"""Rows that a run would write for documents of a source now. Nothing is written."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

import numpy as np
import pyarrow as pa

from instep.domain.manifest import DocumentChange
from instep.domain.waves import WaveSlice
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
