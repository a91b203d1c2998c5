"""`PostgresDocuments`: the port for documents, method by method; the work is in the modules beside it.

They are imported on first use: they bring the driver and Arrow, which a run that finds nothing to do can spare.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from instep.domain.waves import Mark
from instep.targets.document_target import ChunkWriter, Hit, SearchMode, StoredRow
from instep.targets.postgres.aliased import AliasedIndexes
from instep.targets.ranking import Search

if TYPE_CHECKING:
    import pyarrow as pa

    from instep.postgres.connection import Session
    from instep.targets.postgres.chunks import DocumentIndex


@dataclass(frozen=True)
class PostgresDocuments(AliasedIndexes):
    """Chunks of documents, with pgvector."""

    def check(self) -> None:
        from instep.targets.postgres import pgvector, registry
        from instep.targets.postgres.registry import checked

        with checked(self.place) as session, session.transaction():
            registry.lock(session)
            pgvector.make(session)

    def create(self, physical: str, dimensions: int, buckets: int) -> None:
        """Create an index. All buckets lie in one table: nothing is looked for by them."""
        from instep.targets.postgres import chunks, registry
        from instep.targets.postgres.registry import fitting

        fitting(physical)
        with self.place.session() as session:
            registry.prepare(session)
            chunks.create(session, physical, dimensions, self.owner.id, self.demand)

    def exists(self, physical: str) -> bool:
        from instep.targets.postgres import chunks
        from instep.targets.postgres.registry import fitting

        fitting(physical)
        with self.place.session() as session:
            return chunks.exists(session, physical)

    def fence(self, physical: str, epoch: int, marks: Sequence[Mark] = ()) -> int:
        from instep.targets.postgres.journal import Journal

        with self._index(physical) as (session, index):
            return Journal(session, index).fence("", epoch, marks, partial(self.taken, physical))

    def epoch(self, physical: str) -> int:
        from instep.targets.postgres.journal import Journal

        with self._index(physical) as (session, index):
            return Journal(session, index).epoch("")

    def writer(self, physical: str, base: int) -> ChunkWriter:
        from instep.targets.postgres import chunk_writing

        with self._index(physical) as (_, index):
            return chunk_writing.PostgresChunkWriter(self.place, index, base)

    def commit(
        self, physical: str, *, base: int, epoch: int, attempt: str, staged: Sequence[bytes], marks: Sequence[Mark]
    ) -> int:
        from instep.targets.postgres import chunk_writing, journal

        with self._index(physical) as (session, index):
            return journal.commit(
                session,
                index,
                lambda: chunk_writing.move(session, index, staged, attempt, base=base),
                base=base,
                epoch=epoch,
                attempt=attempt,
                marks=marks,
            )

    def committed(self, physical: str, since: int, slice_ids: Iterable[str]) -> Mapping[str, bytes]:
        from instep.targets.postgres.journal import Journal

        with self._index(physical) as (session, index):
            return Journal(session, index).committed(since, slice_ids)

    def maintain(self, physical: str, *, full: bool = False) -> None:
        from instep.targets.postgres import chunks, staging
        from instep.targets.postgres.journal import Journal

        self.demand(physical)
        with self._index(physical) as (session, index):
            staging.sweep(session, self.keep_seconds)
            Journal(session, index).forget(self.keep_seconds)
            chunks.maintain(session, index, full=full)

    def refine(self, physical: str, begin: Callable[[], None]) -> None:
        from instep.targets.postgres import chunks

        self.demand(physical)
        with self._index(physical) as (session, index):
            chunks.refine(session, index, begin)

    def promote(self, alias: str, physical: str | None, epoch: int) -> None:
        from instep.targets.postgres import chunks, serving
        from instep.targets.postgres.registry import fitting

        fitting(alias)
        if physical is not None:
            self.demand(physical)
        with self.place.session() as session:
            views = []
            if physical is not None:
                views.append(chunks.view(session, chunks.known(session, fitting(physical))))
            serving.promote(session, alias, physical, views, partial(self.taken, alias), epoch=epoch)

    def rows(self, physical: str) -> int:
        from instep.targets.postgres import searching

        with self._index(physical) as (session, index):
            return searching.count(session, index)

    def row(self, physical: str, id: str) -> StoredRow | None:
        from instep.targets.postgres import searching

        with self._index(physical) as (session, index):
            return searching.row(session, index, id)

    def written(self, physical: str, document_ids: Sequence[str]) -> pa.Table:
        from instep.targets.postgres import searching

        with self._index(physical) as (session, index):
            return searching.written(session, index, document_ids)

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

    def drop(self, physical: str) -> None:
        from instep.targets.postgres import chunks, registry, staging
        from instep.targets.postgres.registry import fitting

        self.demand(fitting(physical))
        with self.place.session() as session:
            index = chunks.find(session, physical)
            if index is not None:
                staging.remove(session, staging.of_index(session, index.id))
                registry.drop(session, index.id, [index.name])

    def search(
        self, physical: str, *, entity: str, text: str, vector: Sequence[float] | None, mode: SearchMode, limit: int
    ) -> list[Hit]:
        from instep.targets.postgres import searching

        with self._index(physical) as (session, index):
            return searching.search(session, index, Search(entity, text, vector, mode, limit))

    @contextlib.contextmanager
    def _index(self, physical: str) -> Iterator[tuple[Session, DocumentIndex]]:
        from instep.targets.postgres import chunks
        from instep.targets.postgres.registry import fitting

        fitting(physical)
        with self.place.session() as session:
            yield session, chunks.known(session, physical)
