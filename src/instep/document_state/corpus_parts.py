"""Parts of a corpus: its documents by the beginnings of their ids. Each part is compared by itself."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from instep.document_state.identities import BEGINNING, PREFIX, beginnings_of, heads_of

#: Documents in a part, about.
_DOCUMENTS: Final = 50_000
_MOST: Final = 4_096
_BITS: Final = 32


def parts_for(documents: int) -> int:
    """The number of parts for so many documents: a power of two."""
    return min(_MOST, 1 << (max(0, documents - 1) // _DOCUMENTS).bit_length())


def part_numbers(uris: pa.ChunkedArray[Any], parts: int) -> npt.NDArray[np.int32]:
    """The part of each document with these URIs."""
    return parts_of(heads_of(uris), parts)


def parts_of(heads: npt.NDArray[np.uint64], parts: int) -> npt.NDArray[np.int32]:
    """The part of each document whose id begins like this (`identities.heads_of`)."""
    return ((heads >> np.uint64(_BITS)) * np.uint64(parts) >> np.uint64(_BITS)).astype(np.int32)


def parts_of_ids(ids: pa.ChunkedArray[Any], parts: int) -> npt.NDArray[np.int32]:
    """The part of each document with these ids, which may be any texts: see `bounds`."""
    beginnings = beginnings_of(ids)
    if beginnings is not None:
        return parts_of(beginnings << np.uint64(64 - BEGINNING), parts)
    firsts = [bounds(part, parts)[0] for part in range(parts)]
    return np.array([bisect_right(firsts, str(each)) - 1 for each in ids.to_pylist()], np.int32)


def by_part(values: Mapping[str, str], parts: int) -> dict[int, dict[str, str]]:
    """Values by URI, for each part that has some."""
    uris: Any = pa.chunked_array([pa.array(list(values), pa.string())])
    found: dict[int, dict[str, str]] = {}
    for part, (uri, value) in zip(part_numbers(uris, parts).tolist(), values.items(), strict=True):
        found.setdefault(part, {})[uri] = value
    return found


def bounds(part: int, parts: int) -> tuple[str, str]:
    """The ids of a part: from the first of these on, and less than the second ('' is none)."""
    return _id(part, parts) if part else "", _id(part + 1, parts) if part + 1 < parts else ""


def one_by_one(pages: Iterable[pa.RecordBatch], parts: int) -> Iterator[pa.Table]:
    """The same documents, which are in the order of their ids, a part at a time: at most a page and a part are held."""
    part = 0
    held: list[pa.RecordBatch] = []
    for page in pages:
        start, ids = 0, _Ids(page)
        while part + 1 < parts and (stop := bisect_left(ids, _id(part + 1, parts), start)) < len(ids):
            yield pa.Table.from_batches([*held, page.slice(start, stop - start)])
            part, start, held = part + 1, stop, []
        held.append(page.slice(start))
    if held:
        yield pa.Table.from_batches(held)


class _Ids:
    """The ids of a batch, each made when it is looked at."""

    def __init__(self, page: pa.RecordBatch) -> None:
        self._ids = page["document_id"]

    def __len__(self) -> int:
        return len(self._ids)

    def __getitem__(self, at: int) -> str:
        return str(self._ids[at].as_py())


def _id(part: int, parts: int) -> str:
    return f"{PREFIX.decode()}{(part << _BITS) // parts:08x}"
