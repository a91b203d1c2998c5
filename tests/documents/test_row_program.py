"""A wave of documents that are rows, as far as it needs no Spark."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from instep.domain.manifest import Action, DocumentChange, difference
from instep.domain.refs import PartitionRef
from instep.domain.rows import DocumentColumns
from instep.domain.waves import Wave, WaveSlice
from instep.pipeline.documents.chunk import Chunker
from instep.pipeline.documents.embed.hashing import HashingEmbedder
from instep.pipeline.documents.row_program import RowProgram
from instep.sources.tables.clickhouse import ClickHouseTable
from instep.sources.tables.parquet_rows import ParquetRows
from instep.sources.tables.row_documents import RowDocuments
from tests.doubles.memory_target import MemoryTarget


@pytest.fixture
def program(tmp_path: Path) -> RowProgram:
    rows = {"id": [1, 2, 3, 3, None], "body": ["one", "two", "three", "three", "none"]}
    pq.write_table(pa.table(rows), tmp_path / "rows.parquet")
    table = ParquetRows((str(tmp_path / "rows.parquet"),))
    columns = DocumentColumns(("id",), "body")
    return RowProgram(
        source=RowDocuments("T", columns, table, ClickHouseTable("no", "where")),
        chunker=Chunker(),
        embedder=HashingEmbedder(8),
        target=MemoryTarget(),
        physical="p",
        base=0,
        ref="T",
        instance="i",
        version=1,
    )


def a_wave(program: RowProgram) -> Wave:
    """All rows, and one that is gone."""
    changes = list(difference(program.source.list().documents, {}, {}, complete=True, buckets=2).changes)
    changes.append(DocumentChange(Action.DELETE, "doc_9", "table://T/9", 0, "", 0, "", "gone"))
    parts = tuple(
        WaveSlice(f"s{bucket}", 1, bucket, 1, [each for each in changes if each.bucket == bucket])
        for bucket in {each.bucket for each in changes}
    )
    return Wave("w", PartitionRef("T"), "i", "p", 1, 0, parts)


def test_deleted_and_invalid_documents_need_no_row(program: RowProgram) -> None:
    apart = pa.Table.from_batches(program.without_rows(a_wave(program)))
    assert sorted(map(str, apart["uri"].to_pylist())) == ["table://T/(null)", "table://T/3", "table://T/9"]
    # That is done where the table is not at hand.
    elsewhere = pickle.loads(pickle.dumps(program))
    done = pa.Table.from_batches(elsewhere.read(iter(apart.to_batches())))
    said = dict(zip(done["source_uri"].to_pylist(), done["failure_reason"].to_pylist(), strict=True))
    assert said == {
        "table://T/(null)": "1 row has a null in the key (id)",
        "table://T/3": "2 rows have this key (id)",
        "table://T/9": None,
    }


def test_a_task_that_meets_no_row_has_nothing_to_say(program: RowProgram) -> None:
    assert list(program.write(program.read_rows(iter(())))) == []
