"""The difference of chunks, against a model made of dictionaries."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from instep.domain.chunk_places import placed
from instep.pipeline.documents.diff import chunk_difference, placed_rows
from instep.targets.document_target import existing_schema

NEW = pa.schema([each for each in existing_schema() if each.name != "locator"])

chunks = st.tuples(st.sampled_from("AB"), st.integers(0, 5), st.sampled_from("xyz"))


def table(rows: list[tuple[str, int, str]], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(
        [
            {
                "document_id": document,
                "chunk_id": f"{document}{index}",
                "chunk_hash": text,
                "chunk_index": index,
                "locator": place,
            }
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


def test_a_chunk_at_another_place_is_written_again() -> None:
    stored = table([("A", 0, "x"), ("A", 1, "y")], existing_schema())
    new = table([("A", 0, "x"), ("A", 1, "y")], NEW).set_column(3, NEW.field(3), pa.array([0, 2], pa.int32()))
    difference = chunk_difference(new, stored)
    assert (difference.write.tolist(), difference.stale.tolist()) == ([False, True], [False, True])


DOCUMENTS = st.lists(st.lists(st.tuples(st.integers(0, 6), st.integers(-3, 6)), max_size=5), min_size=1, max_size=5)


@given(wanted=st.lists(st.lists(st.integers(0, 6), unique=True, max_size=6), max_size=5), stored=DOCUMENTS)
def test_rows_are_placed_as_the_rule_says_for_each_document(
    wanted: list[list[int]], stored: list[list[tuple[int, int]]]
) -> None:
    new = [(f"D{at}", chunk, place) for at, some in enumerate(wanted) for place, chunk in enumerate(some)]
    rows = pa.table(
        {
            "document_id": pa.array([each[0] for each in new], pa.string()),
            "chunk_id": pa.array([f"{each[0]}-{each[1]}" for each in new], pa.string()),
            "chunk_hash": pa.array(["x" for _ in new], pa.string()),
            "chunk_index": pa.array([each[2] for each in new], pa.int32()),
        },
        schema=NEW,
    )
    there = [(f"D{at}", f"D{at}-{chunk}", number) for at, some in enumerate(stored) for chunk, number in some]
    existing = pa.Table.from_pylist(
        [
            {"document_id": document, "chunk_id": chunk, "chunk_hash": "x", "chunk_index": number, "locator": at}
            for at, (document, chunk, number) in enumerate(there)
        ],
        schema=existing_schema(),
    )
    owner = np.array([int(each[0][1:]) for each in new], np.int64)
    found = placed_rows(rows, existing, owner)
    assert found.schema == NEW
    first = {chunk: number for _, chunk, number in reversed(there)}
    expected = [
        place for at, some in enumerate(wanted) for place in placed([first.get(f"D{at}-{chunk}") for chunk in some])
    ]
    assert found["chunk_index"].to_pylist() == expected
