"""Rows of a wave become rows of the tables of a graph: which, of what content, and how they are counted."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.domain.columns import BOOL, INT32, INT64, STRING, TIMESTAMP, Column
from instep.domain.counts import Counts
from instep.domain.cuts import KeyRange
from instep.domain.graph import Edge, End, GraphEntity, GraphTable, Node, graph_tables
from instep.domain.keys import key_of
from instep.domain.rows import RowColumns
from instep.domain.waves import SliceOutcome
from instep.errors import UserError
from instep.pipeline.outcomes import OUTCOME_SCHEMA, outcomes_in
from instep.pipeline.tables import routing
from instep.pipeline.tables.routing import WaveRows
from instep.pipeline.tables.writing import RowWriter, deleted_rows, needed_columns
from instep.targets.table_target import TableChange, TableSpec, Unfit

USER = (Column("user_id", INT64),)
ENTITY = GraphEntity(
    "Task",
    (
        Column("id", INT64),
        Column("path", STRING),
        Column("a.title", STRING),
        Column("by", INT32),
        Column("changed", TIMESTAMP),
        Column("gone", BOOL),
        Column("unused", STRING),
    ),
    ("id",),
    node=Node("Task", {"title": "a.title", "by": "by", "changed": "changed"}),
    edges=(Edge("AUTHOR", End("Task"), End("User", ("by",))),),
    scope="path",
)
TABLES = graph_tables(ENTITY, {"Task": (Column("id", INT64),), "User": USER})
ROWS = RowColumns(("id",), scope="path", watermark="changed", deleted="gone")
COLUMNS = needed_columns(ENTITY.columns, TABLES, ROWS, ("id",))
MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
MICROSECONDS = 1_767_225_600_000_000


@dataclass
class Kept:
    """A target in name: keeps what is staged."""

    changes: list[TableChange] = field(default_factory=list)

    def unfit(self, spec: TableSpec, rows: pa.RecordBatch) -> Iterator[Unfit]:
        """Titles and edges to 13 are not held here."""
        for name, value in (("title", "unheard of"), ("to_user_id", 13)):
            if name in rows.schema.names:
                mask = np.array([each == value for each in rows.column(name).to_pylist()], bool)
                yield Unfit(name, mask, f"the value {value}")

    def stage(self, changes: Iterator[TableChange]) -> bytes:
        self.changes.extend(changes)
        return b"staged"

    def rows(self, kind: str = "") -> list[dict[str, Any]]:
        return [row for each in self.changes if each.kind == kind for row in each.rows.to_pylist()]


def a_writer(target: Kept, **changed: Any) -> RowWriter:
    writer = RowWriter(
        tables=TABLES,
        columns=COLUMNS,
        rows=ROWS,
        slices=(WaveRows("all", KeyRange()),),
        cut_by=("id",),
        target=target,  # type: ignore[arg-type]  # as much of a target as is used
        into=target,
        base=3,
        ref="Task@1",
        instance="i",
        batch_rows=10_000,
    )
    return replace(writer, **changed)


def row(number: int | None, **changed: Any) -> dict[str, Any]:
    values = {"id": number, "path": "1/", "a.title": f"t{number}", "by": 5, "changed": MICROSECONDS, "gone": False}
    return values | changed


def batch(rows: Sequence[Mapping[str, Any]], **types: pa.DataType) -> pa.RecordBatch:
    """As Spark's Arrow gives them, under names of no account."""
    usual = {
        "id": pa.int64(),
        "path": pa.string(),
        "a.title": pa.string(),
        "by": pa.int32(),
        "changed": pa.timestamp("us", tz="UTC"),
        "gone": pa.bool_(),
    } | types
    arrays = [pa.array([each[name] for each in rows], kind) for name, kind in usual.items()]
    return pa.RecordBatch.from_arrays(arrays, [f"c{number}" for number in range(len(arrays))])


def outcomes(writer: RowWriter, *batches: pa.RecordBatch) -> dict[str, SliceOutcome]:
    (told,) = writer.write(iter(batches))
    assert told.schema == OUTCOME_SCHEMA
    assert told.column("staged").to_pylist() == [b"staged"]
    found = outcomes_in(told.column("slices")[0].as_py())
    assert all(each.counts.balanced for each in found)
    return {each.slice_id: each for each in found}


def test_a_large_batch_is_worked_on_in_pieces() -> None:
    target = Kept()
    found = outcomes(a_writer(target, batch_rows=2), batch([row(each) for each in range(5)]))
    assert found["all"].counts.written == 5
    assert [each.rows.num_rows for each in target.changes if not each.kind] == [2, 2, 1]


def test_only_columns_that_are_used_are_read() -> None:
    assert [each.name for each in COLUMNS] == ["id", "path", "a.title", "by", "changed", "gone"]


