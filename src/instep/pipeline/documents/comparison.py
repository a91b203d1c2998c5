"""Compare a target's rows with the recorded documents, or with the rows that a run would write now.

The recorded documents take one pass, and a second for those that differ. Memory grows with the number of documents (by
about a hundred bytes for each), and with the rows of those that differ; not with the rows of the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from instep.domain.discrepancies import Held
from instep.domain.manifest import DocumentChange
from instep.domain.waves import WaveSlice
from instep.pipeline.documents.diff import chunk_digests, key_of
from instep.pipeline.documents.pipeline import DocumentProgram
from instep.pipeline.documents.rows import change_batch
from instep.targets.document_target import ChunkChanges, declared_fields, existing_schema, retold_schema

if TYPE_CHECKING:
    from instep.domain.document_columns import DocumentColumn
    from instep.pipeline.documents.embed.embedder import Texts, Vectors
    from instep.targets.document_target import DocumentTarget

    Array = np.ndarray[Any, np.dtype[Any]]


Taken = Callable[[pa.RecordBatch], None]


def given(program: DocumentProgram, changes: Sequence[DocumentChange], take: Taken, *, vectors: bool) -> None:
    """Hand over the rows of these documents (of `row_schema`), a document's together, some thousand at a time.

    Without `vectors` nothing is embedded, and they say nothing. Of a document that cannot be read there are no rows.
    """
    into = cast("DocumentTarget", _EmptyTarget(take))
    program = replace(program, target=into, base=0)
    if not vectors:
        program = replace(program, embedder=_Unembedded(program.embedder.dimensions), cache=None)
    batch = change_batch(WaveSlice("", 0, 0, len(changes), list(changes)))
    for _ in program.write(program.read(iter([batch]))):
        pass


@dataclass(frozen=True)
class _EmptyTarget:
    """A target in which nothing is, and in which nothing stays."""

    take: Taken
    kind: Literal["transactional"] = field(default="transactional", init=False)

    def writer(self, physical: str, base: int) -> _EmptyTarget:
        return self

    def existing(self, document_ids: Sequence[str], removed: Collection[str] = ()) -> pa.Table:
        return existing_schema().empty_table()

    def stored(self, document_ids: Sequence[str], columns: Sequence[DocumentColumn]) -> pa.Table:
        return retold_schema(columns).empty_table()

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


#: Ids that are Python objects at once.
_AT_ONCE: Final = 50_000

Contents = Callable[[], Iterable[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class Compared:
    """`held` is what is there of documents that are not as they are recorded, by id; `uris` are what the rows say of
    those that are not recorded. `rows` are all that there are. `chunks` are the numbers of the chunks of those in
    `held` (see `chunk_digests`).
    """

    held: Mapping[str, Held]
    uris: Mapping[str, str]
    rows: int
    chunks: Mapping[str, frozenset[int]]


class _Rows(NamedTuple):
    """Rows of a batch: the place of the document that each is of, the id of its chunk, and a number for that."""

    owner: Array
    ids: pa.StringArray
    chunks: Array


#: What is compared of each recorded document.
RECORDED: Final = ("document_id", "chunks", "digest")


def compare(contents: Contents, recorded: pa.Table) -> Compared:
    """`contents` gives all rows in batches (of `contents_schema`), each time it is called. `recorded` has the columns
    `RECORDED` of all documents.
    """
    places, uris = _Places(recorded), dict[str, str]()
    rows, sums = _tallied(_placed(contents(), places, uris), recorded.num_rows)
    differing = _differing(rows, sums, places.recorded)
    at = np.flatnonzero(differing)
    names = places.names(at)
    held, chunks = _held(_placed(contents(), places, uris), differing) if len(at) else ({}, {})
    return Compared(
        {name: held.get(place, Held()) for name, place in zip(names, at.tolist(), strict=True)},
        uris,
        int(rows.sum()),
        {name: chunks.get(place, frozenset()) for name, place in zip(names, at.tolist(), strict=True)},
    )


class _Places:
    """Documents by number: the recorded ones in the order of their ids, then others as they are met. No object for each
    that is recorded.
    """

    def __init__(self, recorded: pa.Table) -> None:
        ids = _bytes_of(recorded["document_id"])
        if not np.all(ids[1:] > ids[:-1]):
            order = np.argsort(ids)
            places: Any = pa.array(order)
            ids, recorded = ids[order], recorded.take(places)
        self.recorded, self._ids = recorded, ids
        self._others: dict[str, int] = {}

    def of(self, names: Sequence[str]) -> Array:
        """The place of each name; -1 if it was not met before."""
        width = self._ids.dtype.itemsize
        wanted = np.array([name if len(name := each.encode()) <= width else b"" for each in names], self._ids.dtype)
        at = np.searchsorted(self._ids, wanted)
        there = at < len(self._ids)
        there[there] = self._ids[at[there]] == wanted[there]
        places: Array = np.where(there, at, -1)
        for unknown in np.flatnonzero(~there).tolist():
            places[unknown] = self._others.get(names[unknown], -1)
        return places

    def add(self, name: str) -> int:
        return self._others.setdefault(name, len(self._ids) + len(self._others))

    def names(self, places: Array) -> list[str]:
        others, known = list(self._others), len(self._ids)
        return [self._ids[at].decode() if at < known else others[at - known] for at in places.tolist()]


def _bytes_of(ids: Any) -> Array:
    width = pc.max(pc.binary_length(ids)).as_py() or 1
    some = (ids.slice(at, _AT_ONCE).cast(pa.binary()).to_pylist() for at in range(0, len(ids), _AT_ONCE))
    return np.concatenate([np.empty(0, f"S{width}"), *(np.array(each, f"S{width}") for each in some)])


def _placed(batches: Iterable[pa.RecordBatch], places: _Places, uris: dict[str, str]) -> Iterator[_Rows]:
    """Documents that are met for the first time get a place."""
    for batch in batches:
        coded: Any = batch["document_id"].dictionary_encode()
        codes = coded.indices.to_numpy(zero_copy_only=False)
        names = coded.dictionary.to_pylist()
        known = places.of(names)
        new = np.flatnonzero(known < 0)
        if len(new):
            _, first = np.unique(codes, return_index=True)
            for code in new.tolist():
                known[code] = places.add(names[code])
                uris[names[code]] = batch["source_uri"][int(first[code])].as_py()
        ids, hashes = _texts(batch, "chunk_id"), _texts(batch, "chunk_hash")
        yield _Rows(known[codes], ids, chunk_digests(ids, hashes))


def _texts(batch: pa.RecordBatch, name: str) -> pa.StringArray:
    column: Any = batch[name]
    return column  # type: ignore[no-any-return]  # of the schema


def _tallied(found: Iterable[_Rows], documents: int) -> tuple[Array, Array]:
    """Rows of each document, and the digest of these."""
    rows, sums = np.zeros(documents, np.int64), np.zeros(documents, np.uint64)
    for some in found:
        more = max(0, int(some.owner.max(initial=-1)) + 1 - len(rows))
        if more:
            room = max(more, len(rows))  # Doubled: unknown documents may be many.
            rows, sums = (np.concatenate([each, np.zeros(room, each.dtype)]) for each in (rows, sums))
        np.add.at(rows, some.owner, 1)
        np.add.at(sums, some.owner, some.chunks)
    return rows, sums.view(np.int64)


def _differing(rows: Array, sums: Array, recorded: pa.Table) -> Array:
    """The places of documents that differ from their records. Those that are not recorded come after the others."""
    known = recorded.num_rows
    digests: Any = recorded["digest"]
    without = digests.is_null().to_numpy()
    differing = rows > 0
    differing[:known] = rows[:known] != recorded["chunks"].to_numpy()
    differing[:known] |= (sums[:known] != digests.fill_null(0).to_numpy()) & ~without
    return differing


def _held(found: Iterable[_Rows], differing: Array) -> tuple[dict[int, Held], dict[int, frozenset[int]]]:
    """The stored rows of differing documents, and the numbers of their chunks, by place."""
    kept: list[tuple[Array, Array, Array]] = []
    for some in found:
        of_interest = np.flatnonzero(some.owner < len(differing))
        of_interest = of_interest[differing[some.owner[of_interest]]]
        if len(of_interest):
            ids = key_of(some.ids.take(of_interest))
            kept.append((some.owner[of_interest], ids, some.chunks[of_interest]))
    if not kept:
        return {}, {}
    owner, ids, chunks = (np.concatenate(column) for column in zip(*kept, strict=True))
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
