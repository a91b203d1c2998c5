"""A task's side: read the rows of documents, write and remove points.

What is new of a document is written before what is stale of it is removed, so a reader never finds a document with
none of its chunks. Every request is bounded, and may be repeated: a point's id comes from its chunk.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from instep.domain.document_columns import DocumentColumn
from instep.targets.document_target import ChunkChanges, existing_schema, retold_schema
from instep.targets.journal import Journal
from instep.targets.qdrant.collections import (
    VERSION,
    Collections,
    TooLarge,
    Where,
    pages,
    point_id,
    points_of,
    requests,
    sizes,
    without_booleans,
)
from instep.targets.qdrant.journal import Log
from instep.targets.qdrant.searching import with_flags
from instep.targets.request_limits import portions, records

#: Documents in one question, and rows in one answer.
_LOOKUP = 500
_PAGE = 5_000

#: Points in one request to remove some.
_REMOVED_AT_ONCE = 2_000

_RETOLD_AT_ONCE = 500

#: A server takes requests of 32 MB; a row has to fit into one, whatever JSON makes of its letters.
ROW_BYTES = 16 * 1024 * 1024

#: Of rows that are to be removed only the first is asked for.
_FIELDS: Mapping[str, Any] = {"document_id": "", "chunk_id": "", "chunk_hash": "", "chunk_index": 0}


class QdrantChunkWriter:
    """See `ChunkWriter`. It reads what is there now, and its changes are visible at once.

    Points of a newer epoch are left as they are, whatever it wants to do with them.
    """

    def __init__(self, collections: Collections, physical: str, base: int) -> None:
        self._collections = collections
        self._physical = physical
        self._journal = Journal(Log(collections, physical))
        self._epoch = self._journal.epoch(base)

    def existing(self, document_ids: Sequence[str], removed: Collection[str] = ()) -> pa.Table:
        wanted, going = list(dict.fromkeys(document_ids)), frozenset(removed)
        compared, counted = [each for each in wanted if each not in going], [each for each in wanted if each in going]
        found = [*self._found(compared, list(_FIELDS)), *self._found(counted, ["document_id"])]
        columns: dict[str, Any] = {
            name: [each.get(name, nothing) for each in found] for name, nothing in _FIELDS.items()
        }
        # A point is found again by its chunk_id.
        columns["locator"] = [0] * len(found)
        return pa.table(columns, schema=existing_schema())

    def _found(self, document_ids: Sequence[str], fields: Sequence[str]) -> Iterator[Mapping[str, Any]]:
        for portion in portions(document_ids, _LOOKUP):
            where = Where(any_of={"document_id": portion})
            for page in pages(self._collections, self._physical, where, fields=fields, limit=_PAGE):
                yield from page

    def stored(self, document_ids: Sequence[str], columns: Sequence[DocumentColumn]) -> pa.Table:
        schema = retold_schema(columns)
        fields = [name for name in schema.names if name != "locator"]
        found = [{**each, "locator": 0} for each in self._found(list(dict.fromkeys(document_ids)), fields)]
        return pa.Table.from_pylist(with_flags(found, columns), schema=schema)

    def unfit(self, rows: pa.Table) -> Mapping[int, str]:
        import numpy as np

        if not rows.num_rows:
            return {}
        (batch,) = rows.combine_chunks().to_batches()
        bytes_of = sizes(batch)
        return {
            int(place): f"the chunk has {int(bytes_of[place]):,} bytes; Qdrant takes {ROW_BYTES:,}"
            for place in np.flatnonzero(bytes_of > ROW_BYTES)
        }

    def stage(self, changes: Iterator[ChunkChanges]) -> bytes:
        written = removed = 0
        for change in changes:
            self._journal.demand_current(self._epoch)
            refused = [error for part in requests(change.rows) for error in self._write(part)]
            if change.retold is not None:
                self._retell(change.retold)
                written += change.retold.num_rows
            if refused:
                raise refused[0]
            written, removed = written + change.rows.num_rows, removed + self._clear(change)
        if written or removed:
            self._collections.sync(self._physical)
        return json.dumps({"written": written, "removed": removed}).encode()

    def _clear(self, change: ChunkChanges) -> int:
        """Remove what is stale and was not written again; how many rows these are."""
        stale = change.stale
        whole: Any = pc.is_in(stale["document_id"], value_set=pa.array(change.removed, pa.string()))
        written: Any = pc.is_in(stale["chunk_id"], value_set=change.rows["chunk_id"])
        rest = stale["chunk_id"].filter(pc.invert(pc.or_(whole, written))).to_pylist()
        documents: Any = pc.unique(stale["document_id"].filter(whole))
        for portion in portions(documents.to_pylist(), _LOOKUP):
            self._remove(Where(any_of={"document_id": portion}))
        for portion in portions([point_id(str(each)) for each in rest], _REMOVED_AT_ONCE):
            self._remove(Where(ids=portion))
        return len(rest) + (pc.sum(whole).as_py() or 0)

    def _retell(self, rows: pa.Table) -> None:
        """Give points columns anew; their vectors stay as they are. Newer ones stay as a whole."""
        for batch in rows.drop_columns("locator").combine_chunks().to_batches(max_chunksize=_RETOLD_AT_ONCE):
            payloads = {point_id(each["chunk_id"]): each for each in records(without_booleans(batch))}
            self._collections.retell(self._physical, payloads, only_if=Where(at_most={VERSION: self._epoch}))

    def _write(self, rows: pa.RecordBatch) -> list[TooLarge]:
        """Write rows; a request that is too large is halved, and a row too large by itself keeps no other out."""
        not_newer = Where(at_most={VERSION: self._epoch})
        try:
            self._collections.upsert(self._physical, points_of(rows), only_if=not_newer)
        except TooLarge as error:
            if rows.num_rows == 1:
                return [error]
            half = rows.num_rows // 2
            return self._write(rows.slice(0, half)) + self._write(rows.slice(half))
        return []

    def _remove(self, where: Where) -> None:
        """Whatever of it is not newer."""
        self._collections.delete(self._physical, replace(where, at_most={VERSION: self._epoch}))
