"""`PostgresDocuments`: the port for documents, method by method; the work is in the modules beside it.

They are imported on first use: they bring the driver and Arrow, which a run that finds nothing to do can spare.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from instep.domain.document_columns import DocumentColumn
from instep.domain.filters import Condition
from instep.domain.words import TextQuery
from instep.targets.document_target import EQUAL, ChunkWriter, FusionWeights, Hit, SearchMode, StoredRow
from instep.targets.facets import Counted, Facet
from instep.targets.postgres.indexes import PostgresIndexes
from instep.targets.ranking import Search

if TYPE_CHECKING:
    import pyarrow as pa

    from instep.postgres.connection import Session
    from instep.targets.postgres.aliases import View
    from instep.targets.postgres.chunks import DocumentIndex
    from instep.targets.postgres.registry import Record


@dataclass(frozen=True)
class PostgresDocuments(PostgresIndexes["DocumentIndex"]):
    """Chunks of documents, with pgvector."""

    def check(self) -> None:
        from instep.targets.postgres import pgvector, registry
        from instep.targets.postgres.registry import checked

        with checked(self.place) as session, session.transaction():
            registry.lock(session)
            pgvector.make(session)

    def create(self, physical: str, dimensions: int, buckets: int, columns: Sequence[DocumentColumn] = ()) -> None:
        """Create an index. All buckets lie in one table: nothing is looked for by them."""
        from instep.targets.postgres import chunks, registry
        from instep.targets.postgres.chunks import Rows
        from instep.targets.postgres.registry import fitting

        fitting(physical)
        with self.place.session() as session:
            registry.prepare(session)
            chunks.create(session, physical, Rows(dimensions, tuple(columns)), self.owner.id, self.demand)

    def exists(self, physical: str) -> bool:
        from instep.targets.postgres import chunks
        from instep.targets.postgres.registry import fitting

        fitting(physical)
        with self.place.session() as session:
            return chunks.exists(session, physical)

    def writer(self, physical: str, base: int) -> ChunkWriter:
        from instep.targets.postgres import chunk_writing

        with self._index(physical) as (_, index):
            return chunk_writing.PostgresChunkWriter(self.place, index, base)

    def refinable(self, physical: str) -> bool:
        from instep.targets.postgres import chunks

        with self._index(physical) as (session, index):
            return chunks.refinable(session, index)

    def refine(self, physical: str) -> None:
        from instep.targets.postgres import chunks

        self.demand(physical)
        with self._index(physical) as (session, index):
            chunks.refine(session, index)

    def rows(self, physical: str) -> int:
        from instep.targets.postgres import searching

        with self._index(physical) as (session, index):
            return searching.count(session, index)

    def row(self, physical: str, id: str) -> StoredRow | None:
        from instep.targets.postgres import searching

        with self._index(physical) as (session, index):
            return searching.row(session, index, id)

    def written(self, physical: str, document_ids: Sequence[str], columns: Sequence[DocumentColumn] = ()) -> pa.Table:
        from instep.targets.postgres import searching

        with self._index(physical) as (session, index):
            return searching.written(session, index, document_ids, columns)

    def contents(self, physical: str) -> Iterator[pa.RecordBatch]:
        """Portion by portion: no connection waits, and no transaction stays open, while one is looked at."""
        from instep.targets.postgres import searching

        last = 0
        while True:
            with self._index(physical) as (session, index):
                found = searching.portion(session, index, after=last)
            if found is None:
                return
            last, batch = found
            yield batch

    def search(
        self,
        physical: str,
        *,
        entity: str,
        text: TextQuery,
        vector: Sequence[float] | None,
        mode: SearchMode,
        limit: int,
        where: Condition | None = None,
        weights: FusionWeights = EQUAL,
        columns: Sequence[DocumentColumn] = (),
    ) -> list[Hit]:
        from instep.postgres.connection import Missing
        from instep.targets.postgres import registry, searching

        asked = Search(entity, text, vector, mode, limit, where, weights, columns)
        registry.fitting(physical)
        with self.place.session() as session:
            # What is served stays what it is: so it is looked up once for each connection.
            known = session.memory.get((self.schema, physical))
            if known is None:
                known = self._index_of(session, physical, registry.known(session, physical))
                session.memory[self.schema, physical] = known
            try:
                return searching.search(session, known, asked)
            except Missing:
                registry.known(session, physical)
                raise

    def facets(self, physical: str, counted: Counted) -> dict[str, Facet]:
        from instep.targets.postgres import searching

        with self._index(physical) as (session, index):
            return searching.facets(session, index, counted)

    def _index_of(self, session: Session, physical: str, record: Record) -> DocumentIndex:
        from instep.targets.postgres import chunks

        return chunks.index_of(session, physical, record)

    def _views(self, session: Session, index: DocumentIndex) -> list[View]:
        from instep.targets.postgres import chunks

        return [chunks.view(session, index)]

    def _move(
        self, session: Session, index: DocumentIndex, staged: Sequence[bytes], *, attempt: str, base: int
    ) -> list[str]:
        from instep.targets.postgres import chunk_writing

        return chunk_writing.move(session, index, staged, attempt, base=base)

    def _tend(self, session: Session, index: DocumentIndex, *, full: bool) -> None:
        from instep.targets.postgres import chunks

        chunks.maintain(session, index, full=full)
