"""Tables: a first run, a run with few changes and one with none, beside a bare Spark job that writes the same rows.

    python -m bench.tables [--rows 5000000] [--repeats 3]

The bare job has Spark's tasks write what the target's own library makes of their batches, and the driver commit it
once: fragments of a Lance dataset, or files that ClickHouse (in this process) inserts. It keeps no record of anything.
Both sides have the same warm session, take turns, and end when a reader sees the rows.
"""

from __future__ import annotations

import argparse
import os
import pickle
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.environment import WORK, describe_machine
from bench.report import show
from instep import Instep
from instep.pipeline.engine import sparkapi
from instep.pipeline.engine.session import LazySpark
from instep.pipeline.engine.settings import SparkSettings
from instep.project import Project

FILES = 8
CHANGED = 0.001
FULL_RATIO, INCREMENTAL_RATIO = 0.8, 0.05

_SCHEMA = "staged binary"
_EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass
class Side:
    name: str
    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


def rows_of(first: int, count: int, changed: datetime) -> pa.Table:
    """As an application's table has them: a number, a namespace, a time, two texts and a measure."""
    numbers = np.arange(first, first + count)
    random = np.random.default_rng(first)
    micros = int(changed.timestamp() * 1_000_000) + (numbers - first)
    return pa.table(
        {
            "id": numbers,
            "path": pa.array(np.char.add(np.char.add("7/", (numbers % 40).astype(str)), "/")),
            "updated_at": pa.array(micros, pa.timestamp("us", "UTC")),
            "title": pa.array(np.char.add("Issue number ", numbers.astype(str))),
            "body": pa.array(np.char.add("It was changed in commit ", (numbers * 2_654_435_761 % 2**40).astype(str))),
            "weight": random.random(count),
        }
    )


def write_source(folder: Path, rows: int) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    each = -(-rows // FILES)
    for number in range(FILES):
        first = number * each
        table = rows_of(first, min(each, rows - first), _EPOCH + timedelta(hours=number))
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=250_000)


