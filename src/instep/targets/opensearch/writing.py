"""A task's side: read the rows of documents, write and remove them.

What is new of a document is in before what is stale of it is removed, so a reader never finds a document with none
of its chunks. Nothing of a document that the index refuses is removed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from instep.domain.document_columns import DocumentColumn
from instep.targets.document_target import ChunkChanges, existing_schema, retold_schema, with_vectors
from instep.targets.journal import Journal
from instep.targets.opensearch.bulk import ID_BYTES, Bulk, Pace, deletes, upserts
from instep.targets.opensearch.indexes import Indexes
from instep.targets.opensearch.layout import KEYWORD_BYTES, KEYWORDS, coded
from instep.targets.opensearch.log import Log
from instep.targets.opensearch.searching import columns_of, rows_of_documents, values
from instep.targets.request_limits import portions

#: Documents in one question, and rows in one answer.
_LOOKUP = 500
_PAGE = 5_000

_FIELDS = ("document_id", "chunk_id", "chunk_hash", "chunk_index")


class OpenSearchChunkWriter:
    """See `ChunkWriter`. It reads what is there now; its changes are found from the next refresh on, `commit` at last.

    Rows of a newer epoch are left as they are, whatever it wants to do with them: then it is over.
    """

    def __init__(self, indexes: Indexes, physical: str, base: int, pace: Pace) -> None:
        self._indexes = indexes
        self._physical = physical
        self._journal = Journal(Log(indexes, physical))
        self._epoch = self._journal.epoch(base)
        self._bulk = Bulk(indexes.connection, coded(physical), pace)

    def existing(self, document_ids: Sequence[str], removed: Collection[str] = ()) -> pa.Table:
        wanted = list(dict.fromkeys(document_ids))
        found: list[Mapping[str, Any]] = []
        if wanted:
            self._indexes.refresh(coded(self._physical))
        for some in portions(wanted, _LOOKUP):
            body = columns_of(_FIELDS, {"terms": {"document_id": some}})
            for hits in self._indexes.pages(coded(self._physical), body, _PAGE):
                found += map(values, hits)
        columns: dict[str, Any] = {name: [each[name] for each in found] for name in _FIELDS}
        # A row is found again by its chunk_id.
        columns["locator"] = [0] * len(found)
        return pa.table(columns, schema=existing_schema())

    def stored(self, document_ids: Sequence[str], columns: Sequence[DocumentColumn]) -> pa.Table:
        schema = retold_schema(columns)
        if document_ids:
            self._indexes.refresh(coded(self._physical))
        found = rows_of_documents(self._indexes, self._physical, document_ids, schema.names)
        return pa.Table.from_pylist([{**each, "locator": 0} for each in found], schema=schema)

    def unfit(self, rows: pa.Table) -> Mapping[int, str]:
        """Find unfit rows. Rows too large for a request are found by the server itself, whose limit is not known
        here.
        """
        import numpy as np
        import pyarrow.compute as pc

        found: dict[int, str] = {}
        for name in (each for each in KEYWORDS if each in rows.schema.names):
            most = ID_BYTES if name == "chunk_id" else KEYWORD_BYTES
            texts: Any = rows[name]
            lengths: Any = pc.fill_null(pc.binary_length(texts), 0)
            bytes_of = lengths.to_numpy()
            least = 1 if name == "chunk_id" else 0
            for place in np.flatnonzero((bytes_of > most) | (bytes_of < least)).tolist():
                found.setdefault(place, f"{name} has {int(bytes_of[place]):,} bytes; the server takes {most:,}")
        return found

    def _retold(self, rows: pa.Table | None) -> Iterator[pa.RecordBatch]:
        """Rows with the vectors that are stored of them. The server itself would write the whole row too, and its
        updates know no versions of ours.
        """
        for batch in [] if rows is None else rows.combine_chunks().to_batches(max_chunksize=_LOOKUP):
            ids = batch["chunk_id"].to_pylist()
            body = {"query": {"terms": {"chunk_id": ids}}, "_source": ["chunk_id", "vector"]}
            vectors: dict[str, list[float] | None] = {}
            for hits in self._indexes.pages(coded(self._physical), {**body, "sort": [{"chunk_id": "asc"}]}, _LOOKUP):
                vectors |= {each["_source"]["chunk_id"]: each["_source"].get("vector") for each in hits}
            dimensions = next((len(each) for each in vectors.values() if each), 1)
            there = batch.filter(pa.array([each in vectors for each in ids]))
            some = [vectors[each] or [0.0] * dimensions for each in ids if each in vectors]
            stored = pa.array(some, pa.list_(pa.float32(), dimensions))
            yield with_vectors(pa.Table.from_batches([there]), stored)

    def stage(self, changes: Iterator[ChunkChanges]) -> bytes:
        written = removed = 0
        for change in changes:
            self._journal.demand_current(self._epoch)
            refused = {item.document_id: reason for item, reason in self._bulk.send(upserts(change.rows, self._epoch))}
            for batch in self._retold(change.retold):
                sent = self._bulk.send(upserts(batch, self._epoch))
                refused |= {item.document_id: reason for item, reason in sent}
                written += batch.num_rows
            for document_id, reason in refused.items():
                change.refuse(document_id, f"the server refused it: {reason}")
            new = set(change.rows.column("chunk_id").to_pylist())
            gone = zip(change.stale["document_id"].to_pylist(), change.stale["chunk_id"].to_pylist(), strict=True)
            stale = [str(chunk) for document, chunk in gone if chunk not in new and document not in refused]
            self._bulk.send(deletes(stale, self._epoch))
            written, removed = written + change.rows.num_rows, removed + len(stale)
        return json.dumps({"written": written, "removed": removed}).encode()
