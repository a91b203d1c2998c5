"""Rows that were asked for, on disk until it is their turn: a table gives them in its own order."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from instep.domain.row_documents import DocumentColumns
from instep.sources.tables.row_identity import content_versions, row_uris, versions_of

_COLUMNS: list[tuple[str, pa.DataType]] = [("version", pa.string()), ("title", pa.binary()), ("text", pa.binary())]
SAID = pa.schema(_COLUMNS)


class RowSpool:
    """Used once; gone when it is closed."""

    def __init__(self, entity: str, columns: DocumentColumns) -> None:
        self._entity = entity
        self._columns = columns
        self._file: Any = None
        self._batches: list[pa.RecordBatch] = []
        self._places: dict[str, tuple[int, int]] = {}
        self._counts: dict[str, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._batches.clear()
        if self._file is not None:
            self._file.close()

    def keep(self, rows: Iterable[pa.RecordBatch], uris: Sequence[str]) -> None:
        """Of these rows those with these URIs."""
        wanted = pa.array(uris, pa.string())
        self._file = tempfile.NamedTemporaryFile()  # noqa: SIM115 - closed with the spool
        number = 0
        with pa.ipc.new_file(self._file, SAID) as writer:
            for batch in rows:
                found = row_uris(self._entity, batch.columns[: len(self._columns.key)])
                chosen: Any = pc.is_in(found, value_set=wanted)
                at = np.flatnonzero(chosen.to_numpy(zero_copy_only=False))
                if not len(at):
                    continue
                for row, uri in enumerate(map(str, found.take(at).to_pylist())):
                    self._places[uri] = (number, row)
                    self._counts[uri] = self._counts.get(uri, 0) + 1
                writer.write_batch(said_by(batch.take(at), self._columns))
                number += 1
        self._file.flush()
        reader = pa.ipc.open_file(pa.memory_map(self._file.name))
        self._batches = [reader.get_batch(at) for at in range(number)]

    def count(self, uri: str) -> int:
        return self._counts.get(uri, 0)

    def row(self, uri: str) -> tuple[str, bytes | None, bytes | None]:
        """Version, title and text."""
        number, row = self._places[uri]
        version, title, text = (column[row].as_py() for column in self._batches[number].columns)
        return version, title, text


def said_by(rows: pa.RecordBatch, columns: DocumentColumns) -> pa.RecordBatch:
    """Versions as text, titles and texts of rows: of the last columns, as far as there are any for them."""
    at = rows.num_columns - 1
    texts = rows.column(at)
    titles = rows.column(at := at - 1) if columns.title else None
    versions = versions_of(rows.column(at - 1), titles, texts) if columns.version else content_versions(titles, texts)
    shown = pa.nulls(rows.num_rows, pa.binary()) if titles is None else titles
    return pa.RecordBatch.from_arrays([versions, shown, texts], schema=SAID)
