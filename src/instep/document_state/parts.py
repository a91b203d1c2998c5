"""Parts of a corpus: its documents by the beginnings of their ids. Each part is compared by itself."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from instep.document_state.identities import PREFIX, heads_of

#: Documents in a part, about.
_DOCUMENTS: Final = 50_000
_MOST: Final = 4_096
_BITS: Final = 32


def parts_for(documents: int) -> int:
    """The number of parts for so many documents: a power of two."""
    return min(_MOST, 1 << (max(0, documents - 1) // _DOCUMENTS).bit_length())


def part_numbers(uris: pa.ChunkedArray[Any], parts: int) -> npt.NDArray[np.int32]:
    """The part of each document with these URIs."""
    return (heads_of(uris) * parts >> _BITS).astype(np.int32)


def bounds(part: int, parts: int) -> tuple[str, str]:
    """The ids of a part: from the first of these on, and less than the second ('' is none)."""
    return _id(part, parts), _id(part + 1, parts) if part + 1 < parts else ""


def _id(part: int, parts: int) -> str:
    return f"{PREFIX.decode()}{(part << _BITS) // parts:08x}"
