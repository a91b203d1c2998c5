"""Qdrant in this process (Qdrant Edge) for `bench.vectors`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import qdrant_edge as edge

from bench.environment import WORK
from bench.vector_sides import DELETED_AT_ONCE, DIMENSIONS
from instep.targets.document_target import DocumentTarget
from instep.targets.qdrant.collections import TEXT_INDEX, point_id, points_of
from instep.targets.qdrant.folder import folder
from instep.targets.qdrant.target import QdrantTarget

#: Points that the client sends at once.
_AT_ONCE = 1_000
#: Kilobytes of vectors from which the engine indexes them: never, as Instep has it until the index is large.
_NEVER = 2**40


class Qdrant:
    """The engine of Qdrant itself, without a server between. Its writes are kept when it has flushed them: once, after
    all that is timed together. Here it tidies up only when it is told to; a server would do so by itself.
    """

    name = "qdrant"

    def __init__(self) -> None:
        self._folder = WORK / "vectors" / "qdrant-points"
        self._shard: Any = None
        self.forget()

    def declared(self) -> dict[str, Any]:
        return {"type": "qdrant", "uri": str(self._theirs)}

    def target(self) -> DocumentTarget:
        return QdrantTarget(str(self._theirs))

    def forget(self) -> None:
        self.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def settle(self) -> None:
        """Both open what is there, as a process that begins does. What lies in the system's memory goes to the disk,
        which a flush of either side would wait for.
        """
        self.close()
        os.sync()

    def insert(self, rows: Iterable[pa.RecordBatch]) -> None:
        self._ours.mkdir(parents=True)
        vectors = edge.EdgeVectorParams(size=DIMENSIONS, distance=edge.Distance.Cosine)
        optimizers = edge.EdgeOptimizersConfig(indexing_threshold=_NEVER)
        self._shard = edge.EdgeShard.create(str(self._ours), edge.EdgeConfig(vectors=vectors, optimizers=optimizers))
        for name, kind in _indexes().items():
            self._shard.update(edge.UpdateOperation.create_field_index(name, kind))
        self._put(rows)
        self._end()

    def index(self) -> None:
        """Nothing: up to 250,000 rows Instep has no index of neighbours."""

    def update(self, rows: Iterable[pa.RecordBatch], gone: Sequence[str]) -> None:
        self._put(rows)
        self._opened().update(edge.UpdateOperation.delete_points([point_id(each) for each in gone]))
        self._end()

    def delete(self, document_ids: Sequence[str]) -> None:
        for at in range(0, len(document_ids), DELETED_AT_ONCE):
            portion = edge.MatchAny(list(document_ids[at : at + DELETED_AT_ONCE]))
            where = edge.Filter(must=[edge.FieldCondition("document_id", match=portion)])
            self._opened().update(edge.UpdateOperation.delete_points_by_filter(where))
        self._end()

    def rows(self) -> int:
        return int(self._opened().count(edge.CountRequest(exact=True)))

    def close(self) -> None:
        """What Instep has opened in this process too."""
        if self._shard is not None:
            self._shard.close()
            self._shard = None
        folder(self._theirs).close()

    @property
    def _ours(self) -> Path:
        return self._folder / "bare"

    @property
    def _theirs(self) -> Path:
        return self._folder / "theirs"

    def _opened(self) -> Any:
        if self._shard is None:
            self._shard = edge.EdgeShard.load(str(self._ours))
        return self._shard

    def _end(self) -> None:
        self._shard.flush()
        self._shard.optimize()

    def _put(self, rows: Iterable[pa.RecordBatch]) -> None:
        for batch in rows:
            for portion in _portions(batch):
                points = points_of(portion)
                assert points.vectors is not None
                each = zip(points.ids, points.vectors.tolist(), cast("Any", points.payloads), strict=True)
                self._opened().update(edge.UpdateOperation.upsert_points([edge.Point(*one) for one in each]))


def _portions(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    for at in range(0, rows.num_rows, _AT_ONCE):
        yield rows.slice(at, _AT_ONCE)


def _indexes() -> Mapping[str, Any]:
    words = edge.TextIndexParams(**{**TEXT_INDEX, "tokenizer": edge.TokenizerType.Multilingual})
    return {"document_id": edge.PayloadSchemaType.Keyword, "_version": edge.PayloadSchemaType.Integer, "text": words}
