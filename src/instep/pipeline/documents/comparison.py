"""Compare a target's rows with the recorded documents, or with the rows that a run would write now.

Recorded documents are compared some at a time, with all rows that there are of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from instep.document_state.difference import places
from instep.domain.discrepancies import Held
from instep.domain.manifest import DocumentChange
from instep.domain.waves import WaveSlice
from instep.pipeline.documents.diff import chunk_digests, document_digests, key_of
from instep.pipeline.documents.pipeline import DocumentProgram
from instep.pipeline.documents.rows import change_batch
from instep.targets.document_target import ChunkChanges, declared_fields, existing_schema, retold_schema

if TYPE_CHECKING:
    from instep.domain.document_columns import DocumentColumn
    from instep.pipeline.documents.embed.embedder import Texts, Vectors
    from instep.targets.document_target import ChunkWriter, DocumentTarget

    Array = np.ndarray[Any, np.dtype[Any]]


Taken = Callable[[pa.RecordBatch], None]


def given(program: DocumentProgram, changes: Sequence[DocumentChange], take: Taken, *, vectors: bool) -> None:
    """Hand over the rows of these documents (of `row_schema`), a document's together, some thousand at a time.

    Without `vectors` nothing is embedded, and they say nothing. Of a document that cannot be read there are no rows.
    """
    into = cast("DocumentTarget", EmptyTarget(take))
    program = replace(program, target=into, base=0)
    if not vectors:
        program = replace(program, embedder=_Unembedded(program.embedder.dimensions), cache=None)
    batch = change_batch(WaveSlice("", 0, 0, len(changes), list(changes)))
    for _ in program.write(program.read(iter([batch]))):
        pass


@dataclass(frozen=True)
class EmptyTarget:
    """A target in which nothing stays. In it is what `reader` finds; without one nothing."""

    take: Taken
    reader: ChunkWriter | None = None
    kind: Literal["transactional", "idempotent"] = "transactional"

    def writer(self, physical: str, base: int) -> EmptyTarget:
        return self

    def existing(self, document_ids: Sequence[str], removed: Collection[str] = ()) -> pa.Table:
        if self.reader is None:
            return existing_schema().empty_table()
        return self.reader.existing(document_ids, removed)

    def stored(self, document_ids: Sequence[str], columns: Sequence[DocumentColumn]) -> pa.Table:
        return (
            retold_schema(columns).empty_table() if self.reader is None else self.reader.stored(document_ids, columns)
        )

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
    """Counts of the rows of a document that differ in any way; and in texts, titles, vectors and declared columns."""

    rows: int
    texts: int
    titles: int
    vectors: int
    columns: int


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
    declared = [each.name for each in declared_fields(given.schema)]
    found: dict[str, Counter[str]] = {}
    for row in given.to_pylist():
        other = there.get(row["chunk_id"])
        if other is None or other["document_id"] != row["document_id"]:
            other = dict.fromkeys(row)
        differs = {
            "texts": row["text"] != other["text"],
            "titles": (row["title"] or "") != (other["title"] or ""),
            "vectors": not _near(row["vector"], other["vector"]),
            "columns": any(row[name] != other[name] for name in declared),
        }
        if any(differs.values()):
            counted = found.setdefault(row["document_id"], Counter(rows=0, texts=0, titles=0, vectors=0, columns=0))
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


@dataclass(frozen=True, slots=True)
class Compared:
    """The result of a comparison. `held` is what is there of documents that are not as they are recorded, by id; `uris`
    are what the rows say of those that are not recorded. `rows` are all that there are. `chunks` are the numbers of the
    chunks of those in `held` (see `chunk_digests`).
    """

    held: Mapping[str, Held]
    uris: Mapping[str, str]
    rows: int
    chunks: Mapping[str, frozenset[int]]


#: Rows of a target as they are compared: of the id of a chunk a number, and one of id and hash (`chunk_digests`).
HELD: Final = pa.schema(
    dict[str, pa.DataType](document_id=pa.string(), source_uri=pa.string(), key=pa.uint64(), chunk=pa.uint64())
)


def held_rows(contents: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of `contents_schema` as rows of `HELD`. Texts are copied: what a store read with them may go."""
    columns: Any = contents
    ids, hashes = columns["chunk_id"], columns["chunk_hash"]
    numbers: list[Any] = [pa.array(key_of(ids)), pa.array(chunk_digests(ids, hashes))]
    texts: list[Any] = [pa.concat_arrays([columns[name]]) for name in ("document_id", "source_uri")]
    return pa.RecordBatch.from_arrays([*texts, *numbers], schema=HELD)


