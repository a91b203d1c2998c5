"""`OpenSearchTarget`: the port, method by method; the work is in the modules beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from instep.domain.document_columns import DocumentColumn
from instep.domain.filters import Condition
from instep.domain.waves import Mark
from instep.domain.words import TextQuery
from instep.errors import UserError
from instep.targets.document_target import EQUAL, ChunkWriter, FusionWeights, Hit, SearchMode, StoredRow
from instep.targets.facets import Counted, Facet
from instep.targets.logged_target import LoggedDocuments
from instep.targets.opensearch import layout, searching
from instep.targets.opensearch.layout import coded
from instep.targets.opensearch.server import OpenSearchIndexes
from instep.targets.ownership import checked_name
from instep.targets.ranking import Search

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class OpenSearchTarget(LoggedDocuments, OpenSearchIndexes):
    """Documents."""

    def _make(self, physical: str, dimensions: int, columns: Sequence[DocumentColumn]) -> None:
        self.indexes.create(coded(physical), layout.chunks_index(self.indexes.dialect, dimensions, columns))
        there = self.indexes.mappings(physical) or {}
        drifted = layout.drifted(self.indexes.dialect, there, dimensions, columns)
        if drifted:
            raise UserError(
                f"index {physical!r} is not as it would be made: {'; '.join(drifted)}",
                where=self.indexes.shown,
                hint="Build a new one with: instep rebuild",
            )

    def demand_dimensions(self, dimensions: int) -> None:
        dialect = self.indexes.dialect
        if dimensions > dialect.longest:
            raise UserError(
                f"{dialect.name} takes vectors of at most {dialect.longest:,} dimensions, not {dimensions:,}",
                where=self.indexes.shown,
                hint="Declare fewer (`embed: dimensions`), if the embedder has them, or another target.",
            )

    def _tidy(self, physical: str, full: bool) -> None:
        self.indexes.serve(physical)
        if full:
            self.indexes.expunge(physical)

    def _demand_index(self, physical: str) -> None:
        searching.demanded(self.indexes, physical)

    def writer(self, physical: str, base: int) -> ChunkWriter:
        from instep.targets.opensearch.writing import OpenSearchChunkWriter

        return OpenSearchChunkWriter(self.indexes, checked_name(physical), base, self._pace)

    def commit(
        self, physical: str, *, base: int, epoch: int, attempt: str, staged: Sequence[bytes], marks: Sequence[Mark]
    ) -> int:
        """Commit: from now on searches find the rows."""
        self.indexes.refresh(coded(checked_name(physical)))
        return super().commit(physical, base=base, epoch=epoch, attempt=attempt, staged=staged, marks=marks)

    def refinable(self, physical: str) -> bool:
        """Never: the server makes its graph of vectors as rows come."""
        return False

    def refine(self, physical: str) -> None:
        """Nothing: see `refinable`."""

    def row(self, physical: str, id: str) -> StoredRow | None:
        return searching.row(self.indexes, checked_name(physical), id)

    def contents(self, physical: str) -> Iterator[pa.RecordBatch]:
        return searching.contents(self.indexes, checked_name(physical))

    def written(self, physical: str, document_ids: Sequence[str], columns: Sequence[DocumentColumn] = ()) -> pa.Table:
        return searching.written(self.indexes, checked_name(physical), document_ids, columns)

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
        indexes = self.indexes
        dimensions = self._width(physical, lambda: searching.demanded(indexes, checked_name(physical)))
        return searching.search(
            indexes, physical, Search(entity, text, vector, mode, limit, where, weights, columns), dimensions
        )

    def facets(self, physical: str, counted: Counted) -> dict[str, Facet]:
        return searching.facets(self.indexes, checked_name(physical), counted)
