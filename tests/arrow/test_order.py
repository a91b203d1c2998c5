"""Tables are sorted by their first column, whatever their chunks."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from instep.arrow.order import sorted_by_first


@given(st.lists(st.lists(st.integers(-5, 5), max_size=4), max_size=4))
def test_rows_of_a_table_in_chunks_are_sorted_by_the_first_column(chunks: list[list[int]]) -> None:
    first = pa.chunked_array([pa.array(each, pa.int64()) for each in chunks], pa.int64())
    table = pa.table({"first": first, "place": pa.array(range(len(first)), pa.int64())})
    found = sorted_by_first([table])
    assert found.schema == table.schema
    assert sorted(found.to_pylist(), key=lambda row: row["place"]) == table.to_pylist()
    assert found["first"].to_pylist() == sorted(value for each in chunks for value in each)


def test_the_list_no_longer_holds_the_table_that_was_sorted() -> None:
    tables = [pa.table({"first": [2, 1]})]
    assert sorted_by_first(tables)["first"].to_pylist() == [1, 2]
    assert tables == []