def test_a_row_becomes_a_node_and_an_edge() -> None:
    target = Kept()
    found = outcomes(a_writer(target), batch([row(1)]))
    stamp = {"_ref": "Task@1", "_instance": "i", "_version": MICROSECONDS, "_deleted": False}
    assert target.rows() == [{"id": 1, "path": "1/", "title": "t1", "by": 5, "changed": MOMENT} | stamp]
    assert target.rows("AUTHOR") == [{"id": 1, "path": "1/", "from_id": 1, "to_user_id": 5} | stamp]
    assert target.changes[1].rows.schema.field("to_user_id").type == pa.int64()
    counts = found["all"].counts
    assert counts == Counts(read=1, written=1, rows_written=2, bytes_read=counts.bytes_read)
    assert counts.bytes_read > 0


def test_a_deleted_row_is_deleted_and_so_is_its_edge() -> None:
    target = Kept()
    found = outcomes(a_writer(target), batch([row(1, gone=True), row(2, gone=None), row(3, by=None)]))
    assert [(each["id"], each["_deleted"]) for each in target.rows()] == [(1, True), (2, False), (3, False)]
    assert [(each["id"], each["_deleted"]) for each in target.rows("AUTHOR")] == [(1, True), (2, False), (3, True)]
    counts = found["all"].counts
    assert (counts.read, counts.written, counts.deleted) == (3, 2, 1)
    assert (counts.rows_written, counts.rows_deleted) == (3, 3)


def test_a_first_build_deletes_nothing() -> None:
    target = Kept()
    found = outcomes(a_writer(target, first=True), batch([row(1, gone=True), row(2), row(3, by=None)]))
    assert [each["id"] for each in target.rows()] == [2, 3]
    assert [each["id"] for each in target.rows("AUTHOR")] == [2]
    counts = found["all"].counts
    assert (counts.read, counts.written, counts.deleted) == (3, 2, 1)
    assert (counts.rows_written, counts.rows_deleted) == (3, 0)


def test_without_a_watermark_the_base_is_the_version_and_a_row_without_one_is_older_than_all() -> None:
    target = Kept()
    outcomes(a_writer(target), batch([row(1, changed=None)]))
    assert target.rows()[0]["_version"] == 0
    target = Kept()
    outcomes(a_writer(target, rows=RowColumns(("id",), deleted="gone")), batch([row(1)]))
    assert target.rows()[0]["_version"] == 3


def test_rows_of_other_slices_are_left_to_them() -> None:
    slices = (
        WaveRows("low", KeyRange(None, key_of(10))),
        WaveRows("high", KeyRange(key_of(20), None)),
    )
    target = Kept()
    batches = [batch([row(at) for at in range(start, start + 5)]) for start in range(0, 30, 5)]
    found = outcomes(a_writer(target, slices=slices), *batches)
    assert {name: each.counts.read for name, each in found.items()} == {"low": 10, "high": 10}
    assert [each["id"] for each in target.rows("AUTHOR")] == [*range(10), *range(20, 30)]
    assert outcomes(a_writer(Kept(), slices=slices[:1]), *batches[2:]) == {}
    assert list(a_writer(Kept()).write(iter([]))) == []


def test_bytes_are_shared_out_among_slices_by_rows() -> None:
    slices = (WaveRows("low", KeyRange(None, key_of(1))), WaveRows("high", KeyRange(key_of(1), None)))
    rows = batch([row(0), row(1), row(2), row(3)])
    found = outcomes(a_writer(Kept(), slices=slices), rows)
    assert found["high"].counts.bytes_read == rows.nbytes * 3 // 4
    assert found["low"].counts.bytes_read == rows.nbytes // 4


def test_rows_that_cannot_be_written_fail_alone() -> None:
    slices = (WaveRows("low", KeyRange(None, key_of(10))), WaveRows("high", KeyRange(key_of(10), None)))
    rows = [row(1), row(None), row(12, by=2**40), row(13, changed=2**61), row(14)]
    target = Kept()
    found = outcomes(a_writer(target, slices=slices), batch(rows, by=pa.int64()))
    assert [each["id"] for each in target.rows()] == [1, 14]
    assert [each["id"] for each in target.rows("AUTHOR")] == [1, 14]
    (null,) = found["low"].failures
    assert null[:4] == ("null", "Task(null)", "2026-01-01 00:00:00.000000Z", "row")
    assert null.reason == "key column 'id' is null"
    wide, late = found["high"].failures
    assert wide[:4] == ("12", "Task(12)", "2026-01-01 00:00:00.000000Z", "row")
    assert "'by' is not of the type int32" in wide.reason
    assert late[:3] == ("13", "Task(13)", "")
    assert "'changed' is not of the type timestamp" in late.reason
    assert (found["high"].counts.failed, found["high"].counts.written) == (2, 1)


def test_rows_that_the_target_cannot_hold_fail_alone_wherever_in_the_graph_they_do_not_fit() -> None:
    rows = [row(1), row(2, **{"a.title": "unheard of"}), row(3, by=13), row(None), row(4, **{"a.title": "unheard of"})]
    target = Kept()
    counted = outcomes(a_writer(target), batch(rows))["all"]
    assert [each["id"] for each in target.rows()] == [each["id"] for each in target.rows("AUTHOR")] == [1]
    assert {each.document_id: each.reason for each in counted.failures} == {
        "null": "key column 'id' is null",
        "2": "column 'a.title' has the value unheard of, which the target cannot hold",
        "3": "column 'by' has the value 13, which the target cannot hold",
        "4": "column 'a.title' has the value unheard of, which the target cannot hold",
    }
    assert (counted.counts.failed, counted.counts.written) == (4, 1)


