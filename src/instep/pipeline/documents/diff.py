"""The difference of a document's chunks: digests, which rows to write, which of those stored to remove.

A digest says which chunks a document has, as one number, in whatever order they come. The ledger keeps a document's
digest for as long as it is indexed, so how it is worked out never changes.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from instep.domain.chunk_places import placed
from instep.domain.identity import OF_TEXT

if TYPE_CHECKING:
    import numpy as np

    Mask = np.ndarray[Any, np.dtype[np.bool_]]
    Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class ChunkDifference:
    """The difference between new and existing rows. `write` marks new rows, `stale` marks existing ones (boolean
    masks); `kept` are in neither.
    """

    write: Mask
    stale: Mask
    kept: int


def chunk_difference(new: pa.Table, existing: pa.Table) -> ChunkDifference:
    """Compare all chunks that some documents should have with all that are stored of them.

    Both have `document_id`, `chunk_id`, `chunk_hash` and `chunk_index`; chunk ids are unique in `new`. A stored row
    is kept if a new one has its id, hash and place (the first, if it is stored more than once); an updated
    chunk is both written and stale.
    """
    import numpy as np

    write = np.ones(new.num_rows, bool)
    stale = np.ones(existing.num_rows, bool)
    if not new.num_rows or not existing.num_rows:
        return ChunkDifference(write, stale, 0)
    here = _whole(new)
    stored = _whole(existing)
    place: Any = pc.index_in(stored["chunk_id"], value_set=here["chunk_id"])
    same = pc.and_(
        pc.equal(stored["chunk_hash"], here["chunk_hash"].take(place)),
        pc.equal(stored["document_id"], here["document_id"].take(place)),
    )
    same = pc.and_(same, pc.equal(stored["chunk_index"], here["chunk_index"].take(place)))
    matches: Any = pc.fill_null(same, False)
    rows = np.flatnonzero(matches.to_numpy(zero_copy_only=False))
    places = place.take(pa.array(rows)).to_numpy(zero_copy_only=False)
    kept, first = np.unique(places, return_index=True)
    write[kept] = False
    stale[rows[first]] = False
    return ChunkDifference(write, stale, len(kept))


def placed_rows(new: pa.Table, existing: pa.Table, owner: Array) -> pa.Table:
    """The new rows with the places that `domain.chunk_places` gives them beside those that are stored. `owner` is the
    document of each new row, which come in the order of their documents and chunks.
    """
    import numpy as np

    if not new.num_rows or not existing.num_rows:
        return new
    here, stored = _whole(new), _whole(existing)
    found: Any = pc.index_in(here["chunk_id"], value_set=stored["chunk_id"])
    known = found.is_valid().to_numpy(zero_copy_only=False)
    numbers = stored["chunk_index"].take(found).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    first = np.flatnonzero(np.diff(owner, prepend=-1))
    at = np.arange(len(owner)) - np.repeat(first, np.diff(first, append=len(owner)))
    shifts = numbers - at
    documents = np.cumsum(np.diff(owner, prepend=-1) != 0) - 1
    # Of most documents nothing is stored, or all of it stands as it did: all differ by one and the same number.
    most, least = (np.full(len(first), edge) for edge in (np.iinfo(np.int64).min, np.iinfo(np.int64).max))
    np.maximum.at(most, documents[known], shifts[known])
    np.minimum.at(least, documents[known], shifts[known])
    shift = np.where(most == least, most, 0)
    places = at + shift[documents]
    for document in np.flatnonzero(most > least).tolist():
        start, end = int(first[document]), int(first[document + 1]) if document + 1 < len(first) else len(owner)
        some = zip(known[start:end].tolist(), numbers[start:end].tolist(), strict=True)
        places[start:end] = placed([number if there else None for there, number in some])
    column = new.schema.get_field_index("chunk_index")
    return new.set_column(column, new.schema.field(column), pa.array(places, pa.int32()))


def same_texts(new: pa.Table, existing: pa.Table, difference: ChunkDifference) -> tuple[Array, Array]:
    """The places of new rows of which a stale one has title and text, and those of the stale ones: only columns differ,
    or their place in the document.
    Each stale row is that of one new row at most.
    """
    import numpy as np

    write, stale = np.flatnonzero(difference.write), np.flatnonzero(difference.stale)
    if not len(write) or not len(stale):
        return write[:0], stale[:0]
    some, others = pa.array(write, pa.int64()), pa.array(stale, pa.int64())
    here, stored = _whole(new.take(some)), _whole(existing.take(others))
    place: Any = pc.index_in(stored["chunk_id"], value_set=here["chunk_id"])
    same = pc.and_(
        pc.equal(_of_texts(stored), _of_texts(here).take(place)),
        pc.equal(stored["document_id"], here["document_id"].take(place)),
    )
    matches: Any = pc.fill_null(same, False)
    rows = np.flatnonzero(matches.to_numpy(zero_copy_only=False))
    places = place.take(pa.array(rows)).to_numpy(zero_copy_only=False)
    kept, first = np.unique(places, return_index=True)
    return write[kept], stale[rows[first]]


def _of_texts(table: dict[str, Any]) -> Any:
    return pc.utf8_slice_codeunits(table["chunk_hash"], 0, OF_TEXT)


def _whole(table: pa.Table) -> dict[str, Any]:
    return {name: table[name].combine_chunks() for name in ("document_id", "chunk_id", "chunk_hash", "chunk_index")}


#: Bytes of a SHA-256 in hex, which is what ids and hashes of chunks are unless they were changed.
_WIDTH: Final = 64
#: Odd numbers, one for each eight bytes.
_WEIGHTS: Final = (
    0x9E3779B97F4A7C15,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
    0xFF51AFD7ED558CCD,
    0xC4CEB9FE1A85EC53,
    0x94D049BB133111EB,
)


def key_of(texts: pa.StringArray) -> Array:
    """A number of 64 bits for each text."""
    import numpy as np

    return _mixed(_words(texts) @ np.array(_WEIGHTS, np.uint64))


def chunk_digests(ids: pa.StringArray, hashes: pa.StringArray) -> Array:
    """A number of 64 bits for each chunk, which no other id or hash gives."""
    import numpy as np

    return _mixed(key_of(ids) ^ (key_of(hashes) * np.uint64(_WEIGHTS[0])))


def document_digests(chunks: Array, owner: Array, documents: int) -> Array:
    """The digest of each document: the sum of its chunks' numbers, as the ledger keeps it (with a sign). `owner` is the
    document of each chunk.
    """
    import numpy as np

    sums = np.zeros(documents, np.uint64)
    np.add.at(sums, owner, chunks)
    return sums.view(np.int64)


def _words(texts: pa.StringArray) -> Array:
    """The bytes of each text, eight by eight. What is no SHA-256 in hex counts as its own."""
    import numpy as np

    lengths: Any = pc.binary_length(texts)
    odd = np.flatnonzero(lengths.to_numpy(zero_copy_only=False) != _WIDTH)
    if len(odd):
        mask = np.zeros(len(texts), bool)
        mask[odd] = True
        hashed = [hashlib.sha256(str(texts[row]).encode()).hexdigest() for row in odd.tolist()]
        texts = pc.replace_with_mask(texts, pa.array(mask), pa.array(hashed, texts.type))
    if not len(texts):
        return np.zeros((0, _WIDTH // 8), np.uint64)
    offsets, data = (memoryview(each) for each in texts.buffers()[1:] if each is not None)
    start = int(np.frombuffer(offsets, np.int32)[texts.offset])
    words: Array = np.frombuffer(data, "<u8", len(texts) * _WIDTH // 8, start).astype(np.uint64, copy=False)
    return words.reshape(len(texts), -1)


def _mixed(numbers: Array) -> Array:
    """Mix the bits of each number, so that sums and differences say nothing about each other (splitmix64)."""
    import numpy as np

    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Array = numbers ^ (numbers >> np.uint64(31))
    return mixed
