"""A task's side: read the rows of documents, write and delete others under their own ids.

A document's new rows are written before its old ones go, so that a search in between finds it with all of its
chunks or more, never with none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from instep.domain.document_columns import DocumentColumn
from instep.errors import UserError
from instep.targets import request_limits as shared
from instep.targets.document_target import SEARCHED, ChunkChanges, existing_schema, retold_schema, with_vectors
from instep.targets.milvus import chunk_lists, layout, location, searching
from instep.targets.milvus.journal import Journal
from instep.targets.milvus.layout import MAX_TEXT_BYTES, Layout
from instep.targets.milvus.location import Location, TooLarge
from instep.targets.request_limits import portions, row_sizes

#: What goes into one request at most. A server takes 64 MB, unless it is configured otherwise.
REQUEST_ROWS = 2_000
REQUEST_BYTES = 8 * 1024 * 1024

#: Documents, or rows to delete, in one filter.
_FILTER_IDS = 2_000

#: Bytes of a row besides its texts and its vector.
_ROW = 64


@dataclass(frozen=True)
class MilvusChunkWriter:
    """See `ChunkWriter`. Reads what is there now. `base` tells which epoch it belongs to: it stops as soon as there is
    a newer one.
    """

    place: Location
    physical: str
    base: int

    @cached_property
    def _layout(self) -> Layout:
        return layout.found(self.place, self.physical)

    @cached_property
    def _epoch(self) -> int:
        return self._journal.epoch_of(self.base)

    @cached_property
    def _empty(self) -> bool:
        """Whether nothing was there when it was first asked: all that is there since came after the base version. Only
        Milvus Lite takes so long to look for rows that this pays.
        """
        return self._is_lite and not searching.any_rows(self.place, self.physical, self._layout.first)

    @cached_property
    def _is_lite(self) -> bool:
        return self.place.is_lite

    @property
    def _journal(self) -> Journal:
        return Journal(self.place, self.physical)

    @property
    def _collection(self) -> str:
        return location.collection(self.physical)

    def existing(self, document_ids: Sequence[str], removed: Collection[str] = ()) -> pa.Table:
        wanted = [] if self._empty else list(dict.fromkeys(document_ids))
        with self.place.alone():
            listed = chunk_lists.read(self.place, self.physical, wanted) or {}
        walked = [each for each in wanted if listed.get(each) is None]
        chunks = sorted(frozenset().union(*(each for each in listed.values() if each)))
        found = [*self._where("document_id", walked), *self._where("chunk_id", chunks)]
        rows = pa.concat_tables([existing_schema().empty_table(), *found])
        # A transform may have given a chunk of one document to another.
        mine: Any = pc.is_in(rows["document_id"], value_set=pa.array(wanted, pa.string()))
        return rows.filter(mine)

    def _where(self, field: str, values: Sequence[str]) -> Iterator[pa.Table]:
        return (self._rows(field, some) for some in portions(values, _FILTER_IDS))

    def _rows(self, field: str, values: Sequence[str]) -> pa.Table:
        fields = ["document_id", "chunk_id", "chunk_hash", "chunk_index", "_version"]
        try:
            found = self.place.call(
                "query",
                self._collection,
                filter=f"{field} in {location.texts(values)}",
                output_fields=fields,
                partition_names=self._layout.partitions(values) if field == "document_id" else None,
                consistency_level="Strong",
            )
        except TooLarge:
            if len(values) == 1:
                raise
            middle = len(values) // 2
            return pa.concat_tables([self._rows(field, values[:middle]), self._rows(field, values[middle:])])
        columns = [[each[name] for each in found] for name in fields]
        return pa.Table.from_arrays(
            [pa.array(values, type) for values, type in zip(columns, existing_schema().types, strict=True)],
            schema=existing_schema(),
        )

    def stored(self, document_ids: Sequence[str], columns: Sequence[DocumentColumn]) -> pa.Table:
        schema = retold_schema(columns)
        wanted = [] if self._empty else list(dict.fromkeys(document_ids))
        names = [name for name in schema.names if name != "locator"]
        found = searching.rows_of_documents(self.place, self.physical, wanted, names)
        # Its words stand between two spaces, see `records`.
        rows = [{**each, SEARCHED: each[SEARCHED][1:-1], "locator": 0} for each in found]
        return pa.Table.from_pylist(rows, schema=schema)

    def unfit(self, rows: pa.Table) -> Mapping[int, str]:
        found: dict[int, str] = {}
        for name in rows.column_names:
            if pa.types.is_string(rows.schema.field(name).type):
                size: Any = pc.binary_length(rows[name])
                long: Any = pc.indices_nonzero(pc.greater(size, pa.scalar(MAX_TEXT_BYTES)))
                for place in long.to_pylist():
                    reason = f"{name} of {size[place].as_py():,} bytes: Milvus takes {MAX_TEXT_BYTES:,}"
                    found.setdefault(place, reason)
        return found

    def stage(self, changes: Iterator[ChunkChanges]) -> bytes:
        for change in changes:
            self._list(change.rows)
            for partition, rows in self._by_partition(change.rows):
                for request in requests(rows):
                    self._upsert(partition, request)
            for partition, rows in self._retold(change.retold):
                for request in requests(rows):
                    self._upsert(partition, request)
            self._delete(change)
        return b""

    def _retold(self, rows: pa.Table | None) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Rows with the vectors that are stored of them: Milvus writes none without."""
        for batch in [] if rows is None else rows.combine_chunks().to_batches(max_chunksize=REQUEST_ROWS):
            ids = list(map(str, batch["chunk_id"].to_pylist()))
            found = self.place.call(
                "query",
                self._collection,
                filter=f"chunk_id in {location.texts(ids)}",
                output_fields=["chunk_id", "vector"],
                consistency_level="Strong",
            )
            vectors = {each["chunk_id"]: each["vector"] for each in found}
            there = batch.filter(pa.array([each in vectors for each in ids]))
            flat = np.array([vectors[each] for each in ids if each in vectors], np.float32)
            stored = pa.FixedSizeListArray.from_arrays(pa.array(flat.reshape(-1)), self._layout.dimensions)
            yield from self._by_partition(with_vectors(pa.Table.from_batches([there]), stored))

    def _list(self, rows: pa.RecordBatch) -> None:
        """List the chunks of rows, before they are written. A server has none, and one that it finds is no use from
        now on.
        """
        with self.place.alone():
            self._journal.refuse(self._epoch)
            if not self.place.remote:
                chunk_lists.add(self.place, self.physical, rows)
            elif self._is_lite:
                chunk_lists.forget(self.place, self.physical)

    def _upsert(self, partition: str, rows: pa.RecordBatch) -> None:
        with self.place.alone():
            self._journal.refuse(self._epoch)
            try:
                self.place.call("upsert", self._collection, records(rows), partition_name=partition)
            except TooLarge as error:
                if rows.num_rows == 1:
                    document = rows["document_id"][0].as_py()
                    raise UserError(f"a chunk of {document} is too large for Milvus: {error}") from None
                middle = rows.num_rows // 2
                self._upsert(partition, rows.slice(0, middle))
                self._upsert(partition, rows.slice(middle))

    def _delete(self, change: ChunkChanges) -> None:
        """Rows that were not written again under the same id, and that no newer writer has written since."""
        stale = change.stale
        written: Any = pc.is_in(stale["chunk_id"], value_set=change.rows["chunk_id"])
        if self.place.remote:
            whole: Any = pc.is_in(stale["document_id"], value_set=pa.array(change.removed, pa.string()))
            self._delete_by("document_id", pc.unique(stale["document_id"].filter(whole)))
            written = pc.or_(whole, written)
        self._delete_by("chunk_id", stale["chunk_id"].filter(pc.invert(written)))
        if change.removed:
            with self.place.alone():
                self._journal.refuse(self._epoch)
                chunk_lists.remove(self.place, self.physical, change.removed)

    def _delete_by(self, field: str, values: Any) -> None:
        """Delete in few requests, so of all partitions: Milvus looks for the rows to delete, each time."""
        for at in range(0, len(values), _FILTER_IDS):
            where = f"{field} in {location.texts(values.slice(at, _FILTER_IDS).to_pylist())}"
            with self.place.alone():
                self._journal.refuse(self._epoch)
                if self.place.remote:
                    where += f" and _version <= {self._epoch:d}"
                self.place.call("delete", self._collection, filter=where, consistency_level="Strong")

    def _by_partition(self, rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The rows of each partition together, in their order."""
        coded: Any = pc.dictionary_encode(rows["document_id"])
        partitions = [self._layout.partition(each) for each in coded.dictionary.to_pylist()]
        column = pa.array(partitions, pa.string()).take(coded.indices)
        for name in sorted(set(partitions)):
            yield name, rows.filter(pc.equal(column, pa.scalar(name)))


def requests(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    sizes = partial(row_sizes, row=_ROW, number=4)
    return shared.requests(rows, sizes, most_rows=REQUEST_ROWS, most_bytes=REQUEST_BYTES)


def records(rows: pa.RecordBatch) -> list[dict[str, Any]]:
    """Rows as pymilvus takes them, with a space before and behind their words: so each stands between two. Vectors stay
    numpy's: as lists of numbers they take ten times as long.
    """
    vectors: Any = rows["vector"]
    flat = vectors.flatten().to_numpy(zero_copy_only=False)
    return [
        {**each, SEARCHED: f" {_held(each[SEARCHED])} ", "vector": vector}
        for each, vector in zip(shared.records(rows), flat.reshape(rows.num_rows, -1), strict=True)
    ]


def _held(text: str) -> str:
    """As much of a text as Milvus takes between two spaces: the words at the end of a text that fills a field may not
    be found.
    """
    if len(text) * 4 <= MAX_TEXT_BYTES - 2:
        return text
    return text.encode()[: MAX_TEXT_BYTES - 2].decode(errors="ignore")
