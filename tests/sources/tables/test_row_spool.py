"""Rows that wait on disk until their documents are asked for, and the looks at a table that it takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from instep.domain.columns import INT64, ColumnType
from instep.domain.keys import Key
from instep.domain.manifest import SourceDocument
from instep.domain.rows import DocumentColumns
from instep.sources.document_source import Answer, Content, Unreadable, Vanished
from instep.sources.tables import rows as spools
from instep.sources.tables.row_documents import RowDocuments
from instep.sources.tables.rows import RowSpool

COLUMNS = DocumentColumns(key=("id",), text="text", version="version")


class Table:
    """A table in memory that counts the looks at it."""

    text = "a table"

    def __init__(self, rows: Sequence[tuple[int, str, bytes]], at_once: int = 3) -> None:
        self._rows, self._at_once = rows, at_once
        self.looks = 0

    def key_types(self, columns: DocumentColumns) -> Sequence[ColumnType]:
        return [INT64]

    def listed(self, columns: DocumentColumns) -> Iterator[pa.RecordBatch]:
        raise AssertionError("not listed here")

    def rows(self, columns: DocumentColumns, keys: Sequence[Key]) -> Iterator[pa.RecordBatch]:
        self.looks += 1
        for start in range(0, len(self._rows), self._at_once):
            ids, versions, texts = zip(*self._rows[start : start + self._at_once], strict=True)
            arrays: list[Any] = [
                pa.array(ids, pa.int64()),
                pa.array(versions, pa.string()),
                pa.array(texts, pa.binary()),
            ]
            yield pa.RecordBatch.from_arrays(arrays, ["c0", "c1", "c2"])


def read(table: Table, *documents: SourceDocument) -> list[Answer]:
    source = RowDocuments("Row", COLUMNS, table, None)
    return list(source.contents(documents, max_bytes=1_000))


def listed(*numbers: int, flaw: str = "") -> list[SourceDocument]:
    return [SourceDocument(f"table://Row/{number}", -1, "1", flaw) for number in numbers]


def said(answers: Sequence[Answer]) -> list[str]:
    return [each.data.decode() if isinstance(each, Content) else type(each).__name__ for each in answers]


def test_documents_are_answered_in_the_order_in_which_they_are_asked_for() -> None:
    rows = [(number, "1", f"text {number}".encode()) for number in range(20)]
    asked = [13, 2, 19, 0, 7, 8, 1]
    assert said(read(Table(rows), *listed(*asked))) == [f"text {number}" for number in asked]


def test_a_table_is_looked_through_once_for_all_that_are_asked_for_together() -> None:
    table = Table([(number, "1", b"text") for number in range(5_000)], at_once=1_000)
    answers = read(table, *listed(*range(5_000)))
    assert (len(answers), table.looks) == (5_000, 1)


def test_rows_that_are_gone_or_there_twice_keep_their_places_among_the_others() -> None:
    rows = [(1, "1", b"one"), (2, "1", b"two"), (4, "1", b"four"), (2, "1", b"two again"), (2, "1", b"and again")]
    documents = [*listed(1, 2, 3), *listed(4, flaw="4 rows have this key (id)"), *listed(1)]
    first, second, third, fourth, fifth = read(Table(rows, at_once=2), *documents)
    assert said([first, third, fifth]) == ["one", "Vanished", "one"]
    assert isinstance(second, Unreadable)
    assert str(second) == "3 rows have this key (id)"
    assert isinstance(fourth, Unreadable)
    assert str(fourth) == "4 rows have this key (id)"


def test_nothing_is_looked_for_where_the_listing_tells_all() -> None:
    table = Table([(1, "1", b"one")])
    assert said(read(table, *listed(1, flaw="1 row has a null in the key (id)"))) == ["Unreadable"]
    assert table.looks == 0
    assert read(table) == []


def test_a_table_without_rows_has_lost_them_all() -> None:
    assert [type(each) for each in read(Table([]), *listed(1, 2))] == [Vanished, Vanished]


def test_long_rows_are_taken_a_few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spools, "_PORTION_BYTES", 100)
    monkeypatch.setattr(spools, "_PORTION_ROWS", 4)
    texts = [b"x" * length for length in (60, 40, 1, 500, 1, 1, 1, 1, 1)]
    rows = [(number, "1", text) for number, text in enumerate(texts)]
    uris = pa.chunked_array([[f"table://Row/{number}" for number in range(len(rows))]], pa.string())
    with RowSpool("Row", COLUMNS) as spool:
        spool.keep(Table(rows).rows(COLUMNS, ()), uris)
        places = spool.places(uris)
        portions = [range(*some.indices(len(places))) for some in spool.portions(places)]
        assert [list(each) for each in portions] == [[0, 1], [2], [3], [4, 5, 6, 7], [8]]
        assert spool.rows(places[np.array([8, 3])])["text"].to_pylist() == [texts[8], texts[3]]
