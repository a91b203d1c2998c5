"""Manifest entries in columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from instep.document_state.columns import Rows, stream_of_table
from instep.document_state.identities import beginnings_of
from instep.domain.manifest import ManifestEntry, StorableEntries
from instep.domain.storable import LONGEST_ID, LONGEST_VERSION

_KINDS: Final = {"size": pa.int64(), "chunks": pa.int64(), "bucket": pa.int32(), "digest": pa.int64()}
#: Texts, and the characters that each may have.
_LONGEST: Final = {"document_id": LONGEST_ID, "uri": None, "version": LONGEST_VERSION, "document_hash": LONGEST_VERSION}


def entry_schema(names: Sequence[str] = ManifestEntry._fields) -> pa.Schema:
    """The Arrow schema of these columns of manifest entries."""
    return pa.schema([(name, _KINDS.get(name, pa.string())) for name in names])


class EntryColumns(Rows[ManifestEntry], StorableEntries):
    """Manifest entries in columns, all of them storable. `stream`: the stream of Arrow that they were read from."""

    def __init__(self, table: pa.Table, stream: bytes | None = None) -> None:
        super().__init__(table)
        self._stream = stream

    def stream(self) -> bytes:
        """The entries as a compressed stream of Arrow, made once."""
        if self._stream is None:
            self._stream = stream_of_table(self.table)
        return self._stream

    def _row(self, values: Sequence[Any]) -> ManifestEntry:
        return ManifestEntry(*values)

    def fields(self) -> Mapping[str, Sequence[Any]]:
        columns = zip(ManifestEntry._fields, self.table.columns, strict=True)
        return {name: column.to_pylist() for name, column in columns}


def entry_columns(table: pa.Table) -> EntryColumns:
    """The entries of a table of `entry_schema`, made storable where they are not. (No text of Arrow has surrogates.)"""
    odd = pa.repeat(False, table.num_rows)
    for name, longest in _LONGEST.items():
        odd = pc.or_(odd, pc.match_substring(table[name], "\0"))
        if longest is not None:
            odd = pc.or_(odd, pc.greater(pc.utf8_length(table[name]), pa.scalar(longest)))
    if not pc.any(odd, min_count=0).as_py():  # As a rule.
        return EntryColumns(table)
    mended = [each.storable() for each in EntryColumns(table.filter(odd))]
    columns = zip(*mended, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, table.schema, strict=True)]
    rest = table.filter(pc.invert(odd))
    return EntryColumns(pa.concat_tables([rest, pa.Table.from_arrays(arrays, schema=table.schema)]))


def by_id(entries: Sequence[Sequence[ManifestEntry]]) -> EntryColumns:
    """Entries that are in columns, all of them, by their ids."""
    table = pa.concat_tables([each.table for each in entries if isinstance(each, EntryColumns)])
    beginnings = beginnings_of(table["document_id"])
    if beginnings is not None:  # Numbers are sorted in a third of the time.
        order: Any = np.argsort(beginnings)
        ordered = beginnings[order]
        if np.all(ordered[1:] != ordered[:-1]):
            return EntryColumns(table.take(pa.array(order)))
    return EntryColumns(table.sort_by("document_id"))


def is_once(ordered: EntryColumns) -> bool:
    """Whether each document is there once, of entries by their ids."""
    ids: Any = ordered.table["document_id"]
    return not pc.any(pc.equal(ids[1:], ids[:-1]), min_count=0).as_py()


def joined(one: Sequence[ManifestEntry], other: Sequence[ManifestEntry]) -> Sequence[ManifestEntry]:
    """The entries of both."""
    if not one or not other:
        return one or other
    if isinstance(one, EntryColumns) and isinstance(other, EntryColumns):
        return EntryColumns(pa.concat_tables([one.table, other.table]))
    return [*one, *other]
