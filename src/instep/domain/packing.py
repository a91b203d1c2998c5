"""Compressed JSON: the stored form of slices' work and outcomes, of which there are thousands."""

from __future__ import annotations

import json
import zlib
from typing import Any

#: What fits into a window of this size is packed with no larger one: a compressor clears its memory first, and for a
#: small value the 256 KB of the usual one take ten times as long as the packing.
_SMALL_BITS = 12
_SMALL = 1 << _SMALL_BITS
_LEVEL, _SMALL_MEMORY = 1, 5

_encode = json.JSONEncoder(separators=(",", ":")).encode


def pack(value: Any) -> bytes:
    """Zlib over JSON, readable by any zlib."""
    data = _encode(value).encode()
    if len(data) > _SMALL:
        return zlib.compress(data, _LEVEL)
    small = zlib.compressobj(_LEVEL, zlib.DEFLATED, _SMALL_BITS, _SMALL_MEMORY)
    return small.compress(data) + small.flush()


def unpack(data: bytes) -> Any:
    return json.loads(zlib.decompress(data))
