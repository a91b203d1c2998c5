"""Rows on their way to the writer are cut no more often than they must be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from instep.pipeline.documents.embed.hashing import HashingEmbedder
from instep.pipeline.documents.vectors import Vectoriser
from instep.pipeline.documents.writing import GroupSize, Stamp, Writer, whole_documents
from instep.pipeline.engine import task_progress

_FIELDS: list[pa.Field[Any]] = [pa.field("document_id", pa.string()), pa.field("end_of_document", pa.bool_())]
SCHEMA = pa.schema(_FIELDS)


def batch(documents: Sequence[int], chunks: int = 1) -> pa.RecordBatch:
    """Documents of so many chunks each, with their end rows."""
    ids = [f"doc_{each}" for each in documents for _ in range(chunks + 1)]
    ends = [at == chunks for _ in documents for at in range(chunks + 1)]
    return pa.RecordBatch.from_arrays([pa.array(ids), pa.array(ends)], schema=SCHEMA)


def size_of(rows: int) -> GroupSize:
    size = GroupSize()
    size.rows = rows
    return size


def addresses(rows: Any) -> set[int]:
    table: Any = pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows
    return {chunk.buffers()[-1].address for chunk in table["document_id"].chunks}


def test_batches_of_whole_documents_are_groups_as_they_are() -> None:
    batches = [batch(range(at, at + 10)) for at in range(0, 40, 10)]
    groups = list(whole_documents(iter(batches), size_of(20)))
    assert [addresses(each) for each in groups] == [addresses(each) for each in batches]


def test_after_a_first_group_that_is_small_batches_are_not_cut_again() -> None:
    size = size_of(4)
    batches = [batch(range(at, at + 10)) for at in range(0, 40, 10)]
    rows = []
    for group in whole_documents(iter(batches), size):
        size.rows = 20
        rows.append(group.num_rows)
    assert rows == [4, 16, 20, 20, 20]


def test_small_batches_are_put_together_and_a_document_is_never_cut() -> None:
    halves = [half for at in range(6) for half in (batch([at], 2).slice(0, 2), batch([at], 2).slice(2))]
    groups: list[list[Any]] = [each["document_id"].to_pylist() for each in whole_documents(iter(halves), size_of(12))]
    assert groups == [[f"doc_{at}" for at in some for _ in range(3)] for some in ((0, 1), (2, 3), (4, 5))]


@pytest.mark.parametrize(("seconds", "told"), [(-1.0, [125] * 8), (1e9, [125] * 4 + [500])])
def test_documents_are_told_in_small_numbers_unless_a_batch_takes_no_time(
    monkeypatch: pytest.MonkeyPatch, seconds: float, told: list[int]
) -> None:
    monkeypatch.setattr(task_progress, "_SECONDS", seconds)
    found: list[int] = []
    rows = task_progress.watched(iter([batch(range(500)), batch(range(500, 1_000))]), found.append)
    assert sum(each.num_rows for each in rows) == 2_000
    assert found == told


def test_a_group_is_bounded_by_the_bytes_of_its_vectors() -> None:
    size = GroupSize(most=1_000)
    size.learn(1_000_000)
    assert size.rows == 1_000


@pytest.mark.parametrize(("cached", "first"), [(False, 800), (True, 500)])
def test_the_first_group_is_large_where_vectors_cost_little(
    cached: bool, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small wave is one group."""
    groups: list[int] = []

    def only_one(writer: Writer, group: pa.Table) -> None:
        groups.append(group.num_rows)
        raise KeyboardInterrupt

    monkeypatch.setattr(HashingEmbedder, "cached", cached)
    monkeypatch.setattr(Writer, "_group", only_one)
    nothing: Any = None
    writer = Writer(nothing, Vectoriser(HashingEmbedder(8)), Stamp("D", "i", 1))
    with pytest.raises(KeyboardInterrupt):
        list(writer._changes(iter([batch(range(400))])))
    assert groups == [first]