def write_change(folder: Path, rows: int, number: int) -> None:
    """Rows from all over the table, changed just now."""
    count = max(1, round(rows * CHANGED))
    table = rows_of(0, count, datetime.now(UTC))
    spread = pa.array(np.arange(count) * (rows // count))
    pq.write_table(table.set_column(0, "id", spread), folder / f"change-{number}.parquet")


def project(root: Path, target: str) -> Project:
    return Project.model_validate(
        {
            "name": "bench",
            "root": root,
            "targets": {"index": {"type": target, "uri": "index"}},
            "entities": {
                "Issue": {
                    "source": {"type": "spark", "path": "source"},
                    "key": ["id"],
                    "watermark": "updated_at",
                }
            },
        }
    )


# The bare jobs.


def bare_lance(spark: Any, source: Path, place: Path) -> None:
    import lance

    shutil.rmtree(place, ignore_errors=True)
    frame = spark.read.parquet(str(source))
    schema = pq.read_schema(next(iter(sorted(source.glob("*.parquet")))))
    uri = str(place)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from lance.fragment import write_fragments

        reader = pa.RecordBatchReader.from_batches(schema, (each.cast(schema) for each in batches))
        found = write_fragments(reader, uri, schema=schema)
        yield pa.RecordBatch.from_arrays([pa.array([pickle.dumps(found)])], names=["staged"])

    staged = sparkapi.map_in_arrow(frame, task, _SCHEMA).toArrow().column(0).to_pylist()
    fragments = [each for some in staged for each in pickle.loads(some)]
    lance.LanceDataset.commit(uri, lance.LanceOperation.Overwrite(schema, fragments))
    lance.dataset(uri).count_rows()


def bare_clickhouse(spark: Any, source: Path, place: Path) -> None:
    from chdb.session import Session

    shutil.rmtree(place, ignore_errors=True)
    staging = place / "staging"
    staging.mkdir(parents=True)
    frame = spark.read.parquet(str(source))
    folder = str(staging)

    def task(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import uuid

        path = f"{folder}/{uuid.uuid4().hex}.arrow"
        writer = None
        for each in batches:
            writer = writer or pa.ipc.new_stream(path, each.schema)
            writer.write_batch(each)
        if writer is not None:
            writer.close()
        yield pa.RecordBatch.from_arrays([pa.array([b""])], names=["staged"])

    sparkapi.map_in_arrow(frame, task, _SCHEMA).toArrow()
    session: Any = Session(str(place / "clickhouse"))  # type: ignore[no-untyped-call]  # chdb brings no types
    try:
        session.query(
            "CREATE DATABASE IF NOT EXISTS bare; CREATE TABLE bare.Issue (id Int64, path String, "
            "updated_at DateTime64(6, 'UTC'), title String, body String, weight Float64) "
            "ENGINE = ReplacingMergeTree(updated_at) ORDER BY id"
        )
        session.query(f"INSERT INTO bare.Issue SELECT * FROM file('{folder}/*.arrow', 'ArrowStream')")
        session.query("SELECT count() FROM bare.Issue")
    finally:
        session.close()


BARE = {"lance": bare_lance, "clickhouse": bare_clickhouse}


def timed(call: Callable[[], Any]) -> float:
    """The seconds of a call, which does not pay for earlier writes."""
    os.sync()
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def jobs_run(spark: Any) -> int:
    """How many jobs this session has had."""
    return int(spark.sparkContext._jsc.sc().dagScheduler().nextJobId())


def instep_run(spark: Any, declared: Project) -> None:
    (result,) = Instep(declared, spark=spark).run()
    assert result.state is None or str(result.state) == "COMPLETED", result.notes


def compare(spark: Any, target: str, rows: int, repeats: int) -> list[list[str]]:
    root = WORK / "tables" / target
    source = root / "source"
    bare, full, little = Side("bare"), Side("full"), Side("little")
    declared = project(root, target)
    for _ in range(repeats):
        write_source(source, rows)
        bare.seconds.append(timed(lambda: BARE[target](spark, source, root / "bare")))
        for made in ("index", ".instep"):
            shutil.rmtree(root / made, ignore_errors=True)
        full.seconds.append(timed(lambda: instep_run(spark, declared)))
    for number in range(repeats):
        write_change(source, rows, number)
        little.seconds.append(timed(lambda: instep_run(spark, declared)))
    before = jobs_run(spark)
    nothing = timed(lambda: instep_run(spark, declared))
    jobs = jobs_run(spark) - before
    ratio, part = bare.median / full.median, little.median / full.median
    return [
        [target, "bare Spark job", _seconds(bare), "", "", ""],
        [target, "first run", _seconds(full), f"{ratio:.2f} x bare", f"{FULL_RATIO} x", _met(ratio >= FULL_RATIO)],
        [
            target,
            f"{CHANGED:.1%} changed",
            _seconds(little),
            f"{part:.1%} of the first",
            f"{INCREMENTAL_RATIO:.0%}",
            _met(part < INCREMENTAL_RATIO),
        ],
        [target, "nothing changed", f"{nothing:.2f}", f"{jobs} Spark jobs", "0", _met(jobs == 0)],
    ]


def _seconds(side: Side) -> str:
    return f"{side.median:.2f} ({' '.join(f'{each:.2f}' for each in side.seconds)})"


def _met(is_met: bool) -> str:
    return "met" if is_met else "MISSED"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.tables", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--target", choices=list(BARE), action="append")
    options = parser.parse_args()
    machine = ", ".join(f"{name} {value}" for name, value in describe_machine().items())
    print(f"{machine}\n")
    lazy = LazySpark(SparkSettings(master="local[*]", scans=True))
    try:
        spark = lazy.get()
        for target in options.target or BARE:  # Python workers, classes and the compiler are warm on both sides.
            compare(spark, target, 200_000, 1)
        rows = [
            row for target in options.target or BARE for row in compare(spark, target, options.rows, options.repeats)
        ]
    finally:
        lazy.close()
    heads = ["target", "run", "seconds (median, all)", "", "goal", ""]
    show(f"{options.rows:,} rows of Parquet", heads, rows)


if __name__ == "__main__":
    main()
