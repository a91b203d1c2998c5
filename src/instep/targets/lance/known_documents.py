"""Documents that have rows in an index, as far as this process has read them.

Files of Lance do not change. The tasks of a job's next waves begin at later versions each, and read the files that are
new to their process: to read all of them in each wave would cost more and more, the larger the index has become.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from instep.arrow.sets import ValueSet

#: Documents that are remembered at most, of all indexes: 8 bytes each.
MOST: Final = 32_000_000

_ID: Final = "document_id"


@dataclass(slots=True)
class _Index:
    """The files of an index that were read, and the documents that have rows in them."""

    files: frozenset[str] = frozenset()
    documents: ValueSet = field(default_factory=lambda: ValueSet(pa.array([], pa.string())))
    reading: threading.Lock = field(default_factory=threading.Lock)


class KnownDocuments:
    """May be shared by threads. Of an index, by its URI; `most` documents altogether."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._indexes: dict[str, _Index] = {}

    def unread(self, uri: str, dataset: Any) -> int:
        """The number of rows in files that `of` would read."""
        return sum(each.metadata.physical_rows for each in self._new(self._index(uri), _files(dataset)))

    def of(self, uri: str, dataset: Any) -> ValueSet:
        """The documents that have rows in this version, and perhaps some that had rows in others."""
        index, files = self._index(uri), _files(dataset)
        with index.reading:  # All tasks of a wave want the same.
            new = self._new(index, files)
            # An index that was dropped and made again has the name alone in common with the former.
            known = index.documents if index.files & files.keys() else ValueSet(pa.array([], pa.string()))
            found = known.with_values(_ids(dataset, new)) if new else known
            index.files, index.documents = frozenset(files), found
        self._forget()
        return found

    def _index(self, uri: str) -> _Index:
        with self._lock:
            index = self._indexes.pop(uri) if uri in self._indexes else _Index()
            self._indexes[uri] = index  # The last one that was asked for is forgotten last.
            return index

    @staticmethod
    def _new(index: _Index, files: Mapping[str, Any]) -> list[Any]:
        return [fragment for file, fragment in files.items() if file not in index.files]

    def _forget(self) -> None:
        with self._lock:
            while sum(len(each.documents) for each in self._indexes.values()) > self._most:
                del self._indexes[next(iter(self._indexes))]


#: Those of this process.
KNOWN: Final = KnownDocuments()


def _files(dataset: Any) -> dict[str, Any]:
    """The fragments of a version, by the names of their files, which are like no other."""
    return {each.metadata.files[0].path: each for each in dataset.get_fragments()}


def _ids(dataset: Any, fragments: list[Any]) -> Iterator[pa.Array[Any]]:
    """The ids of all rows of the files. What this version has deleted of them others still have: those before it, and
    all if an index is put back from a backup.
    """
    rows = dataset.scanner(columns=[_ID], fragments=fragments, include_deleted_rows=True, with_row_id=True)
    return (each[_ID] for each in rows.to_batches())
