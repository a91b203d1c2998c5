"""Rows that are read in whole columns have the outcome of those that are read one by one."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from instep.domain.document_columns import DeclaredColumn, DocumentColumn, DocumentColumnType, Origin
from instep.domain.manifest import Action, DocumentChange
from instep.domain.rows import DocumentColumns, row_uri
from instep.domain.waves import WaveSlice
from instep.pipeline.documents.chunk import Chunker, Limits
from instep.pipeline.documents.columns import ColumnReader
from instep.pipeline.documents.reading import Reader
from instep.pipeline.documents.row_reading import RowReader
from instep.pipeline.documents.rows import change_batch
from instep.sources.tables.clickhouse import ClickHouseTable
from instep.sources.tables.parquet_rows import ParquetRows
from instep.sources.tables.row_documents import RowDocuments

YEAR = DeclaredColumn(DocumentColumn("year", DocumentColumnType.INT), Origin.SOURCE, "year")
#: Texts near every edge that makes a row one that is read by itself.
ODD = [
    *(None, "", " ", "\t", "a", " a", "a ", "a\u2003", "\x1ca", "a\x85", "\u200ba", "\ufeffa", "a\ufeff"),
    *(
        "a\rb",
        "a\r\nb",
        "a\0b",
        "a\nb",
        "x" * 20,
        "x" * 21,
        "ü" * 20,
        "# Title\n\nwords",
        "one two three four five six",
    ),
    *("n" * 60, "\U0001f600" * 20, "a\x0bb"),
]
TITLES = [None, "", " ", "T", " T", "T ", "a  b", "a\tb", "a\u2003b", "\0", "ü" * 299, "x" * 301, "a\x1fb", "a\nb"]
KEYS = ["1", "a.md", "b.MARKDOWN", "c d", "e.txt", "ü", "f%", "g/h.md", ".md", "i" * 320]
texts = st.one_of(st.sampled_from(ODD), st.text(max_size=30))
titles = st.one_of(st.sampled_from(TITLES), st.text(max_size=10))
LIMITS = [Limits(), Limits(max_document_bytes=21, max_line_bytes=19), Limits(max_chunks=0), Limits(max_chunks=1)]


def reads(
    folder: Path, said: list[tuple[str, Any, Any, Any]], *, titled: bool, declared: bool, limits: Limits, known: bool
) -> tuple[list[Any], list[Any]]:
    """What both make of rows (key, text, title, year): of the same changes, one of which is a deletion, one of a row
    that is not there, and one known to be flawed.
    """
    names = ("id", "body", "subject", "year")
    kinds = [pa.string(), pa.string(), pa.string(), pa.uint64()]
    columns = zip(*said, strict=True)
    stored = {name: pa.array(each, kind) for name, each, kind in zip(names, columns, kinds, strict=True)}
    pq.write_table(pa.table(stored), folder / "rows.parquet")
    each_column = (YEAR,) if declared else ()
    table = DocumentColumns(("id",), "body", "subject" if titled else None, columns=each_column)
    source = RowDocuments("T", table, ParquetRows((str(folder),)), ClickHouseTable("no", "where"))
    reader = Reader(source, Chunker(20), limits, ColumnReader(each_column))
    uris = [row_uri("T", [key]) for key, *_ in said]
    hashes = [""] * len(uris)
    if known:  # Each other one is as it is indexed.
        before = pa.Table.from_batches(reader.rows(iter([_changes(uris, hashes)]))).to_pylist()
        of = {row["source_uri"]: row["document_hash"] for row in before if row["end_of_document"]}
        hashes = [of.get(uri) or "" if at % 2 else "" for at, uri in enumerate(uris)]
    changes = _changes(uris, hashes)
    return [_sorted(each.rows(iter([changes]))) for each in (reader, RowReader(reader, source))]  # type: ignore[return-value]


def _changes(uris: list[str], hashes: list[str]) -> pa.RecordBatch:
    changes = [
        DocumentChange(Action.INSERT, f"doc_{at}", uri, 7, "v", at % 3, hashed, "new")
        for at, (uri, hashed) in enumerate(zip(uris, hashes, strict=True))
    ]
    changes.insert(1, DocumentChange(Action.DELETE, "doc_gone", "table://T/gone", 1, "v", 0, "", "gone"))
    changes.append(DocumentChange(Action.INSERT, "doc_never", "table://T/never", 1, "v", 0, "", "new"))
    changes.append(DocumentChange(Action.INSERT, "doc_flawed", uris[0] + "x", 1, "v", 0, "", "new", "2 rows"))
    return change_batch(WaveSlice("s", 1, 0, 1, changes))


def _sorted(batches: Any) -> list[Any]:
    rows = [row for batch in batches for row in batch.to_pylist()]
    # All rows of a document lie together, the end row last.
    met: list[str] = []
    for row in rows:
        if not met or met[-1] != row["document_id"]:
            met.append(row["document_id"])
    assert len(met) == len(set(met))
    return sorted(rows, key=lambda row: (row["document_id"], row["end_of_document"], row["chunk_index"] or 0))


@given(
    said=st.lists(st.tuples(texts, titles, st.sampled_from([None, 7, 2**64 - 1])), min_size=1, max_size=12),
    titled=st.booleans(),
    declared=st.booleans(),
    limits=st.sampled_from(LIMITS),
    known=st.booleans(),
)
@example(said=[(each, "T", 7) for each in ODD], titled=False, declared=False, limits=LIMITS[0], known=True)
@example(said=[(each, "T", 7) for each in ODD], titled=False, declared=False, limits=LIMITS[0], known=False)
@example(said=[("a", each, None) for each in TITLES], titled=True, declared=True, limits=LIMITS[0], known=True)
def test_rows_in_columns_are_as_rows_one_by_one(
    said: list[tuple[Any, Any, Any]], titled: bool, declared: bool, limits: Limits, known: bool
) -> None:
    keyed = [(KEYS[at] if at < len(KEYS) else str(at), *each) for at, each in enumerate(said)]
    with TemporaryDirectory() as folder:
        one_by_one, in_columns = reads(
            Path(folder), keyed, titled=titled, declared=declared, limits=limits, known=known
        )
    assert in_columns == one_by_one


def test_a_text_that_is_not_utf8_fails_alone_among_those_in_columns(tmp_path: Path) -> None:
    rows = {"id": ["1", "2"], "body": pa.array([b"\xff", b"good"], pa.binary())}
    pq.write_table(pa.table(rows), tmp_path / "rows.parquet")
    source = RowDocuments(
        "T", DocumentColumns(("id",), "body"), ParquetRows((str(tmp_path),)), ClickHouseTable("n", "w")
    )
    reader = RowReader(Reader(source, Chunker(), Limits()), source)
    found = _sorted(reader.rows(iter([_changes(["table://T/1", "table://T/2"], ["", ""])])))
    reasons = {row["source_uri"]: row["failure_reason"] for row in found if row["end_of_document"]}
    assert reasons["table://T/1"] == "not UTF-8 at byte 0"
    assert reasons["table://T/2"] is None


@pytest.mark.parametrize("text", ["a" * 20, "ü" * 20])
def test_a_row_whose_text_is_one_chunk_is_not_read_by_itself(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(pa.table({"id": ["1"], "body": [text]}), tmp_path / "rows.parquet")
    source = RowDocuments(
        "T", DocumentColumns(("id",), "body"), ParquetRows((str(tmp_path),)), ClickHouseTable("n", "w")
    )
    monkeypatch.setattr(RowDocuments, "_content", None)
    found = _sorted(
        RowReader(Reader(source, Chunker(20), Limits()), source).rows(iter([_changes(["table://T/1"], [""])]))
    )
    assert [row["text"] for row in found if row["text"]] == [text]
