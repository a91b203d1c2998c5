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
from tests.servers.jars import jar
from tests.servers.mariadb import running_mariadb
from tests.servers.postgres import running_postgres
from tests.sources.tables.databases import options, put_in_mariadb
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


def rows_of(folder: Path, entity: str) -> pa.Table:
    (found,) = (folder / "index").glob(f"{entity}__*.lance")
    stored: pa.Table = lance.dataset(str(found)).to_table()
    return stored.sort_by("id")


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
    stored = rows_of(tmp_path, "Order").select(table.column_names)
    for name in table.column_names:
        assert (
            stored[name].cast(pa.string()).to_pylist()
            == table[name].cast(stored[name].type).cast(pa.string()).to_pylist()
        ), name
    (again,) = shop.run()
    assert again.counts.read == 0


@pytest.mark.spark
def test_decimals_of_databases_come_into_lance_however_many_rows_there_are(tmp_path: Path) -> None:
    """Where their values begin in what Spark hands on depends on the number of rows."""
    for driver in ("postgresql", "mariadb"):
        jar(driver).needed()
    postgres, mariadb = running_postgres(), running_mariadb()
    values = ", ".join(f"({number}, {number}.25, 'customer {number}')" for number in range(12))
    reached = {"Postgres": options(postgres), "Mariadb": put_in_mariadb(mariadb, "other", ["a"], "utf8mb4_bin")}
    for execute, database in ((postgres.execute, ""), (mariadb.execute, "sources.")):
        execute(f"DROP TABLE IF EXISTS {database}priced")
        execute(f"CREATE TABLE {database}priced (id bigint, price numeric(12,2), customer varchar(20))")
        execute(f"INSERT INTO {database}priced VALUES {values}")
    counts = (1, 7, 12)
    entities = {
        f"{name}{rows}": {
            "source": {
                "type": "spark",
                "format": "jdbc",
                "table": "priced",
                "options": how,
                "sql": f"SELECT * FROM source WHERE id < {rows}",
            },
            "key": "id",
        }
        for name, how in reached.items()
        for rows in counts
    }
    project = {"name": "shop", "targets": {"main": {"type": "lance", "uri": "index"}}, "entities": entities}
    shop = instep.Instep(instep.Project.model_validate({**project, "root": tmp_path}), spark=session())
    assert {each.state for each in shop.run()} == {JobState.COMPLETED}
    for name in reached:
        for rows in counts:
            stored = rows_of(tmp_path, f"{name}{rows}")
            assert stored["price"].to_pylist() == [Decimal(f"{number}.25") for number in range(rows)]
