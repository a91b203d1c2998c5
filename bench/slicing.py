"""What a slice of a table reads: a range of its key, a hash of it, or no slice at all: `python -m bench.slicing`.

The rows are those of continuous-integration jobs, of several tenants, sorted by tenant and id; one tenant is read, in
four slices. Once they are in ClickHouse (in process), once in Parquet files that Spark reads. Ranges, and what is asked
for them, are the product's. Rows and bytes are what ClickHouse and Spark say that they have read from storage; all
numbers are medians over the slices. These together must give exactly the tenant's rows.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from bench import report
from instep.domain.cuts import KeyRange, balanced_cuts
from instep.domain.keys import INT64_MIN, key_of
from instep.domain.refs import Scope
from instep.domain.rows import RowColumns, Selection
from instep.pipeline.engine import sparkapi
from instep.pipeline.engine.launch import new_session
from instep.pipeline.engine.settings import SparkSettings
from instep.sources.tables.clickhouse import ClickHouseTable
from instep.sources.tables.spark_tables import SparkTable
from instep.sources.tables.table_source import Sessions, TableSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS, REPEAT, SLICES, BINS = 10_000_000, 5, 4, 4_000
FILES, ROW_GROUP = 8, 131_072
#: As many rows as ClickHouse has in a granule.
PAGE = 8_192
_PATIENCE_SECONDS = 30
LESS_THAN_HASH, OF_BASELINE = 3.9, 0.3

_REPEATED = ["traversal_path", "name", "status"]

#: Spark's web interface tells what was read. It counts nothing of what other threads read ahead, so none does.
_TOLD = {
    "spark.ui.enabled": "true",
    "spark.ui.port": "0",
    "spark.hadoop.parquet.hadoop.vectored.io.enabled": "false",
}

COLUMNS = RowColumns(key=("id", "partition_id"), scope="traversal_path")
TENANT = Selection(Scope.parse("158"))
NONE, HASH, RANGE = "no slice", "hash", "range"

#: More than half of the rows are those of the tenant. Values are as different, and as long, as in such tables.
_TABLE = """CREATE TABLE default.builds (
    traversal_path String, id Int64, partition_id Int64, project_id Int64, user_id Int64, name String,
    status LowCardinality(String), sha String, created_at DateTime64(6, 'UTC'), updated_at DateTime64(6, 'UTC'),
    seconds Float64, deleted Bool
) ENGINE = MergeTree ORDER BY (traversal_path, id, partition_id)"""
_FILL = """INSERT INTO default.builds SELECT
    ['9/', '24/', '158/', '159/', '300/', '1580/'][1 + if(number % 2 = 0, 2, intDiv(number % 12, 2))],
    number * 3 + number % 2, 100 + intDiv(number, 1000000), cityHash64(number) % 5000, cityHash64(number, 1) % 20000,
    concat('job ', toString(cityHash64(number, 2) % 300)), ['success', 'failed', 'canceled'][1 + number % 3],
    lower(hex(sipHash128(number))), toDateTime64('2024-01-01 00:00:00', 6, 'UTC') + number,
    toDateTime64('2024-01-01 00:00:00', 6, 'UTC') + number + cityHash64(number, 3) % 1000000,
    cityHash64(number, 4) % 360000 / 100, number % 50 = 0
