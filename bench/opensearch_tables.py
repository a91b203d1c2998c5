"""Rows of a table into OpenSearch: `python -m bench.opensearch_tables [--rows 1000000] [--repeats 3]`.

The same rows, ready as Arrow batches of the size that Spark's tasks get, go into an index with the same fields and
settings: through Instep's writer (which creates each row, confirms it by its id, and keeps four fields more), and by
opensearch-py's own `parallel_bulk`, whose documents are made from the batches as they are asked for, with the key as
`_id`. Both end with a refresh. They run in turn, in one process.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import psutil
import pyarrow as pa
from opensearchpy import OpenSearch, helpers
from tests.servers.opensearch import running_opensearch

from bench import report
from bench.opensearch import GOAL, Took, timed
from bench.run import say
from bench.tables import rows_of
from instep.domain.columns import FLOAT64, INT64, STRING, TIMESTAMP, Column
from instep.targets.opensearch.bulk import MAX_REQUESTS
from instep.targets.opensearch.layout import coded
from instep.targets.opensearch.tables import OpenSearchTables
from instep.targets.table_target import OWN, TableChange, TableSpec, arrow_schema

ROWS, REPEATS = 1_000_000, 3
_BATCH: Final = 50_000
_SPEC: Final = TableSpec(
    OWN,
    (
        Column("id", INT64),
        Column("path", STRING),
        Column("updated_at", TIMESTAMP),
        Column("title", STRING),
        Column("body", STRING),
        Column("weight", FLOAT64),
    ),
    ("id",),
)
_OWN: Final = [each.name for each in _SPEC.columns]


def batches(rows: int) -> list[pa.RecordBatch]:
    """Rows as the pipeline brings them to a target."""
    made = []
    for first in range(0, rows, _BATCH):
        table = rows_of(first, min(_BATCH, rows - first), datetime(2026, 1, 1, tzinfo=UTC))
        count = table.num_rows
        versions = table["updated_at"].cast(pa.int64()).combine_chunks()
        columns: list[Any] = [pa.array(["Issue@global"] * count), pa.array(["bench"] * count), versions]
        columns.append(pa.array([False] * count))
        own = [table[name].combine_chunks() for name in _OWN]
        schema = arrow_schema(_SPEC)
        arrays = [each.cast(field.type) for each, field in zip([*own, *columns], schema, strict=True)]
        made.append(pa.RecordBatch.from_arrays(arrays, schema=schema))
    return made


def actions(index: str, rows: Sequence[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in rows:
        for each in batch.select(_OWN).to_pylist():
            yield {"_op_type": "index", "_index": index, "_id": str(each["id"]), "_source": each}


def parallel(client: OpenSearch, index: str, rows: Sequence[pa.RecordBatch]) -> None:
    for done, said in helpers.parallel_bulk(client, actions(index, rows), thread_count=MAX_REQUESTS):
        assert done, said
    client.indices.refresh(index=index)


def through_instep(target: OpenSearchTables, physical: str, rows: Sequence[pa.RecordBatch]) -> None:
    base = target.fence(physical, 1)
    staged = target.writer(physical, base).stage(TableChange(OWN, each) for each in rows)
    target.commit(physical, base=base, epoch=1, attempt="1", staged=[staged], marks=[])


def measure(url: str, server: psutil.Process, rows: Sequence[pa.RecordBatch], repeats: int) -> dict[str, list[Took]]:
    target, client = OpenSearchTables(url), OpenSearch([url], timeout=120, pool_maxsize=32)
    sides: dict[str, Callable[[str, Sequence[pa.RecordBatch]], None]] = {
        "instep": partial(through_instep, target),
        "parallel_bulk": lambda physical, rows: parallel(client, coded(physical), rows),
    }
    took: dict[str, list[Took]] = {name: [] for name in sides}
    for repeat in range(repeats + 1):
        some = rows if repeat else rows[:2]  # The first round warms up.
        for name in list(sides) if repeat % 2 else list(sides)[::-1]:
            physical = f"Bench__{repeat}-{name.replace('_', '-')}"
            target.create(physical, [_SPEC])
            seen = timed(server, partial(sides[name], physical, some))
            count = sum(each.num_rows for each in some)
            assert target.rows(physical) == count, (name, target.rows(physical))
            target.drop(physical)
            if repeat:
                took[name].append(seen)
            say(f"{name}: {seen.seconds:.1f} s, client {seen.client:.1f} s, server {seen.server:.1f} s")
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    options = parser.parse_args()
    server = running_opensearch()
    took = measure(server.url(), psutil.Process(server.pid), batches(options.rows), options.repeats)
    medians = {
        name: [statistics.median(getattr(each, of) for each in runs) for of in Took.__slots__]
        for name, runs in took.items()
    }
    ratio = medians["parallel_bulk"][0] / medians["instep"][0]
    against = {"instep": [f"{ratio:.2f} x", "met" if ratio >= GOAL else "MISSED"], "parallel_bulk": ["", ""]}
    table = [
        [name, f"{options.rows / its[0]:,.0f}", *(f"{each:.1f}" for each in its), *against[name]]
        for name, its in medians.items()
    ]
    heads = ["", "rows/s", "seconds", "client CPU", "server CPU", "against parallel_bulk", f"goal {GOAL} x"]
    report.show(f"{options.rows:,} rows of a table, median of {options.repeats}", heads, table)


if __name__ == "__main__":
    main()
