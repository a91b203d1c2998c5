"""SHA-256 of many contents at once, as `domain.identity` has it of one."""

from __future__ import annotations

from binascii import hexlify
from hashlib import sha256
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: Digits of a hash in hex.
WIDTH: Final = 64

_DIGEST: Final = type(sha256()).digest


def digests(contents: Any) -> bytes:
    """The hashes of bytes or texts, none of them null, one behind the other. Nothing is called for each but what hashes
    it.
    """
    return b"".join(map(_DIGEST, map(sha256, contents.cast(pa.binary()).to_pylist())))


def hashes(contents: Any) -> Any:
    """The hash of each content in hex; a null is an empty one."""
    found = hexlify(digests(_bytes(contents)))
    ends = np.arange(len(found) // WIDTH + 1, dtype=np.int32) * np.int32(WIDTH)
    return pa.StringArray.from_buffers(len(ends) - 1, pa.py_buffer(ends.data), pa.py_buffer(found))


def hashes_of_parts(*parts: Any, between: str) -> Any:
    """The hash of each row of parts (bytes, texts, or one text for all rows) with this in between."""
    columns: list[Any] = [pa.scalar(each.encode()) if isinstance(each, str) else _bytes(each) for each in parts]
    return hashes(pc.binary_join_element_wise(*columns, pa.scalar(between.encode())))


def _bytes(contents: Any) -> Any:
    flat: Any = contents.combine_chunks() if isinstance(contents, pa.ChunkedArray) else contents
    return flat.cast(pa.binary()).fill_null(b"")
