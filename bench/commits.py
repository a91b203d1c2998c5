"""A commit of few rows into a large Lance table, beside a bare `merge_insert` of pylance with the same rows.

    python -m bench.commits [--rows 1000000] [--changed 100] [--repeats 5]

Both sides find the rows that are there by their key, replace them, and commit. The bare one has a BTREE on its key, and
forgets what it was told of deletions, epochs and slices. `read` is what the process asks the operating system for.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import statistics
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import lance
import numpy as np
import pyarrow as pa

from bench.environment import WORK, describe_machine
from bench.report import show
from instep.domain.columns import FLOAT64, INT64, STRING, Column
from instep.targets.lance.tables import LanceTableTarget
from instep.targets.table_target import OWN, TableChange, TableSpec, arrow_schema

_COLUMNS = (Column("id", INT64), Column("title", STRING), Column("body", STRING), Column("weight", FLOAT64))
_SPEC = TableSpec(OWN, _COLUMNS, ("id",))
_INDEX = "Issue__bench"
_AT_ONCE = 250_000


class Cost(NamedTuple):
    seconds: float
    cpu: float
    megabytes: float


def rows_of(ids: np.ndarray[Any, Any], version: int) -> pa.RecordBatch:
    count = len(ids)
    columns: dict[str, Any] = {
        "id": pa.array(ids),
        "title": pa.array(np.char.add("Issue number ", ids.astype(str))),
        "body": pa.array(np.char.add("It was changed in commit ", (ids * 2_654_435_761 % 2**40 + version).astype(str))),
        "weight": np.random.default_rng(version).random(count),
        "_ref": pa.array(["Issue"] * count),
        "_instance": pa.array(["bench"] * count),
        "_version": pa.array(np.full(count, version)),
        "_deleted": pa.array(np.zeros(count, np.bool_)),
    }
    schema = arrow_schema(_SPEC)
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[name]).cast(schema.field(name).type) for name in schema.names], schema=schema
    )


def measured(call: Callable[[], object]) -> Cost:
    read, began, used = _read(), time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    call()
    seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    return Cost(seconds, cpu, (_read() - read) / 1e6)


def _read() -> int:
    said = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(said["rchar"])


def commit(target: LanceTableTarget, batches: list[pa.RecordBatch], attempt: str) -> Cost:
    base = target.fence(_INDEX, 1)
    staged = target.writer(_INDEX, base).stage(TableChange(OWN, each) for each in batches)
    return measured(lambda: target.commit(_INDEX, base=base, epoch=1, attempt=attempt, staged=[staged], marks=[]))


def compare(rows: int, changed: int, repeats: int) -> None:
    root = WORK / "commits"
    shutil.rmtree(root, ignore_errors=True)
    target = LanceTableTarget(str(root / "index"))
    target.create(_INDEX, [_SPEC])
    all_ids = np.arange(rows)
    first = [rows_of(all_ids[at : at + _AT_ONCE], 1) for at in range(0, rows, _AT_ONCE)]
    commit(target, first, "first")
    upkeep = measured(lambda: target.maintain(_INDEX))
    bare = lance.write_dataset(pa.Table.from_batches(first), str(root / "bare"))
    bare.create_scalar_index("id", "BTREE")
    ours: list[Cost] = []
    theirs: list[Cost] = []
    for number in range(repeats):
        ids = np.sort(np.random.default_rng(number).choice(rows + changed, changed, replace=False))
        batch = rows_of(ids, number + 2)
        ours.append(commit(target, [batch], f"{number}"))
        target.maintain(_INDEX)
        merge = (
            lance.dataset(str(root / "bare")).merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
        )
        theirs.append(measured(lambda merge=merge, batch=batch: merge.execute(batch)))  # type: ignore[misc]  # bound now
    assert target.rows(_INDEX) == lance.dataset(str(root / "bare")).count_rows()
    median = [[statistics.median(each[at] for each in side) for at in range(3)] for side in (ours, theirs)]
    show(
        f"{changed:,} changed rows into {rows:,}",
        ["", "s", "CPU s", "MB read"],
        [
            [name, *(f"{each:.3f}" for each in side)]
            for name, side in (("instep", median[0]), ("bare merge_insert", median[1]))
        ]
        + [["ratio", *(f"{mine / max(other, 1e-9):.2f}" for mine, other in zip(*median, strict=True))]],
    )
    print(f"the first upkeep took {upkeep.seconds:.2f} s ({upkeep.cpu:.2f} CPU s)")
    shutil.rmtree(root, ignore_errors=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--changed", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    describe_machine()
    print(datetime.now(UTC).isoformat(timespec="seconds"))
    compare(given.rows, given.changed, given.repeats)


if __name__ == "__main__":
    main()