def compare(rows: pa.Table, recorded: pa.Table) -> Compared:
    """Compare all rows (`HELD`) of some documents with their records (`document_id`, `chunks`, `digest`)."""
    ids: Any = rows["document_id"]
    known = recorded.num_rows
    owner = places(ids, recorded["document_id"])
    unknown = np.flatnonzero(owner < 0)
    strange: Any = ids.take(_indices(unknown))
    others = pc.unique(strange)
    owner[unknown] = known + places(strange, others)
    chunks = rows["chunk"].to_numpy()
    counts = np.bincount(owner, minlength=known + len(others))
    differing = _differing(counts, document_digests(chunks, owner, len(counts)), recorded)
    at = np.flatnonzero(differing)
    strangers = list(map(str, others.to_pylist()))
    names = [
        *map(str, recorded["document_id"].take(_indices(at[at < known])).to_pylist()),
        *(strangers[place - known] for place in at[at >= known].tolist()),
    ]
    interesting = np.flatnonzero(differing[owner])
    held, numbers = _held(owner[interesting], rows["key"].to_numpy()[interesting], chunks[interesting])
    _, first = np.unique(owner[unknown], return_index=True)
    uris = rows["source_uri"].take(_indices(unknown[first])).to_pylist()
    return Compared(
        {name: held.get(place, Held()) for name, place in zip(names, at.tolist(), strict=True)},
        dict(zip(strangers, map(str, uris), strict=True)),
        rows.num_rows,
        {name: numbers.get(place, frozenset()) for name, place in zip(names, at.tolist(), strict=True)},
    )


def _indices(at: Array) -> Any:
    return pa.array(at)


def _differing(rows: Array, sums: Array, recorded: pa.Table) -> Array:
    """The places of documents that differ from their records. Those that are not recorded come after the others."""
    known = recorded.num_rows
    digests: Any = recorded["digest"]
    without = digests.is_null().to_numpy()
    differing = rows > 0
    differing[:known] = rows[:known] != recorded["chunks"].to_numpy()
    differing[:known] |= (sums[:known] != digests.fill_null(0).to_numpy()) & ~without
    return differing


def _held(owner: Array, ids: Array, chunks: Array) -> tuple[dict[int, Held], dict[int, frozenset[int]]]:
    """The stored rows of documents, and the numbers of their chunks, by place."""
    if not len(owner):
        return {}, {}
    order = np.lexsort((ids, owner))
    owner, ids, chunks = owner[order], ids[order], chunks[order]
    first = np.ones(len(owner), bool)
    first[1:] = (owner[1:] != owner[:-1]) | (ids[1:] != ids[:-1])
    documents, starts = np.unique(owner, return_index=True)
    rows = np.diff(starts, append=len(owner))
    distinct = np.add.reduceat(first.astype(np.int64), starts)
    sums = np.add.reduceat(np.where(first, chunks, np.uint64(0)), starts).view(np.int64)
    held = {
        place: Held(*numbers)
        for place, *numbers in zip(*(each.tolist() for each in (documents, rows, distinct, sums)), strict=True)
    }
    numbers_of = (frozenset(each.tolist()) for each in np.split(chunks, starts[1:]))
    return held, dict(zip(documents.tolist(), numbers_of, strict=True))
