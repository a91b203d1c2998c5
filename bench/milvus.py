"""Milvus for `bench.vectors`: Milvus Lite, in this process."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pymilvus import MilvusClient

from bench.environment import WORK
from bench.vector_sides import DELETED_AT_ONCE, DIMENSIONS
from instep.domain.identity import bucket_of
from instep.targets.document_target import DocumentTarget
from instep.targets.milvus import layout, location
from instep.targets.milvus.layout import Layout
from instep.targets.milvus.location import Location
from instep.targets.milvus.staging import records, requests
from instep.targets.milvus.target import MilvusTarget

_COLLECTION, _PREFIX, _BUCKETS = "Bare", "bucket", 16


class Milvus:
    """The client sends rows by the partition that they belong to, in requests as large as Instep's. Both have the file
    open, in this process: no other one can, nor needs to for a run that finds nothing changed.
    """

    name = "milvus"

    def __init__(self) -> None:
        self._file = WORK / "vectors" / "milvus.db"
        shutil.rmtree(self._file, ignore_errors=True)
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._uri = str(self._file)
        self._client = MilvusClient(self._uri)
        self._layout = Layout(DIMENSIONS, _BUCKETS, _PREFIX)

    def declared(self) -> dict[str, Any]:
        return {"type": "milvus", "uri": self._uri, "partition_prefix": _PREFIX}

    def target(self) -> DocumentTarget:
        return MilvusTarget(self._uri, prefix=_PREFIX)

    def forget(self) -> None:
        for collection in self._client.list_collections():
            for alias in self._client.list_aliases(collection)["aliases"]:
                self._client.drop_alias(alias)
            self._client.drop_collection(collection)

    def settle(self) -> None:
        """What lies in the system's memory goes to the disk."""
        os.sync()

    def insert(self, rows: Iterable[pa.RecordBatch]) -> None:
        layout.create(Location(self._uri), _COLLECTION, self._layout)
        self._put(rows)

    def index(self) -> None:
        """Nothing: it builds its indexes by itself."""

    def update(self, rows: Iterable[pa.RecordBatch], gone: Sequence[str]) -> None:
        self._put(rows)
        if gone:
            self._client.delete(_COLLECTION, ids=list(gone))

    def delete(self, document_ids: Sequence[str]) -> None:
        for at in range(0, len(document_ids), DELETED_AT_ONCE):
            portion = location.texts(document_ids[at : at + DELETED_AT_ONCE])
            self._client.delete(_COLLECTION, filter=f"document_id in {portion}")

    def rows(self) -> int:
        found = self._client.query(_COLLECTION, filter="", output_fields=["count(*)"], consistency_level="Strong")
        return int(found[0]["count(*)"])

    def close(self) -> None:
        from milvus_lite.server_manager import server_manager_instance

        self._client.close()
        server_manager_instance.release_server(self._uri)
        shutil.rmtree(self._file, ignore_errors=True)

    def _put(self, rows: Iterable[pa.RecordBatch]) -> None:
        for partition, some in _by_partition(rows, self._layout):
            for request in requests(some):
                self._client.upsert(_COLLECTION, records(request), partition_name=partition)


def _by_partition(rows: Iterable[pa.RecordBatch], layout: Layout) -> Iterator[tuple[str, pa.RecordBatch]]:
    """All rows of a partition together, as a writer does that has them all."""
    found = list(rows)
    buckets = [[bucket_of(str(each), layout.buckets) for each in batch["document_id"].to_pylist()] for batch in found]
    for bucket in range(layout.buckets):
        own = [
            batch.filter(pc.equal(pa.array(each), pa.scalar(bucket)))
            for batch, each in zip(found, buckets, strict=True)
        ]
        if any(batch.num_rows for batch in own):
            yield location.partition(layout.prefix, bucket), pa.Table.from_batches(own).combine_chunks().to_batches()[0]