FROM numbers({rows})"""


class Read(NamedTuple):
    """What one slice took: rows that came, rows and bytes that were read for them."""

    rows: int
    read_rows: int
    read_bytes: int
    seconds: float


@dataclass
class Side:
    """One store, and one way of slicing: all readings of each slice."""

    store: str
    slicing: str
    slices: list[list[Read]] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(each[0].rows for each in self.slices)

    @property
    def read_rows(self) -> int:
        return round(statistics.median(read.read_rows for each in self.slices for read in each))

    @property
    def read_bytes(self) -> int:
        return round(statistics.median(read.read_bytes for each in self.slices for read in each))

    @property
    def seconds(self) -> float:
        return statistics.median(read.seconds for each in self.slices for read in each)


def ranges(source: TableSource, sessions: Sessions) -> list[KeyRange]:
    found = source.histogram(sessions, COLUMNS, TENANT, ("id",), bins=BINS)
    return [each.range for each in balanced_cuts(found.bins, SLICES)]


def sliced(one: KeyRange) -> Selection:
    return Selection(TENANT.scope, None, ("id",), (one,))


# -- ClickHouse ---------------------------------------------------------------------------------


def clickhouse(folder: Path, repeat: int) -> list[Side]:
    from chdb.state.sqlitelike import connect

    source = ClickHouseTable(str(folder), "builds")
    cuts = ranges(source, _no_spark)
    asked: dict[str, list[tuple[str, dict[str, Any]]]] = {RANGE: [_question(source, sliced(one)) for one in cuts]}
    whole, values = _question(source, sliced(KeyRange(key_of(INT64_MIN))))
    asked[NONE] = [(whole, values)]
    asked[HASH] = [(f"{whole} AND cityHash64(id) % {SLICES} = {number}", values) for number in range(SLICES)]
    connection = connect(str(folder))
    sides = []
    for slicing in (NONE, HASH, RANGE):
        side = Side("ClickHouse", slicing)
        for sql, bound in asked[slicing]:
            count = f"SELECT count() FROM ({sql})"
            rows = int(connection.query(count, "CSV", params=bound).data())
            reads = []
            for _ in range(repeat):
                done = connection.query(sql, "Null", params=bound)
                reads.append(Read(rows, done.storage_rows_read(), done.storage_bytes_read(), done.elapsed()))
            side.slices.append(reads)
        sides.append(side)
    connection.close()
    return sides


def fill_clickhouse(folder: Path, rows: int) -> None:
    from chdb.state.sqlitelike import connect

    connection = connect(str(folder))
    for sql in (_TABLE, _FILL.format(rows=rows), "OPTIMIZE TABLE default.builds FINAL"):
        connection.query(sql)
    connection.close()


def _question(source: ClickHouseTable, selection: Selection) -> tuple[str, dict[str, Any]]:
    _, (question,) = source.queries(_no_spark, COLUMNS, selection)
    return question.sql, dict(question.values)


def _no_spark() -> SparkSession:
    raise AssertionError("ClickHouse is asked without Spark")


# -- Parquet ------------------------------------------------------------------------------------


def fill_parquet(builds: Path, folder: Path, rows: int) -> None:
    """The same rows in the same order."""
    from chdb.state.sqlitelike import connect

    folder.mkdir()
    connection = connect(str(builds))
    order = "SELECT * FROM default.builds ORDER BY traversal_path, id, partition_id"
    with connection.send_query(f"{order} SETTINGS max_block_size = {ROW_GROUP}", "Arrow") as answer:
        batches: Iterator[pa.RecordBatch] = iter(answer.record_batch(rows_per_batch=ROW_GROUP))
        for number in range(FILES):
            _write(folder / f"part-{number:02}.parquet", batches, rows // FILES)
    connection.close()


def _write(path: Path, batches: Iterator[pa.RecordBatch], rows: int) -> None:
    """Pages are indexed, and only what repeats has a dictionary, as Spark's own writer does it."""
    written = 0
    writer: pq.ParquetWriter | None = None
    for batch in batches:
        writer = writer or pq.ParquetWriter(
            path,
            batch.schema,
            use_dictionary=_REPEATED,  # type: ignore[arg-type]  # the stubs know no list of columns
            write_page_index=True,
            max_rows_per_page=PAGE,
        )
        writer.write_batch(batch, row_group_size=ROW_GROUP)
        written += batch.num_rows
        if written >= rows:
            break
    if writer is not None:
        writer.close()


def parquet(folder: Path, repeat: int) -> list[Side]:
    session = new_session(SparkSettings(master="local[2]", config=_TOLD))
    try:
        source = SparkTable("parquet", (str(folder),))
        cuts = ranges(source, lambda: session)
        whole = source.frame(lambda: session, COLUMNS, TENANT)
        frames = {
            NONE: [whole],
            HASH: [whole.where(f"pmod(xxhash64(id), {SLICES}) = {number}") for number in range(SLICES)],
            RANGE: [source.frame(lambda: session, COLUMNS, sliced(one)) for one in cuts],
        }
        # The first run of a session is slow.
        _side(session, NONE, [whole], 1)
        return [_side(session, slicing, frames[slicing], repeat) for slicing in (NONE, HASH, RANGE)]
    finally:
        sparkapi.stop(session)


