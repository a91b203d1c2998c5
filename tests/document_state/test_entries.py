"""Entries in columns, by their ids."""

from __future__ import annotations

from hashlib import sha256

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from instep.document_state.entries import EntryColumns, by_id, entry_schema, is_once
from instep.domain.manifest import ManifestEntry

_HASHED = st.integers(0, 50).map(lambda number: f"doc_{sha256(str(number).encode()).hexdigest()}")
_ALIKE = st.integers(0, 9).map(lambda number: f"doc_{'0' * 63}{number}")
_SHORT = st.sampled_from(["doc_", "doc_a", "x", "doc_" + "g" * 64])


def _entries(ids: list[str]) -> EntryColumns:
    rows = [ManifestEntry(each, "file:///a", at, "v", "h", 1, 0) for at, each in enumerate(ids)]
    columns = zip(*rows, strict=True) if rows else [()] * len(entry_schema())
    arrays = [pa.array(each, field.type) for each, field in zip(columns, entry_schema(), strict=True)]
    return EntryColumns(pa.Table.from_arrays(arrays, schema=entry_schema()))


@given(st.lists(st.lists(st.one_of(_HASHED, _ALIKE)), min_size=1), st.lists(_SHORT, max_size=2))
def test_entries_are_in_the_order_of_their_ids_and_those_of_one_id_in_that_in_which_they_came(
    parts: list[list[str]], odd: list[str]
) -> None:
    parts = [*parts, odd]
    found = by_id([_entries(each) for each in parts])
    ids = [each for part in parts for each in part]
    assert found.table["document_id"].to_pylist() == sorted(ids)
    assert is_once(found) == (len(set(ids)) == len(ids))
    places = [(at, each) for part in parts for at, each in enumerate(part)]
    assert found.table["size"].to_pylist() == [at for at, _ in sorted(places, key=lambda place: place[1])]
