"""Tasks that share one look at a table read, together, what each would have read by itself."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from instep.document_state.columns import ChangeColumns, of_stream, stream_of
from instep.document_state.difference import CHANGES
from instep.domain.manifest import Action, DocumentChange
from instep.domain.refs import PartitionRef
from instep.domain.rows import DocumentColumns, row_uri
from instep.domain.waves import Wave, WaveSlice
from instep.errors import Transient
from instep.pipeline.documents import shared_scan
from instep.pipeline.documents.chunk import Chunker, Limits
from instep.pipeline.documents.reading import Reader
from instep.pipeline.documents.row_reading import RowReader
from instep.pipeline.documents.rows import change_batch, changes_together
from instep.pipeline.documents.shared_scan import SharedScan, scan_of
from instep.sources.tables.clickhouse import ClickHouseTable
from instep.sources.tables.parquet_rows import ParquetRows
from instep.sources.tables.row_documents import RowDocuments

COLUMNS = DocumentColumns(("id", "part"), "body", "title", deleted="gone")


@pytest.fixture(autouse=True)
def _few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_scan, "LEAST", 1)
    monkeypatch.setattr(shared_scan, "_AT_ONCE", 3)
    monkeypatch.setattr(shared_scan, "_TOGETHER", 5)


def write(file: Path, rows: Sequence[tuple[int, bool]], group: int = 4) -> None:
    """Rows by their numbers, and whether each is marked as deleted."""
    numbers, gone = [number for number, _ in rows], [each for _, each in rows]
    table = {
        "id": pa.array(numbers, pa.int64()),
        "part": [f"p {number % 2}" for number in numbers],
        "body": [f"text {number}" * (1 + number % 3) for number in numbers],
        "title": [f"Title {number}" for number in numbers],
        "gone": pa.array(gone, pa.bool_()),
    }
    pq.write_table(pa.table(table), file, row_group_size=group)


def reader_of(folder: Path) -> RowReader:
    source = RowDocuments("T", COLUMNS, ParquetRows((str(folder),)), ClickHouseTable("no", "where"))
    return RowReader(Reader(source, Chunker(12), Limits()), source)


def change(number: int, action: Action = Action.INSERT, flaw: str = "") -> DocumentChange:
    uri = row_uri("T", [number, f"p {number % 2}"])
    return DocumentChange(action, f"doc_{number}", uri, 7, "v", 0, "", "new", flaw)


def wave_of(*slices: Sequence[DocumentChange]) -> Wave:
    made = tuple(WaveSlice(f"s{at}", 1, 0, len(each), each) for at, each in enumerate(slices) if each)
    return Wave("w", PartitionRef("T"), "i", "p", 1, 1, made, 2)


def rows_of(batches: Any) -> list[dict[str, Any]]:
    rows = [row for batch in batches for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: (row["document_id"], row["end_of_document"], row["chunk_index"] or 0))


def in_turns(look: SharedScan) -> list[pa.RecordBatch]:
    """Two tasks take a batch in turn."""
    tasks, found = [look.batches(), look.batches()], []
    while tasks:
        task = tasks.pop(0)
        if (batch := next(task, None)) is not None:
            found.append(batch)
            tasks.append(task)
    look.close()
    return found


rows = st.lists(st.tuples(st.integers(0, 11), st.booleans()), max_size=12)


@given(
    files=st.lists(rows, min_size=1, max_size=2),
    group=st.integers(1, 5),
    wanted=st.dictionaries(st.integers(0, 13), st.sampled_from(["insert", "delete", "flaw"]), min_size=1),
    cut=st.integers(0, 13),
)
def test_what_tasks_read_together_is_what_they_would_read_by_themselves(
    files: list[list[tuple[int, bool]]], group: int, wanted: dict[int, str], cut: int
) -> None:
    changes = [
        change(each, Action.DELETE if kind == "delete" else Action.INSERT, "2 rows" if kind == "flaw" else "")
        for each, kind in sorted(wanted.items())
    ]
    with TemporaryDirectory() as folder:
        for at, some in enumerate(files):
            write(Path(folder) / f"{at}.parquet", some, group)
        reader = reader_of(Path(folder))
        wave = wave_of(changes[:cut], changes[cut:])
        alone = rows_of(reader.rows(map(change_batch, wave.slices)))
        look = scan_of(reader.source, replace(wave), reader)
        if look is None:
            assert len(changes) * shared_scan.PART < sum(map(len, files))
        else:
            assert rows_of(in_turns(look)) == alone


def in_columns(wave: Wave) -> Wave:
    """The wave with changes as a plan in a file has them."""
    return replace(wave, slices=tuple(replace(each, changes=of_stream(stream(each.changes))) for each in wave.slices))


def stream(changes: Sequence[DocumentChange]) -> bytes:
    columns = zip(*changes, strict=True)
    arrays: list[Any] = [pa.array(each).cast(field.type) for each, field in zip(columns, CHANGES, strict=True)]
    return stream_of(ChangeColumns(pa.Table.from_arrays(arrays, schema=CHANGES)))


def test_changes_of_slices_are_put_together_as_they_are_one_by_one() -> None:
    wave = wave_of([change(1), change(2, Action.DELETE)], [change(3, flaw="2 rows")])
    expected = pa.Table.from_batches(map(change_batch, wave.slices)).combine_chunks().to_batches()
    assert [changes_together(wave.slices)] == expected
    assert [changes_together(in_columns(wave).slices)] == expected
    mixed = [wave.slices[0], in_columns(wave).slices[1]]
    assert [changes_together(mixed)] == expected


def test_changes_that_are_too_much_for_one_array_are_not_read_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "rows.parquet", [(number, False) for number in range(9)])
    reader, wave = reader_of(tmp_path), in_columns(wave_of([change(1), change(2)]))
    assert scan_of(reader.source, wave, reader) is not None
    monkeypatch.setattr(shared_scan, "_MOST_BYTES", 100)
    assert scan_of(reader.source, wave, reader) is None


def test_threads_share_a_look_and_each_document_is_read_once(tmp_path: Path) -> None:
    write(tmp_path / "rows.parquet", [(number, False) for number in range(500)], 100)
    reader = reader_of(tmp_path)
    look = scan_of(reader.source, wave_of([change(number) for number in range(0, 500, 2)]), reader)
    assert look is not None
    found: list[pa.RecordBatch] = []
    threads = [threading.Thread(target=lambda: found.extend(look.batches())) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    look.close()
    ends = [row["document_id"] for row in rows_of(found) if row["end_of_document"]]
    assert sorted(ends) == sorted(f"doc_{number}" for number in range(0, 500, 2))


def test_of_a_small_part_of_a_table_each_task_looks_for_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "rows.parquet", [(number, False) for number in range(50)])
    reader = reader_of(tmp_path)
    assert scan_of(reader.source, wave_of([change(number) for number in range(6)]), reader) is None
    some = wave_of([change(number) for number in range(7)])
    assert scan_of(reader.source, some, reader) is not None
    monkeypatch.setattr(shared_scan, "LEAST", 8)
    assert scan_of(reader.source, some, reader) is None


@pytest.mark.parametrize("other", ["order", "fewer", "more"])
def test_a_table_that_changes_between_keys_and_rows_is_told(other: str, tmp_path: Path) -> None:
    """No text may stand under the id of another row."""
    there = [(number, False) for number in range(8)]
    write(tmp_path / "rows.parquet", there)
    reader = reader_of(tmp_path)
    look = scan_of(reader.source, wave_of([change(number) for number in range(8)]), reader)
    assert look is not None
    footer = pq.read_metadata(tmp_path / "rows.parquet")
    found = {"order": there[::-1], "fewer": there[:7], "more": [*there, (8, False)]}[other]
    groups = [[(number, gone) for number, gone in found[:4]], found[4:]]
    assert footer.num_row_groups == len(groups)

    class Other:
        """The same range of the table as it is now."""

        def __init__(self, number: int, rows: Sequence[tuple[int, bool]]) -> None:
            folder = tmp_path / f"other{number}"
            folder.mkdir()
            write(folder / "rows.parquet", rows, 8)
            (self._range,) = ParquetRows((str(folder),)).row_ranges(COLUMNS)

        def rows(self, most: int) -> Any:
            return list(self._range.rows(most))

    look._rows = look._read([Other(*each) for each in enumerate(groups)])  # type: ignore[misc]  # it has no keys
    with pytest.raises(Transient, match="has changed while it was read"):
        in_turns(look)
