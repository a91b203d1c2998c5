"""The port of document targets. Its contract suite is `src/instep/testing/target.py`.

Two kinds: a *transactional* target stages in tasks and commits once per wave in the driver, with
marks of (slice, fence) in the commit; an *idempotent* one writes in tasks under deterministic ids.
Targets travel to Spark tasks, so they are picklable.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, Self, runtime_checkable

from instep.domain.column_values import Value
from instep.domain.document_columns import MODIFIED, DocumentColumn
from instep.domain.filters import Condition
from instep.domain.waves import Mark
from instep.domain.words import TextQuery
from instep.errors import UserError
from instep.targets.facets import Counted, Facet
from instep.targets.ownership import Ownable

if TYPE_CHECKING:
    import pyarrow as pa

SearchMode = Literal["text", "vector", "hybrid"]

#: Kinds of scores: by words (BM25, or PostgreSQL's own rank), the cosine of two vectors, the sum of 1 / (60 + rank)
#: over several lists, and what a reranker says.
ScoreKind = Literal["bm25", "ts_rank", "cosine", "rrf", "rerank"]

#: The column of the words by which a row is found.
SEARCHED: Final = "_searched"


class FusionWeights(NamedTuple):
    """Weights of the list by words and the list by vectors in a hybrid search."""

    text: float = 1.0
    vector: float = 1.0


EQUAL: Final = FusionWeights()


def column_fields(columns: Sequence[DocumentColumn]) -> list[pa.Field[Any]]:
    import pyarrow as pa

    from instep.arrow.values import column_type

    return [pa.field(each.name, column_type(each.type)) for each in columns]


def row_schema(dimensions: int, columns: Sequence[DocumentColumn] = ()) -> pa.Schema:
    """Columns of a document target: one row per chunk, with the declared `columns` of its document. `_version` is the
    epoch that wrote the row, `modified` when its document was modified, as the source said then. `_searched` has the
    words by which the row is found, as `domain.words` makes them: nothing but white space parts them.
    """
    import pyarrow as pa

    fields: list[pa.Field[Any]] = [
        pa.field("document_id", pa.string(), nullable=False),
        pa.field("document_hash", pa.string(), nullable=False),
        pa.field("source_uri", pa.string(), nullable=False),
        pa.field("source_version", pa.string(), nullable=False),
        pa.field("chunk_id", pa.string(), nullable=False),
        pa.field("chunk_hash", pa.string(), nullable=False),
        pa.field("chunk_index", pa.int32(), nullable=False),
        pa.field("title", pa.string()),
        pa.field("text", pa.string(), nullable=False),
        pa.field("vector", pa.list_(pa.float32(), dimensions), nullable=False),
        pa.field(SEARCHED, pa.string(), nullable=False),
        *column_fields([MODIFIED, *columns]),
        pa.field("_ref", pa.string(), nullable=False),
        pa.field("_instance", pa.string(), nullable=False),
        pa.field("_version", pa.int64(), nullable=False),
    ]
    return pa.schema(fields)


def declared_fields(rows: pa.Schema) -> list[pa.Field[Any]]:
    """The declared columns in a schema that has those of `row_schema`."""
    before = rows.get_field_index(MODIFIED.name)
    if before < 0:
        return []  # Made before documents had columns.
    return [rows.field(at) for at in range(before + 1, rows.get_field_index("_ref"))]


def demand_same(
    physical: str, rows: pa.Schema, dimensions: int, columns: Sequence[DocumentColumn], *, where: str
) -> None:
    """Check that an existing index is as it would be made. Raises `UserError` if not."""
    if SEARCHED not in rows.names:
        what = f"index {physical!r} is of an earlier version, which had no words of its rows"
        raise UserError(what, where=where, hint="Build it again: instep run --full-refresh")
    width = rows.field("vector").type.list_size
    if width != dimensions:
        raise UserError(f"index {physical!r} has {width} dimensions, not {dimensions}", where=where)
    demand_same_columns(physical, [f"{each.name} {each.type}" for each in declared_fields(rows)], columns, where=where)


def demand_same_columns(physical: str, there: Sequence[str], columns: Sequence[DocumentColumn], *, where: str) -> None:
    """The same of columns, each told by its name and Arrow's name of its type."""
    wanted = [f"{each.name} {each.type}" for each in column_fields(columns)]
    if there != wanted:
        said = [", ".join(some) or "none" for some in (there, wanted)]
        raise UserError(
            f"index {physical!r} has other columns than are declared: {said[0]}, not {said[1]}", where=where
        )


