"""Rows of many parts that wait in a file, so that each part is read without the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from tempfile import TemporaryFile
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[np.int32]

#: Rows that are told apart by part at once, and so many for each part where there are many.
_TOGETHER: Final = 50_000
_OF_A_PART: Final = 50


class Spool:
    """The file has no name: nothing of it stays when this process dies."""

    def __init__(self, schema: pa.Schema, parts: int) -> None:
        self._schema, self._parts = schema, parts
        self._file = TemporaryFile(prefix="instep-")  # noqa: SIM115 - closed by `close`
        #: Of all rows that were written together, the places at which those of each part begin, and the end.
        self._edges: list[npt.NDArray[np.int64]] = []

    def close(self) -> None:
        self._file.close()

    def fill(self, batches: Iterable[tuple[pa.RecordBatch, Numbers]]) -> int:
        """Take all rows, and the part of each; returns how many there are."""
        total, rows = 0, list[tuple[pa.RecordBatch, Numbers]]()
        held = 0
        for each in batches:
            rows.append(each)
            held += len(each[1])
            if held >= max(_TOGETHER, _OF_A_PART * self._parts):
                self._write(rows)
                total, held = total + held, 0
                rows.clear()
        if held:
            self._write(rows)
        return total + held

    def _write(self, some: list[tuple[pa.RecordBatch, Numbers]]) -> None:
        parts = np.concatenate([numbers for _, numbers in some])
        order = np.argsort(parts, kind="stable")  # Of rows that are there twice the first one stays the first.
        places: Any = pa.array(order)
        (rows,) = pa.Table.from_batches([batch for batch, _ in some]).take(places).combine_chunks().to_batches()
        starts = np.searchsorted(parts[order], np.arange(self._parts + 1))
        edges = np.empty(self._parts + 1, np.int64)
        edges[0] = self._file.tell()
        for part in range(self._parts):
            here = rows.slice(starts[part], starts[part + 1] - starts[part])
            if here.num_rows:
                self._file.write(here.serialize())
            edges[part + 1] = self._file.tell()
        self._edges.append(edges)

    def part(self, number: int) -> pa.Table:
        """The rows of a part, in the order in which they came."""
        return pa.Table.from_batches(list(self._batches(number)), self._schema)

    def _batches(self, number: int) -> Iterator[pa.RecordBatch]:
        for edges in self._edges:
            start, stop = edges[number : number + 2].tolist()
            if stop > start:
                self._file.seek(start)
                yield pa.ipc.read_record_batch(pa.py_buffer(self._file.read(stop - start)), self._schema)
