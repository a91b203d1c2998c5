"""Delta and Iceberg, through Spark Connect: see `tests.servers.jars` for why it is not this Spark."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from instep.domain.keys import key_of
from instep.domain.rows import Selection, Window
from instep.pipeline.engine.sparkapi import explained
from instep.sources.tables.spark_tables import SparkTable
from instep.sources.tables.table_source import Sessions, TableSource
from tests.contracts.table_source import (
    NOW,
    Make,
    TableSourceContract,
    check_in_short,
)
from tests.contracts.table_source_rows import (
    ROWS,
    a_row,
    cuts,
    some_rows,
    table_of,
)
from tests.servers.lakes import lake_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: What Delta and Iceberg are asked for is what files are, in the same words; they take a Spark of their own.
pytestmark = [pytest.mark.spark, pytest.mark.proof]


def frame_of(table: pa.Table, folder: Path) -> DataFrame:
    """through a file: `createDataFrame` does not understand a setting of the older server."""
    path = folder / f"{uuid.uuid4()}.parquet"
    pq.write_table(table, path)
    found: DataFrame = lake_session().read.parquet(str(path))
    return found


def delta(table: pa.Table, folder: Path, name: str = "table") -> TableSource:
    path = str(folder / name)
    frame_of(table, folder).write.format("delta").mode("overwrite").save(path)
    return SparkTable("delta", (path,))


def iceberg(table: pa.Table, folder: Path, name: str = "table") -> TableSource:
    frame_of(table, folder).writeTo(f"ice.tests.`{name}`").using("iceberg").createOrReplace()
    return SparkTable("iceberg", table=f"ice.tests.`{name}`")


class LakeContract(TableSourceContract):
    written: ClassVar[Callable[..., TableSource]]

    @pytest.fixture
    def sessions(self) -> Sessions:
        return lake_session

    @pytest.fixture
    def make(self, tmp_path: Path) -> Make:
        return lambda table, *, name="table": type(self).written(table, tmp_path, name)


@pytest.mark.long
class TestDelta(LakeContract):
    # Others need a setting of the table (column mapping).
    odd_names: ClassVar[Sequence[str]] = ["plain", "with.dot", "with`tick", 'with"quote', "it's", "ünïcode", "select"]
    written = staticmethod(delta)


@pytest.mark.long
class TestIceberg(LakeContract):
    written = staticmethod(iceberg)


@pytest.mark.parametrize("written", [delta, iceberg])
def test_columns_rows_windows_and_ranges(written: Callable[..., TableSource], tmp_path: Path) -> None:
    rows = some_rows()
    check_in_short(written(table_of(rows), tmp_path), lake_session, rows)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_files_without_such_rows_are_not_read(kind: str, tmp_path: Path) -> None:
    session = lake_session()
    path = str(tmp_path / "table")
    for number in range(4):
        frame = frame_of(table_of([a_row(number * 100 + at) for at in range(100)]), tmp_path)
        if kind == "delta":
            frame.write.format("delta").mode("append").save(path)
        elif number == 0:
            frame.writeTo("ice.tests.skipped").using("iceberg").createOrReplace()
        else:
            frame.writeTo("ice.tests.skipped").append()
    source = SparkTable("delta", (path,)) if kind == "delta" else SparkTable("iceberg", table="ice.tests.skipped")
    window = Window(None, NOW)
    for one, files in zip(cuts([key_of(100), key_of(150), key_of(250)]), (1, 1, 2, 2), strict=True):
        frame = source.frame(lambda: session, ROWS, Selection(window=window, cut_by=("id",), ranges=(one,)))
        if kind == "delta":
            assert len(frame.inputFiles()) == files
        else:
            filters = explained(frame).partition("filters=")[2].splitlines()[0]
            assert ("id < 100" if one.lower is None else f"id >= {one.lower.values[0]!r}") in filters
            assert "updated <= " in filters
