"""Promises of a target about the declared columns of documents."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from instep.arrow.values import column_type
from instep.domain.document_columns import MODIFIED, DocumentColumn, DocumentColumnType
from instep.domain.filters import Contains, OneOf
from instep.domain.words import text_query
from instep.errors import UserError
from instep.targets.document_target import SEARCHED, ChunkChanges, DocumentTarget, retold_schema
from instep.testing.target_rows import BUCKETS, DIMENSIONS, NOTHING, Content, OnOneIndex, rows_of

#: A column of each type, in names that a server might have another use for.
COLUMNS: Final = tuple(DocumentColumn(f"order_{name.name.lower()}", name) for name in DocumentColumnType)

_LAST: Final = datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC)
_FIRST: Final = datetime(1, 1, 1, tzinfo=UTC)

#: Values of these columns, a document for each line.
VALUES: Final[tuple[tuple[Any, ...], ...]] = (
    (None,) * len(COLUMNS),
    ("ops", 2024, 0.5, True, datetime(2024, 5, 6, 7, 8, 9, 123_456, UTC), date(2024, 2, 29), ["b", "a", "b"], [3, 1]),
    ("", 2**63 - 1, 1.7e308, False, _LAST, date(9999, 12, 31), [""], [2**63 - 1, -(2**63)]),
    ("Ünï 'q\" \\ % 中文 😀", -(2**63), -5e-324, False, _FIRST, date(1, 1, 1), ["中,文", "a\nb", "{}", '"'], [0]),
    (
        "x" * 2_000,
        0,
        0.0,
        None,
        datetime(1969, 12, 31, tzinfo=UTC) - timedelta(microseconds=1),
        None,
        ["y"] * 900,
        None,
    ),
)


def rows_with(values: tuple[tuple[Any, ...], ...]) -> pa.RecordBatch:
    """Rows of the documents d0, d1, …, each of one chunk, with these values."""
    rows = rows_of({f"d{number}": [f"text {number}"] for number in range(len(values))})
    place = rows.schema.get_field_index("_ref")
    for at, column in enumerate(COLUMNS):
        kind = column_type(column.type)
        rows = rows.add_column(place + at, pa.field(column.name, kind), pa.array([each[at] for each in values], kind))
    return rows


def spaced_once(row: dict[str, Any]) -> dict[str, Any]:
    """A row with one space between its words: how many there are means nothing."""
    return {**row, SEARCHED: " ".join(row[SEARCHED].split())}


class ColumnsContract(OnOneIndex):
    def with_columns(self, target: DocumentTarget) -> str:
        target.create(self.physical, DIMENSIONS, BUCKETS, COLUMNS)
        return self.physical

    def put_rows(self, target: DocumentTarget, rows: pa.RecordBatch, *, epoch: int = 1) -> None:
        base = target.fence(self.physical, epoch)
        staged = target.writer(self.physical, base).stage(iter([ChunkChanges(rows, NOTHING)]))
        target.commit(self.physical, base=base, epoch=epoch, attempt=str(epoch), staged=[staged], marks=[])

    def test_values_of_columns_are_read_back(self, target: DocumentTarget) -> None:
        index = self.with_columns(target)
        self.put_rows(target, rows_with(VALUES))
        for _ in range(2):
            found = target.written(index, [f"d{number}" for number in range(len(VALUES))], COLUMNS)
            assert found.schema.names[-len(COLUMNS) :] == [each.name for each in COLUMNS]
            given = {each["document_id"]: tuple(each[column.name] for column in COLUMNS) for each in found.to_pylist()}
            assert given == {f"d{number}": values for number, values in enumerate(VALUES)}
            target.maintain(index, full=True)
        assert self.content(target, index) == Content((f"d{n}", f"text {n}") for n in range(len(VALUES)))

    def test_rows_that_are_told_anew_keep_their_vectors(self, target: DocumentTarget) -> None:
        index = self.with_columns(target)
        rows = rows_with(VALUES)
        self.put_rows(target, rows)
        target.maintain(index)
        before = self.stored(target, rows)
        anew = rows_with((VALUES[1], *VALUES[1:3], VALUES[0], *VALUES[4:]))
        base = target.fence(index, 2)
        writer = target.writer(index, base)
        some = ["d0", "d3"]
        there = writer.existing(some).sort_by("document_id")
        retold = pa.Table.from_batches([anew]).filter(pc.is_in(anew["document_id"], pa.array(some)))
        retold = retold.drop_columns("vector").append_column("locator", there["locator"]).cast(retold_schema(COLUMNS))
        retold = retold.set_column(
            retold.schema.get_field_index("chunk_hash"), retold_schema(COLUMNS).field("chunk_hash"), pa.array(["n"] * 2)
        )
        staged = [writer.stage(iter([ChunkChanges(rows.slice(0, 0), NOTHING, retold=retold)]))]
        for _ in range(2):
            target.commit(index, base=base, epoch=2, attempt="anew", staged=staged, marks=[])
        after = self.stored(target, rows)
        assert {name: row["vector"] for name, row in after.items()} == {
            name: row["vector"] for name, row in before.items()
        }
        assert {name: row["text"] for name, row in after.items()} == {f"d{n}": f"text {n}" for n in range(len(VALUES))}
        said = {name: tuple(row[each.name] for each in COLUMNS) for name, row in after.items()}
        assert said == {"d0": VALUES[1], "d1": VALUES[1], "d2": VALUES[2], "d3": VALUES[0], "d4": VALUES[4]}
        hashes = target.writer(index, target.fence(index, 3)).existing(["d0", "d1"]).sort_by("document_id")
        assert hashes["chunk_hash"].to_pylist() == ["n", rows["chunk_hash"][1].as_py()]
        target.maintain(index, full=True)
        assert self.stored(target, rows) == after

    def test_rows_are_read_whole_and_their_readers_become_fewer(self, target: DocumentTarget) -> None:
        index = self.with_columns(target)
        rows = rows_with(VALUES)
        self.put_rows(target, rows)
        before = self.stored(target, rows)
        base = target.fence(index, 2)
        writer = target.writer(index, base)
        assert writer.stored(["none"], COLUMNS).schema.equals(retold_schema(COLUMNS))
        assert writer.stored(["none"], COLUMNS).num_rows == writer.stored([], COLUMNS).num_rows == 0
        ids = [f"d{number}" for number in range(len(VALUES))]
        found = writer.stored(ids, COLUMNS).sort_by("document_id")
        assert found.schema.equals(retold_schema(COLUMNS))
        given = pa.Table.from_batches([rows]).drop_columns("vector").sort_by("document_id")
        assert list(map(spaced_once, found.drop_columns("locator").to_pylist())) == list(
            map(spaced_once, given.to_pylist())
        )

        readers, flag = f"order_{DocumentColumnType.STRINGS.name.lower()}", COLUMNS[3]
        fewer = found.filter(pc.equal(found["document_id"], pa.scalar("d1")))
        nobody = pa.array([None], pa.list_(pa.string()))
        fewer = fewer.set_column(fewer.schema.get_field_index(readers), fewer.schema.field(readers), nobody)
        staged = [writer.stage(iter([ChunkChanges(rows.slice(0, 0), NOTHING, retold=fewer)]))]
        target.commit(index, base=base, epoch=2, attempt="fewer", staged=staged, marks=[])
        target.maintain(index)
        after = self.stored(target, rows)
        assert after.pop("d1") == {**before.pop("d1"), readers: None}
        assert after == before
        for condition, wanted in (
            (Contains(DocumentColumn(readers, DocumentColumnType.STRINGS), ("a", "b")), set()),
            (Contains(DocumentColumn(readers, DocumentColumnType.STRINGS), ("y",)), {"d4"}),
            (OneOf(flag, (True,)), {"d1"}),
            (OneOf(flag, (False,)), {"d2", "d3"}),
        ):
            hits = target.search(
                index, entity="e", text=text_query("text"), vector=None, mode="text", limit=10, where=condition
            )
            assert {each.document_id for each in hits} == wanted

    def stored(self, target: DocumentTarget, rows: pa.RecordBatch) -> dict[str, dict[str, Any]]:
        found = target.written(self.physical, list(map(str, rows["document_id"].to_pylist())), COLUMNS).to_pylist()
        assert len(found) == rows.num_rows
        return {each["document_id"]: each for each in found}

    def test_a_column_that_is_not_there_is_no_null(self, target: DocumentTarget) -> None:
        index = self.with_columns(target)
        self.put_rows(target, rows_with(VALUES[:2]))
        assert target.written(index, ["d0"], [MODIFIED])["modified"].to_pylist() == [None]
        with pytest.raises(UserError):
            target.written(index, ["d0"], [DocumentColumn("order_none", DocumentColumnType.STRING)])

    def test_an_index_with_other_columns_is_refused(self, target: DocumentTarget) -> None:
        self.with_columns(target)
        self.with_columns(target)
        if target.kind == "transactional" and hasattr(target, "uri"):
            with pytest.raises(UserError, match="other columns"):
                target.create(self.physical, DIMENSIONS, BUCKETS, COLUMNS[1:])
