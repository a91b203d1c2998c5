"""Rows as items of bulk requests. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from instep.targets.opensearch.layout import RENAMED

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

#: A server takes ids of so many bytes.
ID_BYTES = 512

#: Rows made into JSON at once.
_STEP = 200


@dataclass(frozen=True, slots=True)
class Item:
    """One row to write or to remove, and the lines that say so."""

    chunk_id: str
    document_id: str
    action: str
    lines: bytes


def upserts(rows: pa.RecordBatch, epoch: int) -> Iterator[Item]:
    """Of rows of `row_schema`. A vector without a direction is left out: cosine has no place for it."""
    for at in range(0, rows.num_rows, _STEP):
        part = rows.slice(at, _STEP)
        vectors = _vectors(part)
        payload = part.select([name for name in part.schema.names if name != "vector"])
        for said, vector in zip(payload.to_pylist(), vectors, strict=True):
            found = {RENAMED.get(name, name): value for name, value in said.items() if value is not None}
            if vector is not None:
                found["vector"] = vector
            head = _head("index", said["chunk_id"], epoch)
            yield Item(said["chunk_id"], said["document_id"], "index", head + json.dumps(found).encode() + b"\n")


def deletes(chunk_ids: Sequence[str], epoch: int) -> Iterator[Item]:
    for each in chunk_ids:
        yield Item(each, "", "delete", _head("delete", each, epoch))


def _head(action: str, id: str, epoch: int) -> bytes:
    """With the epoch as version: what a newer one has written or removed stays as it is."""
    said = {action: {"_id": id, "version": epoch, "version_type": "external_gte"}}
    return json.dumps(said).encode() + b"\n"


def _vectors(rows: pa.RecordBatch) -> list[list[float] | None]:

    column: Any = rows.column("vector")
    flat: np.ndarray[Any, np.dtype[np.float32]] = column.flatten().to_numpy(zero_copy_only=False)
    vectors = flat.reshape(rows.num_rows, -1)
    directed: list[bool] = (vectors != 0).any(axis=1).tolist()
    return [vector if has else None for vector, has in zip(vectors.tolist(), directed, strict=True)]
