"""How long `instep why` takes in a large index (goal: under 100 ms at 1,000,000 rows): `python -m bench.why`.

A small project is really run; then rows are added to its index through the target, as of the same job, and indexes are
brought up to date as a run does it. Every question opens project, ledger and index anew, as a command does; Python's
own start is not counted. Rows asked for are spread over the index, and each answer must be the row that was asked for.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa

import instep
from bench import report
from instep.container import Container
from instep.domain.identity import chunk_id, document_id
from instep.domain.refs import PartitionRef
from instep.targets.document_target import SEARCHED, ChunkChanges, existing_schema, row_schema
from instep.targets.lance import LanceTarget

ROWS, QUESTIONS, GOAL_MS = 1_000_000, 20, 100
_BATCH, _CHUNKS, _DIMENSIONS = 50_000, 5, 32
_PROJECT = """name: bench
targets: {index: {type: lance, uri: .instep/index}}
entities:
  Document:
    source: {type: files, path: docs, include: ["**/*.md"]}
    embed: {type: hashing, dimensions: 32}
"""


def measure(folder: Path, rows: int, questions: int) -> dict[str, list[float]]:
    """Milliseconds of each question, by what was asked for."""
    (folder / "docs").mkdir()
    (folder / "docs" / "one.md").write_text("# One\n\nThe only real document.\n", encoding="utf-8")
    (folder / "instep.yaml").write_text(_PROJECT, encoding="utf-8")
    project = instep.load(folder)
    project.run()
    owner = Container(project.project).owner
    _fill(
        project,
        LanceTarget(str(folder / ".instep" / "index"), owner=owner),
        (folder / "docs" / "one.md").as_uri(),
        rows,
    )
    asked = [_uri(number * (rows // _CHUNKS // questions)) for number in range(questions)]
    return {
        "a chunk_id": [_asked(folder, chunk_id(document_id(uri), "c", 3), uri, 3) for uri in asked],
        "a source URI": [_asked(folder, uri, uri, 0) for uri in asked],
    }


def _asked(folder: Path, id: str, uri: str, index: int) -> float:
    began = time.perf_counter()
    found = instep.load(folder).why("Document", id)
    milliseconds = 1000 * (time.perf_counter() - began)
    if (found.row["source_uri"], found.row["chunk_index"]) != (uri, index) or found.job is None or found.window is None:
        raise SystemExit(f"wrong answer for {id}: {found}")
    return milliseconds


def _fill(project: instep.Instep, target: LanceTarget, known: str, rows: int) -> None:
    one = project.why("Document", known)
    epoch = one.row["version"]
    # The job's last epoch: it has sealed its part.
    assert one.job is not None
    with closing(Container(project.project).ledger(read_only=True)) as ledger:
        job = ledger.jobs.get(one.job.id)
    assert job is not None
    last = job.part(PartitionRef("Document")).part.epoch
    base = target.fence(one.physical, last)
    changes = (
        ChunkChanges(
            _batch(start, min(_BATCH, rows - start), one.row["instance"], epoch), existing_schema().empty_table()
        )
        for start in range(0, rows, _BATCH)
    )
    staged = target.writer(one.physical, base).stage(changes)
    target.commit(one.physical, base=base, epoch=last, attempt="bench", staged=[staged], marks=[])
    target.maintain(one.physical)


def _uri(document: int) -> str:
    return f"file:///bench/documents/{document}.md"


def _batch(start: int, count: int, instance: str, epoch: int) -> pa.RecordBatch:
    numbers = range(start, start + count)
    ids = [document_id(_uri(each // _CHUNKS)) for each in numbers]
    columns: dict[str, Sequence[object]] = {
        "document_id": ids,
        "document_hash": ids,
        "source_uri": [_uri(each // _CHUNKS) for each in numbers],
        "source_version": ["1"] * count,
        "chunk_id": [chunk_id(id, "c", each % _CHUNKS) for id, each in zip(ids, numbers, strict=True)],
        "chunk_hash": ids,
        "chunk_index": [each % _CHUNKS for each in numbers],
        "title": [None] * count,
        "modified": [None] * count,
        "text": [f"chunk number {each}" for each in numbers],
        SEARCHED: [f"chunk number {each}" for each in numbers],
        "_ref": ["Document@global"] * count,
        "_instance": [instance] * count,
        "_version": [epoch] * count,
    }
    vectors = pa.FixedSizeListArray.from_arrays(pa.array([0.5] * (_DIMENSIONS * count), pa.float32()), _DIMENSIONS)
    return pa.RecordBatch.from_arrays(list(_arrays(columns, vectors)), schema=row_schema(_DIMENSIONS))


def _arrays(columns: dict[str, Sequence[object]], vectors: pa.Array[Any]) -> Iterator[pa.Array[Any]]:
    for field in row_schema(_DIMENSIONS):
        yield vectors if field.name == "vector" else pa.array(columns[field.name], field.type)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--questions", type=int, default=QUESTIONS)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        measured = measure(Path(folder), options.rows, options.questions)
    found = [
        [
            f"why, by {what}, ms",
            f"under {GOAL_MS}",
            f"{statistics.median(times):.0f}",
            "met" if statistics.median(times) < GOAL_MS else "MISSED",
            f"{min(times):.0f} to {max(times):.0f}",
        ]
        for what, times in measured.items()
    ]
    report.show(f"{options.rows:,} rows", ["what", "goal", "reached", "", "all"], found)
    if any("MISSED" in row for row in found):
        sys.exit(1)


if __name__ == "__main__":
    main()