def _side(session: SparkSession, slicing: str, frames: Sequence[Any], repeat: int) -> Side:
    side = Side("Parquet", slicing)
    for frame in frames:
        rows = frame.count()
        side.slices.append([_timed(session, frame, rows) for _ in range(repeat)])
    return side


def _timed(session: SparkSession, frame: Any, rows: int) -> Read:
    group = uuid.uuid4().hex
    with sparkapi.grouped(session, group, "default"):
        began = time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        seconds = time.perf_counter() - began
    (job,) = _told(session, "jobs", lambda each: each.get("jobGroup") == group)
    stages = _told(session, "stages", lambda each: each["stageId"] in job["stageIds"])
    read_rows, read_bytes = (sum(stage[name] for stage in stages) for name in ("inputRecords", "inputBytes"))
    return Read(rows, read_rows, read_bytes, seconds)


def _told(session: SparkSession, kind: str, wanted: Callable[[dict[str, Any]], bool]) -> list[dict[str, Any]]:
    """Jobs or stages. The interface hears of their end a moment after it."""
    context = session.sparkContext
    address = f"{context.uiWebUrl}/api/v1/applications/{context.applicationId}/{kind}"
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while time.monotonic() < deadline:
        with urllib.request.urlopen(address) as answer:
            found = [each for each in json.load(answer) if wanted(each)]
        if found and all(each["status"] in {"SUCCEEDED", "COMPLETE", "SKIPPED"} for each in found):
            return found
        time.sleep(0.05)
    raise SystemExit(f"Spark's web interface does not tell how its {kind} ended")


# -- results ------------------------------------------------------------------------------------


def result_rows(sides: Sequence[Side]) -> tuple[list[str], list[list[str]]]:
    heads = ["store", "slices by", "rows read", "bytes read", "of no slice", "seconds", "rows of all slices"]
    whole = {side.store: side.read_bytes for side in sides if side.slicing == NONE}
    rows = [
        [
            side.store,
            side.slicing,
            f"{side.read_rows:,}",
            f"{side.read_bytes / 2**20:,.1f} MiB",
            f"{side.read_bytes / whole[side.store]:.2f}",
            f"{side.seconds:.2f}",
            f"{side.rows:,}",
        ]
        for side in sides
    ]
    return heads, rows


def goals(sides: Sequence[Side]) -> list[report.Goal]:
    read = {(side.store, side.slicing): side.read_bytes for side in sides}
    found = []
    for store in dict.fromkeys(side.store for side in sides):
        by_hash, by_range = read[store, HASH], read[store, RANGE]
        found += [
            report.Goal(f"{store}: bytes of a range, of those of a hash", 1 / LESS_THAN_HASH, "x", by_range / by_hash),
            report.Goal(f"{store}: bytes of a range, of no slice", OF_BASELINE, "x", by_range / read[store, NONE]),
        ]
    return found


def check(sides: Sequence[Side]) -> None:
    for side in sides:
        if len({other.rows for other in sides if other.store == side.store}) != 1:
            raise SystemExit(f"{side.store}: slices by {side.slicing} have {side.rows:,} rows; others have not as many")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.slicing", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--repeat", type=int, default=REPEAT)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="instep-bench-") as name:
        builds, files = Path(name) / "clickhouse", Path(name) / "parquet"
        builds.mkdir()
        fill_clickhouse(builds, given.rows)
        fill_parquet(builds, files, given.rows)
        sides = [*clickhouse(builds, given.repeat), *parquet(files, given.repeat)]
    check(sides)
    found = goals(sides)
    report.show(f"Slices of one tenant, of {given.rows:,} rows", *result_rows(sides))
    report.show("Goals", *report.goal_rows(found))
    return 0 if all(goal.verdict == "met" for goal in found) else 1


if __name__ == "__main__":
    sys.exit(main())
