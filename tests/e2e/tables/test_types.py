"""Types of columns: what a source has, Spark brings and a target holds is the same."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import instep
from instep.domain.jobs import JobState
from tests.sources.tables.sessions import session

PROJECT = """
name: shop
targets: {main: {type: lance, uri: index}}
entities:
  Order:
    source: {type: spark, path: orders}
    key: id
    watermark: at
"""


@pytest.mark.spark
@pytest.mark.parametrize("rows", [1, 7, 20_001])
def test_every_type_comes_through_spark_into_lance(tmp_path: Path, rows: int) -> None:
    """Whatever is before it in a message of Spark's: values of sixteen bytes begin where they begin there."""
    numbers = range(rows)
    table = pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "paid": [number % 2 == 0 for number in numbers],
            "amount": pa.array(
                [Decimal(number) / 100 if number % 5 else None for number in numbers], pa.decimal128(9, 2)
            ),
            "customer": [f"c{number}" for number in numbers],
            "exact": pa.array([Decimal(2**100 + number) for number in numbers], pa.decimal128(38, 0)),
            "count": pa.array([2**64 - 1 - number for number in numbers], pa.uint64()),
            "at": pa.array([datetime(2026, 1, 1, tzinfo=UTC)] * rows, pa.timestamp("ns", "UTC")),
        }
    )
    (tmp_path / "orders").mkdir()
    pq.write_table(table, tmp_path / "orders" / "a.parquet")
    (tmp_path / "instep.yaml").write_text(PROJECT)
    shop = instep.Instep(instep.load(tmp_path).project, spark=session())
    (result,) = shop.run()
    assert (result.state, result.counts.written) == (JobState.COMPLETED, rows)
    (found,) = (tmp_path / "index").glob("Order__*.lance")
    stored = lance.dataset(str(found)).to_table(columns=table.column_names).sort_by("id")
    for name in table.column_names:
        assert (
            stored[name].cast(pa.string()).to_pylist()
            == table[name].cast(stored[name].type).cast(pa.string()).to_pylist()
        ), name
    (again,) = shop.run()
    assert again.counts.read == 0
