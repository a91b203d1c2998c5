"""Changes between two versions of a table, read in portions: what is left of them is what one reader finds."""

from __future__ import annotations

import pickle
import random
from collections import Counter
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from instep.domain.rows import RowColumns, Selection
from instep.domain.table_versions import Between, Unfollowable, VersionWindow
from instep.errors import UserError
from instep.sources.tables import delta_changes, delta_rows, iceberg_rows
from instep.sources.tables.delta_rows import DeltaRows
from instep.sources.tables.iceberg_rows import IcebergRows
from instep.sources.tables.lake_table import LakeTable
from instep.sources.tables.lakes import SignedRows
from instep.sources.tables.net_changes import NetChanges
from tests.e2e.lakes.tables import DeltaLake, IcebergLake, Lake, rows

KEY = RowColumns(("id",))


def _versioned(lake: Lake) -> DeltaRows | IcebergRows:
    if isinstance(lake, DeltaLake):
        return DeltaRows(lake.path)
    assert isinstance(lake, IcebergLake)
    options = {"uri": f"sqlite:///{lake.root}/catalog.db", "warehouse": f"file://{lake.root}/warehouse"}
    return IcebergRows("desk.tickets", options)


def _lakes(folder: Path) -> dict[str, Lake]:
    return {"fed": DeltaLake(folder), "delta": DeltaLake(folder, properties={}), "iceberg": IcebergLake(folder)}


@pytest.fixture(params=["fed", "delta", "iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lake:
    """Each file of a window is a portion."""
    for module in (delta_rows, iceberg_rows):
        monkeypatch.setattr(module, "WINDOW_BYTES", 1)
    return _lakes(tmp_path)[request.param]


def _lived(lake: Lake, seed: int) -> None:
    """Rows come, change, go and come back, some as they were; at times the table is written anew."""
    drawn = random.Random(seed)
    for _ in range(8):
        keys = drawn.sample(range(30), 6)
        match drawn.randrange(4):
            case 0:
                lake.change(**{f"t{key}": drawn.choice(["a", "b"]) for key in keys})
            case 1:
                lake.delete(*(key for key in keys if key in lake.tickets))
            case 2:
                lake.overwrite(rows(lake.tickets))
            case _:
                new = {key: "new" for key in keys if key not in lake.tickets}
                lake.append(rows(new))
                lake.tickets |= new


def _read(table: LakeTable, window: Selection) -> tuple[dict[int, str], set[int], int]:
    """What came and which keys are gone, as tasks find it that each read a portion in a process of their own; and how
    many of these found something.
    """
    net, come, gone, busy = table.net(KEY, window), Counter[Any](), Counter[Any](), 0
    for number in range(table.portions(window)):
        task: LakeTable = pickle.loads(pickle.dumps(table))
        found = list(task.read(KEY, window, number, net))
        assert task._known == {}, "no task reads all of the window"
        busy += any(batch.num_rows for batch, _ in found)
        for batch, went in found:
            for row, is_gone in zip(batch.to_pylist(), went.tolist(), strict=True):
                (gone if is_gone else come)[row["id"], row["body"]] += 1
    assert set(come.values()) | set(gone.values()) <= {1}, "each is found once"
    return dict(come.keys()), {key for key, _ in gone}, busy


@pytest.mark.parametrize("seed", range(6))
def test_portions_together_have_what_differs_between_two_versions(lake: Lake, seed: int) -> None:
    lake.fill(20)
    before, since = dict(lake.tickets), lake.version
    _lived(lake, seed)
    source = LakeTable(_versioned(lake))
    window = Selection(versions=VersionWindow(since, lake.version))
    come, gone, _ = _read(source.reading(source.columns()), window)
    assert come == {key: body for key, body in lake.tickets.items() if before.get(key) != body}
    assert gone == before.keys() - lake.tickets.keys()


def test_several_tasks_read_parts_of_one_window(lake: Lake) -> None:
    lake.fill(20)
    since = lake.version
    for start in (100, 200, 300):
        new = {number: f"Added {number}." for number in range(start, start + 10)}
        lake.append(rows(new))
        lake.tickets |= new
    lake.delete(3)
    source = LakeTable(_versioned(lake))
    come, gone, busy = _read(source.reading(source.columns()), Selection(versions=VersionWindow(since, lake.version)))
    assert (len(come), gone) == (30, {3})
    assert busy >= 3


@pytest.mark.parametrize("fed", ["fed", "delta"])
@pytest.mark.parametrize("seed", range(3))
def test_files_of_commits_have_the_rows_that_deltalake_finds(tmp_path: Path, fed: str, seed: int) -> None:
    lake = _lakes(tmp_path)[fed]
    assert isinstance(lake, DeltaLake)
    lake.fill(20)
    since = lake.version
    _lived(lake, seed)
    source, between = DeltaRows(lake.path), Between(since, lake.version)
    table, names = source._opened(), ["id", "body"]
    theirs, ours = Counter[Any](), Counter[Any]()
    for batch in source._feed(table, names, between, before=True):
        signs = delta_rows._signs(batch.column("_change_type"))
        theirs.update(zip(batch["id"].to_pylist(), batch["body"].to_pylist(), signs.tolist(), strict=True))
    assert source._change_files(table, between) is not None
    for number in range(source.signed_portions(between)):
        for batch, signs in source.signed(names, between, number):
            ours.update(zip(batch["id"].to_pylist(), batch["body"].to_pylist(), signs.tolist(), strict=True))
    assert ours == theirs


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.string(), ["é/ b", "a=b", None, "%20"]),
        (pa.int32(), [-1, 0, None, 2**31 - 1]),
        (pa.date32(), [date(2026, 1, 1), date(1, 1, 1), None, date(9999, 1, 1)]),
        (pa.bool_(), [True, False, None, True]),
    ],
    ids=str,
)
def test_partitions_have_their_values(
    tmp_path: Path, kind: Any, values: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_rows, "WINDOW_BYTES", 1)
    lake = DeltaLake(tmp_path)
    for number, value in enumerate([values[0], *values]):
        table = rows({number: "a"}).append_column("place", pa.array([value], kind))
        write_deltalake(lake.path, table, mode="append", partition_by=["place"])
    source, between = DeltaRows(lake.path), Between(0, lake.version)
    assert source.signed_portions(between) == 4
    found = [
        row
        for number in range(4)
        for batch, _ in source.signed(["id", "place"], between, number)
        for row in batch.to_pylist()
    ]
    assert sorted(found, key=lambda row: row["id"]) == [{"id": at, "place": each} for at, each in enumerate(values, 1)]


