"""Parquet through Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from instep.sources.tables.spark_tables import SparkTable
from instep.sources.tables.table_source import Sessions, TableSource
from tests.contracts.table_source import Make, TableSourceContract
from tests.sources.tables.sessions import session

pytestmark = pytest.mark.spark


class TestParquet(TableSourceContract):
    @pytest.fixture
    def sessions(self) -> Sessions:
        return session

    @pytest.fixture
    def make(self, tmp_path: Path) -> Make:
        def made(table: pa.Table, *, name: str = "table") -> TableSource:
            folder = tmp_path / name
            folder.mkdir(exist_ok=True)
            # Two files, of several row groups.
            half = table.num_rows // 2
            for number, part in enumerate((table.slice(0, half), table.slice(half))):
                pq.write_table(part, folder / f"part-{number}.parquet", row_group_size=40)
            return SparkTable("parquet", (str(folder),))

        return made