def retold_schema(columns: Sequence[DocumentColumn]) -> pa.Schema:
    """The schema of `ChunkChanges.retold`: rows without their vectors, and the locator of the row that each replaces
    (see `existing_schema`).
    """
    import pyarrow as pa

    rows = row_schema(1, columns)
    return pa.schema([*(each for each in rows if each.name != "vector"), pa.field("locator", pa.uint64())])


@cache
def existing_schema() -> pa.Schema:
    """The schema of `ChunkWriter.existing`; `locator` is the target's own way to find the row again."""
    import pyarrow as pa

    columns: list[tuple[str, pa.DataType]] = [
        ("document_id", pa.string()),
        ("chunk_id", pa.string()),
        ("chunk_hash", pa.string()),
        ("chunk_index", pa.int32()),
        ("locator", pa.uint64()),
    ]
    return pa.schema(columns)


#: The most rows of one batch of `DocumentTarget.contents`.
CONTENTS_ROWS = 8_192


@cache
def contents_schema() -> pa.Schema:
    """The schema of `DocumentTarget.contents`: the columns of `row_schema` that tell what is indexed."""
    import pyarrow as pa

    rows = row_schema(1)
    return pa.schema([rows.field(name) for name in rows.names[: rows.names.index("chunk_index") + 1]])


def written_schema(columns: Sequence[DocumentColumn] = ()) -> pa.Schema:
    """The schema of `DocumentTarget.written`: the columns that searches use, and their document."""
    import pyarrow as pa

    texts = [pa.field(name, pa.string()) for name in ("document_id", "chunk_id", "title", "text")]
    return pa.schema([*texts, pa.field("vector", pa.list_(pa.float32())), *column_fields(columns)])


def lacking_columns(physical: str, names: Iterable[str], where: str) -> UserError:
    return UserError(f"index {physical!r} has no column {', '.join(sorted(names))}", where=where)


def _unexpected_refusal(document_id: str, reason: str) -> None:
    raise UserError(f"document {document_id!r}: {reason}")


class ChunkChanges(NamedTuple):
    """Changes of some whole documents: rows (of `row_schema`) to add, and rows (of
    `existing_schema`) to remove. An updated chunk is in both. `removed` are documents of which no row is left: what is
    `stale` of them may also be removed by their ids.

    `refuse` takes a document_id, and why the index did not take the document after all: told before the next changes
    are asked for, it is that document's failure. Nothing stale of it is removed.

    `retold` are rows (of `retold_schema`) of which title, text and vector are there already, each in place of the
    stored row of its locator.
    """

    rows: pa.RecordBatch
    stale: pa.Table
    removed: Sequence[str] = ()
    refuse: Callable[[str, str], None] = _unexpected_refusal
    retold: pa.Table | None = None


def with_vectors(retold: pa.Table, vectors: pa.Array[Any]) -> pa.RecordBatch:
    """Rows of `retold_schema` as rows of `row_schema`, with the vectors that are stored of them."""
    import pyarrow as pa

    names = [name for name in retold.schema.names if name != "locator"]
    place = names.index("text") + 1
    columns: list[Any] = [retold[name].combine_chunks() for name in names]
    fields = [retold.schema.field(name) for name in names]
    columns.insert(place, vectors)
    fields.insert(place, pa.field("vector", vectors.type, nullable=False))
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))