def test_the_log_of_a_window_is_read_once_and_by_no_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_rows, "WINDOW_BYTES", 1)
    lake, read = DeltaLake(tmp_path), list[int]()
    inner = delta_changes.actions_of

    def counted(files: Any, version: int) -> list[dict[str, Any]]:
        read.append(version)
        return inner(files, version)

    monkeypatch.setattr(delta_changes, "actions_of", counted)
    for number in range(5):
        table = rows({number: "a"}).append_column("place", pa.array(["é"]))
        write_deltalake(lake.path, table, mode="append", partition_by=["place"])
    source = LakeTable(DeltaRows(lake.path))
    come, _, busy = _read(source.reading(source.columns()), Selection(versions=VersionWindow(0, lake.version)))
    assert (len(come), busy, read) == (4, 4, [1, 2, 3, 4])


def test_partitions_by_times_which_are_written_in_several_ways_are_left_to_the_library(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path)
    for number in range(3):
        moment = pa.array([datetime(2026, 1, 1 + number, tzinfo=UTC)], pa.timestamp("us", "UTC"))
        table = rows({number: "a"}).append_column("at", moment)
        write_deltalake(lake.path, table, mode="append", partition_by=["at"])
    source, between = DeltaRows(lake.path), Between(0, lake.version)
    assert source._change_files(source._opened(), between) is None
    assert source.signed_portions(between) == 1


def test_a_column_that_came_later_is_null_in_files_without_it(tmp_path: Path) -> None:
    lake = DeltaLake(tmp_path)
    write_deltalake(lake.path, rows({0: "a"}))
    write_deltalake(lake.path, rows({1: "b"}), mode="append")
    write_deltalake(lake.path, rows({2: "c"}, more="new"), mode="append", schema_mode="merge")
    source, between = DeltaRows(lake.path), Between(0, 2)
    found = [row for batch, _ in source.signed(["id", "more"], between, 0) for row in batch.to_pylist()]
    assert found == [{"id": 1, "more": None}, {"id": 2, "more": "new"}]


def test_files_that_went_between_plan_and_wave_are_an_error_and_never_less(lake: Lake) -> None:
    lake.fill(20)
    since = lake.version
    lake.change(t3="Changed.", t30="New.")
    source = LakeTable(_versioned(lake))
    table, window = source.reading(source.columns()), Selection(versions=VersionWindow(since, lake.version))
    table.net(KEY, window)
    for file in lake.root.rglob("*.parquet"):
        file.unlink()
    with pytest.raises((Unfollowable, UserError), match=r"are not there|cannot be read"):
        _read(table, window)


def test_numbers_say_in_which_portion_each_is_met_first() -> None:
    def signed(*changes: tuple[int, int]) -> SignedRows:
        keys, signs = zip(*changes, strict=True)
        return SignedRows(pa.RecordBatch.from_arrays([pa.array(keys)], ["id"]), np.array(signs))

    net = NetChanges.of([[signed((1, -1), (2, -1))], [], [signed((1, 1)), signed((1, 1), (3, 1))]], ["id"])
    assert (net.come_in.tolist(), net.gone_in.tolist()) == ([2, 2], [0])
