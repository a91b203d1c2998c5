"""Tables in OpenSearch on a real server: the contract, and what is OpenSearch's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pyarrow as pa
import pytest

from instep.targets.journal import now
from instep.targets.opensearch import row_lines, tables
from instep.targets.opensearch.layout import coded
from instep.targets.opensearch.row_lines import MOST_LEVELS
from instep.targets.opensearch.row_writing import OpenSearchRowWriter
from instep.targets.opensearch.tables import OpenSearchTables
from instep.targets.table_target import arrow_schema, checked_rows
from instep.testing.ownership import TableOwnership
from instep.testing.table_rows import EDGES, NODES, ODD, SPECS, Node, batch, nodes, put
from instep.testing.table_target import TableTargetContract
from tests.contracts.target_in_short import ShortTableContract
from tests.targets.opensearch.conftest import forget_all

INDEX = "Node__1"


@pytest.fixture
def target(opensearch: str) -> Iterator[OpenSearchTables]:
    target = OpenSearchTables(opensearch)
    yield target
    forget_all(target)


class OnOpenSearch:
    #: Tasks write by themselves.
    apart: ClassVar[bool] = False


@pytest.mark.proof
class TestTables(OnOpenSearch, TableTargetContract):
    """All of it."""


class TestTablesInShort(OnOpenSearch, ShortTableContract):
    pass


@pytest.mark.proof
class TestOwnership(TableOwnership):
    """With the `target` of this module."""


def stored(target: OpenSearchTables) -> int:
    """Documents, those of deleted rows included."""
    target.indexes.refresh(coded(INDEX))
    return target.indexes.count(INDEX)


def test_what_was_under_way_brings_no_swept_row_back(target: OpenSearchTables, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was looked at before, whether its epoch is over, and sent after the sweep."""
    target.create(INDEX, SPECS)
    base = put(target, INDEX, Node(1, "old", 5), Node(2, "old", 5), epoch=1, attempt="1", instance="a")
    late = target.writer(INDEX, base)
    assert isinstance(late, OpenSearchRowWriter)
    put(target, INDEX, Node(1, "new", 5), epoch=2, attempt="2", instance="b")
    target.sweep(INDEX, "b", epoch=2)
    zombies = batch(NODES, [{"id": number, "path": "1/", "title": "zombie", "_version": 9 - number} for number in (2,)])
    rows = checked_rows(NODES, arrow_schema(NODES), zombies)
    assert late._placing(NODES).put(late._items(NODES, rows), rows.num_rows) == []
    assert (stored(target), nodes(target, INDEX)) == (2, {1: "new"})
    put(target, INDEX, Node(2, "again", 1), epoch=2, attempt="3", instance="b")
    assert nodes(target, INDEX) == {1: "new", 2: "again"}
    target.delete_scope(INDEX, "1/", epoch=2)
    target.maintain(INDEX)
    assert stored(target) == 2, "they are remembered"
    monkeypatch.setattr(tables, "now", lambda: now() + 2 * 3_600_000)
    target.maintain(INDEX)
    assert stored(target) == 0, "an hour later nobody comes from then"


def test_numbers_that_json_does_not_have_are_named(target: OpenSearchTables) -> None:
    rows = batch(ODD, [{"select": "a", "a b\"c'd\\e": at, "float64": value} for at, value in enumerate(NUMBERS)])
    (unfit,) = target.unfit(ODD, rows)
    assert (unfit.column, list(unfit.rows)) == ("float64", [False, True, True, False])


def test_texts_that_are_no_objects_are_named_however_deep(target: OpenSearchTables) -> None:
    """By a mapping of a column that is an object: deeper than Python reads is not a JSON either."""
    texts = [
        '{"a": 1}',
        "[" * 3_000 + "]" * 3_000,
        '{"a":' + "[" * 3_000 + "]" * 3_000 + "}",
        "[1]",
        None,
        '{"a": NaN}',
    ]
    rows = batch(NODES, [{"id": at, "path": "1/", "title": text, "_version": 1} for at, text in enumerate(texts)])
    broken = list(row_lines.unfit(NODES, rows, {"title": {"type": "object"}}))
    assert [(each.column, list(each.rows)) for each in broken] == [("title", [False, True, True, True, False, True])]


def test_what_passes_as_an_object_is_written_from_deep_in_a_stack_too() -> None:
    fields = {"title": {"type": "object"}}

    def one(levels: int) -> pa.RecordBatch:
        text = '{"a":' + "[" * (levels - 1) + "]" * (levels - 1) + "}"
        return batch(NODES, [{"id": 1, "path": "1/", "title": text, "_version": 1}])

    def deep(frames: int) -> bytes:
        if frames:
            return deep(frames - 1)
        return row_lines.lines(NODES, one(MOST_LEVELS), fields, 0).sources[0]

    assert not list(row_lines.unfit(NODES, one(MOST_LEVELS), fields))
    assert b"[" * (MOST_LEVELS - 1) in deep(200)
    for levels in range(MOST_LEVELS + 1, 1_000, 7):
        assert list(row_lines.unfit(NODES, one(levels), fields))


NUMBERS = (1.5, float("nan"), float("-inf"), None)


def test_an_index_of_which_a_table_was_dropped_is_gone_and_can_be_made_again(target: OpenSearchTables) -> None:
    target.create("Node__1", SPECS)
    assert target.exists("Node__1")
    target.indexes.drop(EDGES.table("Node__1"))
    assert not target.exists("Node__1")
    target.create("Node__1", SPECS)
    assert target.exists("Node__1")
