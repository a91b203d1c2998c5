"""Ids and buckets of many documents."""

from __future__ import annotations

import re
from collections.abc import Iterator
from hashlib import sha256
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from instep.domain.identity import canonical_uri, document_id

#: URIs that are Python objects at once.
_AT_ONCE: Final = 50_000

#: A URI whose path stands in its canonical form as it is, whatever comes before it: no query, no fragment, nothing that
#: is refused, and a path that is one beyond doubt.
_PLAIN: Final = re.compile(
    r"([^/?#\x00-\x20\x7f]+://[^/?#\x00-\x20\x7f]*)(/[^/?#\x00-\x20\x7f][^?#\x00-\x20\x7f]*)"
).fullmatch


def document_ids(uris: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
    """As `domain.identity` has them: `document_id(canonical_uri(uri))`."""
    heads: dict[str, str] = {}
    found = [pa.array([_document_id(uri, heads) for uri in some], pa.string()) for some in _portions(uris)]
    return pa.chunked_array(found, pa.string())


def buckets_of(ids: pa.ChunkedArray[Any], buckets: int) -> npt.NDArray[np.int32]:
    """As `domain.identity.bucket_of` has them."""
    if buckets < 1:
        raise ValueError("a route needs at least one bucket")
    heads = [b"".join([sha256(each.encode()).digest()[:4] for each in some]) for some in _portions(ids)]
    return np.frombuffer(b"".join(heads), ">i4").astype(np.int32) % np.int32(buckets)


def _document_id(uri: str, heads: dict[str, str]) -> str:
    """`heads` keeps the canonical form of what comes before the path: the same for nearly all of a listing."""
    plain = _PLAIN(uri)
    if plain is None:
        return document_id(canonical_uri(uri))
    head, path = plain.groups()
    known = heads.get(head)
    if known is None:
        known = heads[head] = canonical_uri(f"{head}/x").removesuffix("/x")
    return document_id(known + path)


def _portions(values: pa.ChunkedArray[Any]) -> Iterator[list[str]]:
    for start in range(0, len(values), _AT_ONCE):
        portion: Any = values.slice(start, _AT_ONCE).to_pylist()
        yield portion
