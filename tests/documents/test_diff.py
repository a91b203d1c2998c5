"""The difference of chunks, against a model made of dictionaries."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from instep.pipeline.documents.diff import chunk_difference
from instep.targets.document_target import existing_schema

NEW = pa.schema({name: pa.string() for name in ("document_id", "chunk_id", "chunk_hash")})

chunks = st.tuples(st.sampled_from("AB"), st.integers(0, 5), st.sampled_from("xyz"))


def table(rows: list[tuple[str, int, str]], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {"document_id": document, "chunk_id": f"{document}{index}", "chunk_hash": text, "locator": place}
            for place, (document, index, text) in enumerate(rows)
        ],
        schema=schema,
    )


@given(st.lists(chunks, unique_by=lambda each: each[:2], max_size=12), st.lists(chunks, max_size=16))
def test_kept_and_added_chunks_are_exactly_the_wanted_ones(
    wanted: list[tuple[str, int, str]], stored: list[tuple[str, int, str]]
) -> None:
    difference = chunk_difference(table(wanted, NEW), table(stored, existing_schema()))
    left = [row for row, stale in zip(stored, difference.stale, strict=True) if not stale]
    added = [row for row, write in zip(wanted, difference.write, strict=True) if write]
    assert sorted(left + added) == sorted(wanted)
    assert difference.kept == len(left)
    assert len(left) == len({row[:2] for row in wanted if row in stored}), "what is there is not written again"


def test_tables_in_several_pieces_are_compared_alike() -> None:
    new = pa.concat_tables([table([("A", 0, "x")], NEW), table([("A", 1, "y")], NEW)])
    stored = pa.concat_tables([table([("A", 1, "y")], existing_schema()), table([("A", 2, "z")], existing_schema())])
    difference = chunk_difference(new, stored)
    assert difference.write.tolist() == [True, False]
    assert difference.stale.tolist() == [False, True]


def test_nothing_wanted_makes_all_stale_and_nothing_stored_makes_all_new() -> None:
    one = table([("A", 0, "x")], existing_schema())
    assert chunk_difference(NEW.empty_table(), one).stale.tolist() == [True]
    assert chunk_difference(one, existing_schema().empty_table()).write.tolist() == [True]
