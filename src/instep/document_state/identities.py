"""Ids and buckets of many documents."""

from __future__ import annotations

from binascii import hexlify, unhexlify
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from instep.arrow.hashes import digests
from instep.domain.identity import canonical_uri

#: URIs that are Python objects at once.
_AT_ONCE: Final = 5_000

PREFIX: Final = b"doc_"
_BYTES: Final = 32
#: Bits of an id's hash that are compared as a number, and the digits that they are.
BEGINNING: Final = 48
_DIGITS: Final = BEGINNING // 4
_ID: Final = f"^{PREFIX.decode()}[0-9a-f]{{{2 * _BYTES}}}$"

#: What is kept of an id: half as long as its text.
DIGEST: Final = pa.binary(_BYTES)

#: A path that stands in the canonical form of a URI as it is, whatever comes before it: no query, no fragment, nothing
#: that is refused, and a path beyond doubt.
_PLAIN: Final = r"^[^/?#\x00-\x20\x7f]+://[^/?#\x00-\x20\x7f]*/[^/?#\x00-\x20\x7f][^?#\x00-\x20\x7f]*$"


def document_ids(uris: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
    """As `domain.identity` has them: `document_id(canonical_uri(uri))`."""
    return pa.chunked_array([_ids(digests(_canonical(some))) for some in _portions(uris)], pa.string())


def named(ids: Any, uris: Any) -> Any:
    """These ids of documents; of each that is null, the one that its URI gives it."""
    if not ids.null_count:
        return ids
    if ids.null_count == len(ids):
        return document_ids(uris)
    known: Any = ids.combine_chunks()
    unknown = known.is_null()
    made: Any = document_ids(uris.filter(unknown)).combine_chunks()
    return pa.chunked_array([pc.replace_with_mask(known, unknown, made)])


def routed(ids: Any, uris: Any, buckets: int) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint32] | None]:
    """The bucket of each document (see `named`, `buckets_of`), and the places of documents by bucket and id; None if
    the beginnings of the ids do not tell it. Of the ids, texts of 68 characters, those of a portion are there at once.
    """
    found, numbers = np.empty(len(ids), np.int32), np.empty(len(ids), np.uint64)
    told = buckets <= 1 << 64 - BEGINNING
    for start in range(0, len(ids), _AT_ONCE):
        some, here = named(ids.slice(start, _AT_ONCE), uris.slice(start, _AT_ONCE)), slice(start, start + _AT_ONCE)
        found[here] = buckets_of(some, buckets)
        beginnings = beginnings_of(some)
        told = told and beginnings is not None
        if beginnings is not None:
            numbers[here] = found[here].astype(np.uint64) << np.uint64(BEGINNING) | beginnings
    if not told:
        return found, None
    order = np.argsort(numbers).astype(np.uint32)
    numbers.sort()
    return found, order if np.all(numbers[1:] != numbers[:-1]) else None