def test_a_row_to_delete_needs_no_more_than_its_key() -> None:
    """It would stay for ever if another of its columns could keep it from being deleted."""
    gone = {"gone": True}
    unfit = [row(1, by=2**40, **gone), row(2, **{"a.title": "unheard of"}, **gone), row(3, by=13, **gone)]
    target = Kept()
    counted = outcomes(a_writer(target), batch([*unfit, row(4)], by=pa.int64()))["all"]
    assert not counted.failures
    assert (counted.counts.read, counted.counts.deleted, counted.counts.written) == (4, 3, 1)
    there = [(each["id"], each["title"], each["by"], each["_deleted"]) for each in target.rows()]
    assert there == [(1, "t1", None, True), (2, None, 5, True), (3, "t3", 13, True), (4, "t4", 5, False)]
    edges = [(each["id"], each["to_user_id"], each["_deleted"]) for each in target.rows("AUTHOR")]
    assert edges == [(1, 2**40, True), (2, 5, True), (3, None, True), (4, 5, False)]


def test_a_deletion_without_key_or_watermark_fails() -> None:
    rows = batch([row(None, gone=True), row(2, gone=True, changed=2**61), row(3)])
    counted = outcomes(a_writer(Kept()), rows)["all"]
    assert [each.document_id for each in counted.failures] == ["null", "2"]
    assert (counted.counts.failed, counted.counts.deleted, counted.counts.written) == (2, 0, 1)


def test_a_batch_of_nothing_but_failures_is_no_end() -> None:
    target = Kept()
    found = outcomes(a_writer(target), batch([row(None)] * 3), batch([row(1)]))
    assert (found["all"].counts.failed, found["all"].counts.written) == (3, 1)


def test_rows_that_failed_before_and_succeed_now_are_reported() -> None:
    failing = frozenset({"1", "2", "3", "9"})
    rows = batch([row(1), row(2, by=2**40), row(3, gone=True), row(4)], by=pa.int64())
    found = outcomes(a_writer(Kept(), failing=failing), rows)
    assert found["all"].removed == ["1", "3"]
    assert [each.document_id for each in found["all"].failures] == ["2"]


def test_too_many_failures_end_the_run_with_the_first_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "MAX_FAILURES", 5)
    rows = batch([row(None)] * 5)
    outcomes(a_writer(Kept()), rows)
    with pytest.raises(UserError, match=r"more than 5 rows.*Task\(null\): key column 'id' is null"):
        outcomes(a_writer(Kept()), rows, rows)


def test_a_writer_can_be_pickled() -> None:
    writer = a_writer(Kept(), failing=frozenset({"1"}))
    again = pickle.loads(pickle.dumps(writer))
    assert again == writer
    assert outcomes(again, batch([row(1)]))["all"].removed == ["1"]


def test_batches_are_taken_as_they_are_asked_for() -> None:
    """Nothing is gathered: memory stays that of a batch."""
    asked: list[int] = []
    taken: list[int] = []

    class Asking(Kept):
        def stage(self, changes: Iterator[TableChange]) -> bytes:
            asked.extend(len(taken) for _ in changes)
            return b"staged"

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(4):
            taken.append(number)
            yield batch([row(number)])

    list(a_writer(Asking()).write(batches()))
    # Two tables for each batch.
    assert asked == [1, 1, 2, 2, 3, 3, 4, 4]


ENDS = ("from_a", "from_b", "to_c")
EDGE = GraphTable(
    "E", tuple(Column(name, INT64) for name in ("id", *ENDS)), ("id",), None, {}, ("from_a", "from_b"), ("to_c",)
)


@given(st.lists(st.tuples(*[st.none() | st.integers(0, 1)] * 3, st.booleans())))
def test_rows_are_deleted_by_the_rule_of_the_graph(rows: list[tuple[int | None, int | None, int | None, bool]]) -> None:
    columns: dict[str, pa.Array[Any]] = {
        name: pa.array([each[at] for each in rows], pa.int64()) for at, name in enumerate(ENDS)
    }
    found = deleted_rows(EDGE, columns, np.array([each[3] for each in rows], bool)).tolist()
    assert found == [EDGE.deleted(dict(zip(ENDS, each[:3], strict=True)), deleted=each[3]) for each in rows]


def test_only_keys_that_are_wanted_are_written_and_only_those_of_the_wave() -> None:
    """They came from a queue; a scan may bring others too."""
    target = Kept()
    writer = a_writer(target, keys=(2, 3, 7), slices=(WaveRows("low", KeyRange(None, key_of(5))),))
    found = outcomes(writer, batch([row(each) for each in (1, 2, 3, 4, 7, None)]))
    assert [each["id"] for each in target.rows()] == [2, 3]
    assert (found["low"].counts.read, found["low"].counts.written) == (2, 2)
