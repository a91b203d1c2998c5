"""The difference of chunks: which rows to write, which of those stored to remove. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    import numpy as np

    Mask = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True, slots=True)
class ChunkDifference:
    """`write` marks new rows, `stale` marks existing ones (boolean masks); `kept` are in neither."""

    write: Mask
    stale: Mask
    kept: int


def chunk_difference(new: pa.Table, existing: pa.Table) -> ChunkDifference:
    """Compare all chunks that some documents should have with all that are stored of them.

    Both have `document_id`, `chunk_id` and `chunk_hash`; chunk ids are unique in `new`. A stored row
    is kept if a new one has its id and hash (the first, if it is stored more than once); an updated
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
    matches: Any = pc.fill_null(same, False)
    rows = np.flatnonzero(matches.to_numpy(zero_copy_only=False))
    places = place.take(pa.array(rows)).to_numpy(zero_copy_only=False)
    kept, first = np.unique(places, return_index=True)
    write[kept] = False
    stale[rows[first]] = False
    return ChunkDifference(write, stale, len(kept))


def _whole(table: pa.Table) -> dict[str, Any]:
    return {name: table[name].combine_chunks() for name in ("document_id", "chunk_id", "chunk_hash")}