class ChunkWriter(Protocol):
    """A task's way into one physical index. Not shared between threads."""

    def existing(self, document_ids: Sequence[str], removed: Collection[str] = ()) -> pa.Table:
        """Read all rows of these documents (`existing_schema`) as of the base version.

        Of those of these that are `removed` (see `ChunkChanges`) only the number of rows is asked: all but their
        document_id may be empty.
        """

    def stored(self, document_ids: Sequence[str], columns: Sequence[DocumentColumn]) -> pa.Table:
        """Read all rows of these documents as of the base version, with these columns and without vectors
        (`retold_schema`): as `ChunkChanges.retold` they change nothing.
        """

    def unfit(self, rows: pa.Table) -> Mapping[int, str]:
        """Find rows (of `row_schema`, without vectors yet) that the index cannot hold, by their places, with the
        reason. Their documents are failures, and nothing of them is staged.
        """

    def stage(self, changes: Iterator[ChunkChanges]) -> bytes:
        """Consume all changes; returns what the driver needs to commit them (JSON bytes, not pickle)."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A search result. `score` is of the kind that `score_kind` says, and comparable within one answer only; higher is
    better. `columns` are the values of those that were asked for.
    """

    entity: str
    score: float
    document_id: str
    chunk_id: str
    chunk_index: int
    source_uri: str
    title: str | None
    text: str
    score_kind: ScoreKind
    columns: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredRow:
    """The origin of a row: the columns of `row_schema` that tell it. `version` is the epoch that wrote it."""

    document_id: str
    document_hash: str
    source_uri: str
    source_version: str
    chunk_id: str
    chunk_hash: str
    chunk_index: int
    title: str | None
    ref: str
    instance: str
    version: int


#: Columns of `row_schema` by what a `StoredRow` calls them.
ORIGIN: Mapping[str, str] = {
    each.name: f"_{each.name}" if each.name in ("ref", "instance", "version") else each.name
    for each in fields(StoredRow)
}


class IndexTarget(Ownable, Protocol):
    """The base of targets of documents and of tables."""

    @property
    def kind(self) -> Literal["transactional", "idempotent"]:
        """The way it takes writes: several at once, by a commit, or one by one (docs/targets.md)."""

    def check(self) -> None:
        """Check that the place can be written. Raises `UserError` with the reason if not."""

    def exists(self, physical: str) -> bool:
        """Whether there is such a physical index."""

    def fence(self, physical: str, epoch: int, marks: Sequence[Mark] = ()) -> int:
        """Tell the target of a new epoch (and re-claimed slices) *before* anything is read.

        From then on a commit under an older epoch is refused, and so is one whose base is before this and
        that carries an older fence of a marked slice. (Whose base is later asked the ledger later still
        whether the slice was its own.) Of several marks of a slice the highest fence counts. Raises `Fenced`
        if a newer epoch or fence was seen. Returns the version to read at (the wave's base).
        """

    def epoch(self, physical: str) -> int:
        """The newest epoch that the index has seen; 0 if none."""

    def commit(
        self, physical: str, *, base: int, epoch: int, attempt: str, staged: Sequence[bytes], marks: Sequence[Mark]
    ) -> int:
        """Make all staged changes visible at once, with their marks; returns a version that has them:
        the base of the next wave.

        The same `attempt` again changes nothing (a lost reply is no harm). Raises `Fenced` when a
        newer epoch or fence was seen, `Conflict` when rows moved under us (the wave is run again).
        """

    def committed(self, physical: str, since: int, slice_ids: Iterable[str]) -> Mapping[str, bytes]:
        """Outcomes of those slices that some commit after version `since` carries (fence marks aside)."""

    def maintain(self, physical: str, *, full: bool = False) -> None:
        """Bring indexes up to date, compact and drop old versions, as far as it pays; `full`: all of it."""

    def refinable(self, physical: str) -> bool:
        """Whether `refine` would build something: the index is large enough for it to pay, and has not got it."""

    def refine(self, physical: str) -> None:
        """Build what only makes searches quicker and takes long, such as an index of the vectors. Called after
        promotion, so that no reader waits for it.
        """

    def promote(self, alias: str, physical: str | None, epoch: int) -> None:
        """Serve `physical` under `alias` from now on, atomically; None: nothing, as before the first promotion.

        An older epoch never overrides a newer one, however late it comes: it raises `Fenced` when it can
        tell. The same epoch again changes nothing; for another physical index it raises `Conflict`.
        """

    def served(self, alias: str) -> str | None:
        """The physical index behind an alias."""

    def rows(self, physical: str) -> int:
        """Rows that a reader finds now, counted by the target itself."""

    def leftovers(self, alias: str, *, idle_seconds: float) -> list[str]:
        """Physical indexes made for `alias` (named `<alias>__…`, without another `__`) that it does not serve, and to
        which nothing was written for so long.
        """

    def drop(self, physical: str) -> None:
        """Remove the physical index; nothing happens if there is none."""