def buckets_of(ids: pa.ChunkedArray[Any], buckets: int) -> npt.NDArray[np.int32]:
    """As `domain.identity.bucket_of` has them."""
    if buckets < 1:
        raise ValueError("a route needs at least one bucket")
    # Copies: a view would keep all of the digests.
    heads = [np.frombuffer(digests(some), ">i4")[:: _BYTES // 4].copy() for some in _portions(ids)]
    return (np.concatenate([np.empty(0, ">i4"), *heads]) % np.int32(buckets)).astype(np.int32)


def as_digests(ids: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any] | None:
    """The 32 bytes that each id says in hex. None if one of them is no such id."""
    if not pc.all(pc.match_substring_regex(ids, _ID), min_count=0).as_py():
        return None
    kind: Any = DIGEST
    return pa.chunked_array([_fixed(unhexlify(_joined(some).replace(PREFIX, b""))) for some in _portions(ids)], kind)


def as_ids(digests: pa.ChunkedArray[Any]) -> pa.ChunkedArray[Any]:
    """The ids that these digests stand for."""
    return pa.chunked_array([_ids(b"".join(some.to_pylist())) for some in _portions(digests)], pa.string())


def _fixed(digests: bytes) -> Any:
    return pa.FixedSizeBinaryArray.from_buffers(DIGEST, len(digests) // _BYTES, [None, pa.py_buffer(digests)])


def _joined(texts: Any) -> bytes:
    return b"".join(texts.cast(pa.binary()).to_pylist())


def heads_of(uris: pa.ChunkedArray[Any]) -> npt.NDArray[np.uint64]:
    """The first eight bytes of the ids of documents, as numbers: ids are in the order of these."""
    heads = [np.frombuffer(digests(_canonical(some)), ">u8")[:: _BYTES // 8] for some in _portions(uris)]
    return np.concatenate([np.empty(0, ">u8"), *heads]).astype(np.uint64)


def beginnings_of(ids: pa.ChunkedArray[Any]) -> npt.NDArray[np.uint64] | None:
    """The first bits of the hash that each id is, as a number, in the order of ids. None if one is no hash."""
    lengths: Any = pc.min_max(pc.binary_length(ids))
    least, most = lengths.as_py().values()
    if not len(ids):
        return np.empty(0, np.uint64)
    if least is None or least != most or least < len(PREFIX) + _DIGITS:
        return None
    found = [_beginnings(each, most) for each in ids.chunks]
    known = [each for each in found if each is not None]
    return np.concatenate(known) if len(known) == len(found) else None


def _beginnings(ids: Any, length: int) -> npt.NDArray[np.uint64] | None:
    _, offsets, data = ids.buffers()
    start = np.frombuffer(offsets, np.int32)[ids.offset]
    texts = np.frombuffer(data, np.uint8)[start : start + len(ids) * length].reshape(-1, length)
    digits = texts[:, len(PREFIX) : len(PREFIX) + _DIGITS]
    known = (digits >= ord("0")) & (digits <= ord("9")) | (digits >= ord("a")) & (digits <= ord("f"))
    if not (np.all(known) and np.all(texts[:, : len(PREFIX)] == np.frombuffer(PREFIX, np.uint8))):
        return None
    numbers = np.zeros(len(ids), np.uint64)
    for column in digits.T:
        numbers = numbers << np.uint64(4) | ((column & 15) + 9 * (column >> 6)).astype(np.uint64)
    return numbers


def _ids(found: bytes) -> Any:
    count = len(found) // _BYTES
    texts = np.empty((count, len(PREFIX) + 2 * _BYTES), np.uint8)
    texts[:, : len(PREFIX)] = np.frombuffer(PREFIX, np.uint8)
    texts[:, len(PREFIX) :] = np.frombuffer(hexlify(found), np.uint8).reshape(count, -1)
    ends = np.arange(count + 1, dtype=np.int32) * np.int32(texts.shape[1])
    return pa.StringArray.from_buffers(count, pa.py_buffer(ends.data), pa.py_buffer(texts.data))


def _canonical(uris: Any) -> Any:
    """Most listings have one scheme and one host, which are looked at once."""
    first = uris[0].as_py()
    head = first[: first.find("/", first.find("://") + 3)]
    alike = pc.and_(pc.starts_with(uris, f"{head}/"), pc.match_substring_regex(uris, _PLAIN))
    if not pc.all(alike).as_py():
        return pa.array([canonical_uri(each) for each in uris.to_pylist()], pa.string())
    known = canonical_uri(f"{head}/x").removesuffix("/x")
    return uris if known == head else pc.binary_replace_slice(uris, start=0, stop=len(head.encode()), replacement=known)


def _portions(values: pa.ChunkedArray[Any]) -> Iterator[Any]:
    for start in range(0, len(values), _AT_ONCE):
        yield values.slice(start, _AT_ONCE)
