"""Compare a target's rows with the recorded documents, in one pass, and a second for those that differ.

Memory grows with the number of documents, and with the rows of those that differ; not with the rows of the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from instep.domain.discrepancies import Held
from instep.domain.manifest import ManifestEntry
from instep.pipeline.documents.diff import chunk_digests, key_of

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

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


def compare(contents: Contents, recorded: Mapping[str, ManifestEntry]) -> Compared:
    """`contents` gives all rows in batches (of `contents_schema`), each time it is called."""
    places = {identity: place for place, identity in enumerate(recorded)}
    uris: dict[str, str] = {}
    rows, sums = _tallied(_placed(contents(), places, uris), len(recorded))
    differing = _differing(rows, sums, list(recorded.values()))
    counted = {identity: int(rows[place]) for identity, place in places.items() if differing[place]}
    held, chunks = _held(_placed(contents(), places, uris), differing) if any(counted.values()) else ({}, {})
    return Compared(
        {each: held.get(places[each], Held()) for each in counted},
        uris,
        int(rows.sum()),
        {each: chunks.get(places[each], frozenset()) for each in counted},
    )


def _placed(batches: Iterable[pa.RecordBatch], places: dict[str, int], uris: dict[str, str]) -> Iterator[_Rows]:
    """Documents that are met for the first time get a place."""
    import numpy as np

    for batch in batches:
        coded: Any = batch["document_id"].dictionary_encode()
        codes = coded.indices.to_numpy(zero_copy_only=False)
        names = coded.dictionary.to_pylist()
        new = [code for code, name in enumerate(names) if name not in places]
        if new:
            _, first = np.unique(codes, return_index=True)
            for code in new:
                places[names[code]] = len(places)
                uris[names[code]] = batch["source_uri"][int(first[code])].as_py()
        owner = np.array([places[name] for name in names], np.int64)[codes]
        ids, hashes = _texts(batch, "chunk_id"), _texts(batch, "chunk_hash")
        yield _Rows(owner, ids, chunk_digests(ids, hashes))


def _texts(batch: pa.RecordBatch, name: str) -> pa.StringArray:
    column: Any = batch[name]
    return column  # type: ignore[no-any-return]  # of the schema


def _tallied(found: Iterable[_Rows], documents: int) -> tuple[Array, Array]:
    """Rows of each document, and the digest of these."""
    import numpy as np

    rows, sums = np.zeros(documents, np.int64), np.zeros(documents, np.uint64)
    for some in found:
        more = max(0, int(some.owner.max(initial=-1)) + 1 - len(rows))
        if more:
            room = max(more, len(rows))  # Doubled: unknown documents may be many.
            rows, sums = (np.concatenate([each, np.zeros(room, each.dtype)]) for each in (rows, sums))
        np.add.at(rows, some.owner, 1)
        np.add.at(sums, some.owner, some.chunks)
    return rows, sums.view(np.int64)


def _differing(rows: Array, sums: Array, entries: list[ManifestEntry]) -> Array:
    """The places of documents that differ from their records. Those that are not recorded come after the others."""
    import numpy as np

    known = len(entries)
    chunks = np.array([each.chunks for each in entries], np.int64)
    digests = np.array([each.digest or 0 for each in entries], np.int64)
    without = np.array([each.digest is None for each in entries], bool)
    differing = rows > 0
    differing[:known] = (rows[:known] != chunks) | ((sums[:known] != digests) & ~without)
    return differing


def _held(found: Iterable[_Rows], differing: Array) -> tuple[dict[int, Held], dict[int, frozenset[int]]]:
    """The stored rows of differing documents, and the numbers of their chunks, by place."""
    import numpy as np

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
