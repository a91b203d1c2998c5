"""The pipeline of a wave of documents: changes → chunk rows → rows staged in the target. Knows no engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from instep.domain.document_columns import DeclaredColumn
from instep.domain.words import SEARCHED_BY_DEFAULT, Searched
from instep.pipeline.documents.chunk import DEFAULT_LIMITS, Chunker, Limits
from instep.pipeline.documents.embed.embedder import Embedder, PaidEmbedder
from instep.pipeline.documents.parse import FILE_PARSER, Parser

if TYPE_CHECKING:
    import pyarrow as pa

    from instep.pipeline.documents.embed.meter import Meter
    from instep.pipeline.documents.reading import Reader
    from instep.pipeline.documents.vectors import EmbeddingCache
    from instep.sources.document_source import DocumentSource
    from instep.targets.document_target import DocumentTarget


@dataclass(frozen=True)
class DocumentProgram:
    """Implements `pipeline.engine.engine.WaveProgram` for documents; everything in it is picklable.

    `version` is the epoch that goes into each row. `transform` is the user's function (DataFrame →
    DataFrame) that Spark puts between `read` and `write`; tasks are only told that there is one
    (`transformed`). No `cache` folder: nothing is cached. `readers`: the
    column that says who may find a document. `compressed`: outcomes of tasks are.
    """

    source: DocumentSource
    chunker: Chunker
    embedder: Embedder
    target: DocumentTarget
    physical: str
    base: int
    ref: str
    instance: str
    version: int
    limits: Limits = DEFAULT_LIMITS
    columns: Sequence[DeclaredColumn] = ()
    readers: DeclaredColumn | None = None
    searched: Searched = SEARCHED_BY_DEFAULT
    cache: str | None = None
    parser: Parser = FILE_PARSER
    transform: Callable[[Any], Any] | None = None
    transformed: bool = False
    compressed: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "transformed", self.transformed or self.transform is not None)

    def __getstate__(self) -> dict[str, Any]:
        """The function runs in the driver; its module may not be there in the tasks."""
        return {**self.__dict__, "transform": None}

    def read(self, changes: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches of `CHANGE_SCHEMA` → batches of `CHUNK_SCHEMA`, in the same order."""
        return self.reader.rows(changes)

    @property
    def reader(self) -> Reader:
        from instep.pipeline.documents.columns import ColumnReader
        from instep.pipeline.documents.reading import Reader

        columns = ColumnReader(self.columns, self.readers is not None)
        as_recorded = self.target.kind == "transactional"
        return Reader(self.source, self.chunker, self.limits, columns, self.parser.parse, as_recorded)

    def metered(self, meter: Meter) -> DocumentProgram:
        """A copy whose embedder counts on this meter what it is billed for, if it is."""
        if not isinstance(self.embedder, PaidEmbedder):
            return self
        return replace(self, embedder=self.embedder.metered(meter))

    @property
    def once(self) -> bool:
        """Whether its tasks must not be tried again by Spark."""
        return isinstance(self.embedder, PaidEmbedder) and self.embedder.meter.limited

    def own_functions(self) -> list[Any]:
        """Functions of the project that its tasks call."""
        made = (getattr(each, "own", None) for each in self._parts)
        return [each.function for each in made if each is not None]

    @property
    def _parts(self) -> tuple[object, ...]:
        return self.source, self.parser, self.chunker, self.embedder

    def chunk_schema(self) -> pa.Schema:
        """The columns of chunk rows, before a transform."""
        from instep.pipeline.documents.columns import ColumnReader
        from instep.pipeline.documents.rows import chunk_schema

        return chunk_schema(ColumnReader(self.columns).fields, context=self.chunker.context)

    def write(self, chunks: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Batches of `CHUNK_SCHEMA` → one row of `OUTCOME_SCHEMA`, when all is staged."""
        from instep.pipeline.documents.vectors import Vectoriser
        from instep.pipeline.documents.writing import Stamp, Writer

        writer = Writer(
            self.target.writer(self.physical, self.base),
            Vectoriser(self.embedder, self.kept()),
            Stamp(self.ref, self.instance, self.version),
            transformed=self.transformed,
            columns=self.columns,
            readers=self.readers,
            searched=self.searched,
            compressed=self.compressed,
        )
        yield writer.outcome(chunks)

    def kept(self) -> EmbeddingCache | None:
        """The vectors that are kept, if any are."""
        if self.cache is None or not self.embedder.cached:
            return None
        from instep.pipeline.documents.vectors import EmbeddingCache

        return EmbeddingCache(self.cache, self.embedder.fingerprint, self.embedder.dimensions)
