"""Stored forms: texts that every database takes, and compressed JSON."""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from typing import Any, Final

_UNKEPT: Final = re.compile("[\0\ud800-\udfff]")
_INSTEAD: Final = "�"
_DIGEST: Final = 32

#: Characters of a document's id, and of its version.
LONGEST_ID: Final = 80
LONGEST_VERSION: Final = 255


def is_storable(text: str) -> bool:
    return _UNKEPT.search(text) is None


def storable(text: str) -> str:
    """A text for display: each character that cannot be stored becomes a replacement character."""
    return text if is_storable(text) else _UNKEPT.sub(_INSTEAD, text)


def storable_key(text: str, longest: int) -> str:
    """A text for comparison: different texts stay different. One that is too long, or cannot be stored as it is,
    becomes its beginning and a digest.
    """
    if len(text) <= longest and is_storable(text):
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    return f"{storable(text[: min(longest - _DIGEST - 1, 40)])}…{digest}"


def storable_version(text: str) -> str:
    """A version as it is stored, which is compared with that of the next listing."""
    return storable_key(text, LONGEST_VERSION)


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


def unpack(data: bytes | memoryview) -> Any:
    return json.loads(zlib.decompress(data))
