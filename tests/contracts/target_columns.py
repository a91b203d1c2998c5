"""What a target promises of the declared columns of documents."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pytest

from instep.domain.document_columns import DocumentColumn, DocumentColumnType
from instep.errors import UserError
from instep.targets.document_target import ChunkChanges, DocumentTarget, column_type
from tests.contracts.target_rows import BUCKETS, DIMENSIONS, NOTHING, Content, OnOneIndex, rows_of

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

    def test_an_index_with_other_columns_is_refused(self, target: DocumentTarget) -> None:
        self.with_columns(target)
        self.with_columns(target)
        if target.kind == "transactional" and hasattr(target, "uri"):
            with pytest.raises(UserError, match="other columns"):
                target.create(self.physical, DIMENSIONS, BUCKETS, COLUMNS[1:])
