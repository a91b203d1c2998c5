"""Ids and versions of rows that are documents, for many at once; and a spool of rows on disk."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from instep.domain.identity import content_hash, titled_content
from instep.domain.rows import NULL, SCHEME, DocumentColumns, key_part

#: Text that is the same in a URI.
_PLAIN = "^[A-Za-z0-9_.~:-]*$"
#: Versions are kept in ledgers; longer ones, and those with a NUL in it, are by their hash.
_LONGEST = 128


def row_uris(entity: str, keys: Sequence[pa.Array[Any]]) -> pa.Array[Any]:
    """The URIs of rows, as `domain.row_documents.row_uri` has them."""
    texts: list[Any] = [pa.scalar(SCHEME + entity), *map(_parts, keys), "/"]
    joined: pa.Array[Any] = pc.binary_join_element_wise(*texts, null_handling="replace", null_replacement=NULL)
    return joined


def _parts(values: pa.Array[Any]) -> pa.Array[Any]:
    if pa.types.is_integer(values.type):
        return values.cast(pa.string())
    if pa.types.is_string(values.type):
        plain: Any = pc.match_substring_regex(values, _PLAIN)
        if pc.all(plain, min_count=0).as_py():
            return values
    coded: Any = values.dictionary_encode()
    texts = pa.array([key_part(each) for each in coded.dictionary.to_pylist()], pa.string())
    return texts.take(coded.indices)


def row_versions(values: pa.Array[Any]) -> pa.Array[Any]:
    """The values of a version column as text, the same one from whatever the table is read; a null is none."""
    if pa.types.is_timestamp(values.type):
        values = values.cast(pa.timestamp("us", "UTC"), safe=False).cast(pa.int64())
    if pa.types.is_binary(values.type) or pa.types.is_large_binary(values.type):
        texts: Any = pa.array([each if each is None else each.hex() for each in values.to_pylist()], pa.string())
    else:
        texts = values.cast(pa.string())
    texts = texts.fill_null("")
    long: Any = pc.greater(pc.binary_length(texts), pa.scalar(_LONGEST))
    odd: Any = pc.or_(long, pc.match_substring(texts, "\0"))
    if not pc.any(odd, min_count=0).as_py():
        versions: pa.Array[Any] = texts
        return versions
    found: Any = texts.filter(odd)
    short = pa.array([content_hash(each.encode()) for each in found.to_pylist()], pa.string())
    replaced: pa.Array[Any] = pc.replace_with_mask(texts, odd, short)
    return replaced


def versions_of(values: pa.Array[Any], titles: pa.Array[Any] | None, texts: pa.Array[Any]) -> pa.Array[Any]:
    """The values of a version column as text. Of a row that has none its content tells whether it has changed."""
    found: Any = row_versions(values)
    if not values.null_count:
        return found  # type: ignore[no-any-return]  # of texts
    without = values.is_null()
    hashes = content_versions(None if titles is None else titles.filter(without), texts.filter(without))
    versions: pa.Array[Any] = pc.replace_with_mask(found, without, hashes)
    return versions


def content_versions(titles: pa.Array[Any] | None, texts: pa.Array[Any]) -> pa.Array[Any]:
    """The versions of rows that have no column for it: a hash of all that they say (bytes). A null says nothing."""
    if titles is None:
        return pa.array([content_hash(text or b"") for text in texts.to_pylist()], pa.string())
    pairs = zip(titles.to_pylist(), texts.to_pylist(), strict=True)
    return pa.array([content_hash(titled_content(title or b"", text or b"")) for title, text in pairs], pa.string())


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
        """Keep those of these rows with these URIs."""
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