@runtime_checkable
class Bounded(Protocol):
    """A target that is written by requests whose size and number have bounds."""

    def bounded(self, payload_bytes: int | None, requests: int | None, rows: int | None) -> Self:
        """The same with other bounds: bytes and rows of one request, and requests of one task in flight. None: as it
        is.
        """


@runtime_checkable
class Showing(Protocol):
    """A target that keeps what is served, and has its store lead other readers there: by a view, or an alias of the
    store's own, which other programs may drop.
    """

    def shows(self, alias: str) -> bool:
        """Whether readers of the store find something by this name."""


@runtime_checkable
class Narrow(Protocol):
    """A target of which only its server says how long vectors may be."""

    def demand_dimensions(self, dimensions: int) -> None:
        """Raises `UserError` if it takes none of this length."""


@runtime_checkable
class Heavy(Protocol):
    """A target whose indexes are built in the memory of the process that looks after them."""

    def heavy(self, physical: str) -> bool:
        """Whether this takes so much of it that a process which goes on had better leave it to another."""


class DocumentTarget(IndexTarget, Protocol):
    """An index of chunks: what a target for documents has to do."""

    def create(self, physical: str, dimensions: int, buckets: int, columns: Sequence[DocumentColumn] = ()) -> None:
        """Create the empty physical index; nothing happens if it exists. Raises `UserError` if it has other dimensions
        or columns.

        `buckets` is the number of routes, for targets that lay rows out by `bucket_of(document_id, buckets)`.
        """

    def writer(self, physical: str, base: int) -> ChunkWriter:
        """The writer of chunks into this index, for one job. `base` is the version of the index when it began."""

    def row(self, physical: str, id: str) -> StoredRow | None:
        """The row of this chunk_id, or the first one of this document_id. By an index, however many rows there are."""

    def contents(self, physical: str) -> Iterator[pa.RecordBatch]:
        """Read all rows that a reader finds now (`contents_schema`), in batches of at most `CONTENTS_ROWS`, in no
        order.

        A row that is not changed during the scan is there once, as often as the target really holds it: duplicates too.
        """

    def written(self, physical: str, document_ids: Sequence[str], columns: Sequence[DocumentColumn] = ()) -> pa.Table:
        """Read all rows of these documents that a reader finds now, with texts, titles, vectors and these columns
        (`written_schema`).
        The length of a vector may have changed, which means nothing to a search; one that is zero may be left out.
        Raises `UserError` where these rows have no such column.
        """

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
        """The best rows among those that `where` holds for: the others are out before anything is ranked. `columns`
        are those of which the values come with each hit.
        """

    def facets(self, physical: str, counted: Counted) -> dict[str, Facet]:
        """Count the rows with each value of these columns, exactly; an element of a list counts once for its row."""
