"""Bulk into OpenSearch: `python -m bench.opensearch`.

The same rows, ready as Arrow batches (of so many rows as a task has at hand), go into an index with the same mappings
and settings: through Instep's writer (with its external versions, and every item confirmed by its id), and by
opensearch-py's own `streaming_bulk` and `parallel_bulk`, whose documents are made from the batches as they are asked
for. All end with a refresh. They run in turn; the client's and the server's processor time is measured beside the
seconds, since both share this machine.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import psutil
import pyarrow as pa
from opensearchpy import OpenSearch, helpers
from tests.servers.opensearch import running_opensearch

from bench import report
from bench.run import say
from instep.domain.identity import content_hash
from instep.domain.words import SEARCHED_BY_DEFAULT
from instep.pipeline.documents.words import searched_column
from instep.pipeline.documents.writing import GROUP_ROWS
from instep.targets.document_target import SEARCHED, ChunkChanges, existing_schema, row_schema
from instep.targets.opensearch import layout
from instep.targets.opensearch.bulk import MAX_REQUESTS
from instep.targets.opensearch.layout import coded
from instep.targets.opensearch.target import OpenSearchTarget

GOAL = 0.85
ROWS, DIMENSIONS, REPEATS = 20_000, 128, 3

_BATCH: Final = GROUP_ROWS
_WORDS: Final = ("index", "search", "vector", "graph", "source", "ledger", "lease", "fence", "slice", "wave", "crash")


@dataclass(frozen=True, slots=True)
class Took:
    seconds: float
    client: float
    server: float


def batches(rows: int) -> list[pa.RecordBatch]:
    """Chunks of some 600 characters, four to a document."""
    random, made = np.random.default_rng(1), []
    for start in range(0, rows, _BATCH):
        count = min(_BATCH, rows - start)
        texts = [" ".join(random.choice(_WORDS, 100)) for _ in range(count)]
        numbers = range(start, start + count)
        vectors = random.random((count, DIMENSIONS), dtype=np.float32)
        ids = [f"doc_{content_hash(str(number // 4).encode())}" for number in numbers]
        columns: dict[str, Any] = {
            "document_id": ids,
            "document_hash": ids,
            "source_uri": [f"file:///docs/{number // 4}.md" for number in numbers],
            "source_version": ["1"] * count,
            "chunk_id": [content_hash(str(number).encode()) for number in numbers],
            "chunk_hash": [content_hash(text.encode()) for text in texts],
            "chunk_index": [number % 4 for number in numbers],
            "title": [f"Document {number // 4}" for number in numbers],
            "text": texts,
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), DIMENSIONS),
            SEARCHED: searched_column(pa.table({"title": [None] * count, "text": texts}), SEARCHED_BY_DEFAULT),
            "_ref": ["Document@global"] * count,
            "_instance": ["bench"] * count,
            "_version": [1] * count,
        }
        made.append(pa.RecordBatch.from_pydict(columns, schema=row_schema(DIMENSIONS)))
    return made


def actions(index: str, rows: Sequence[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    """What the helpers are given."""
    for batch in rows:
        for each in batch.to_pylist():
            source = {layout.RENAMED.get(name, name): value for name, value in each.items()}
            yield {"_op_type": "index", "_index": index, "_id": each["chunk_id"], "_source": source}


def streaming(client: OpenSearch, index: str, rows: Sequence[pa.RecordBatch]) -> None:
    for done, said in helpers.streaming_bulk(client, actions(index, rows)):
        assert done, said
    client.indices.refresh(index=index)


def parallel(client: OpenSearch, index: str, rows: Sequence[pa.RecordBatch]) -> None:
    for done, said in helpers.parallel_bulk(client, actions(index, rows), thread_count=MAX_REQUESTS):
        assert done, said
    client.indices.refresh(index=index)


def through_instep(target: OpenSearchTarget, physical: str, rows: Sequence[pa.RecordBatch]) -> None:
    base = target.fence(physical, 1)
    nothing = existing_schema().empty_table()
    staged = target.writer(physical, base).stage(ChunkChanges(each, nothing) for each in rows)
    target.commit(physical, base=base, epoch=1, attempt="1", staged=[staged], marks=[])


def timed(server: psutil.Process, work: Callable[[], None]) -> Took:
    before, own, began = sum(server.cpu_times()[:2]), time.process_time(), time.perf_counter()
    work()
    seconds, client = time.perf_counter() - began, time.process_time() - own
    return Took(seconds, client, sum(server.cpu_times()[:2]) - before)


def measure(url: str, server: psutil.Process, rows: Sequence[pa.RecordBatch], repeats: int) -> dict[str, list[Took]]:
    target, client = OpenSearchTarget(url), OpenSearch([url], timeout=120, pool_maxsize=32)
    count = sum(each.num_rows for each in rows)
    sides: dict[str, Callable[[str], None]] = {
        "instep": lambda physical: through_instep(target, physical, rows),
        "streaming_bulk": lambda physical: streaming(client, coded(physical), rows),
        "parallel_bulk": lambda physical: parallel(client, coded(physical), rows),
    }
    took: dict[str, list[Took]] = {name: [] for name in sides}
    for repeat in range(repeats + 1):
        order = list(sides) if repeat % 2 else list(sides)[::-1]
        for name in order:
            physical = f"Bench__{repeat}-{name.replace('_', '-')}"
            target.create(physical, DIMENSIONS, 1)
            seen = timed(server, partial(sides[name], physical))
            assert target.rows(physical) == count, (name, target.rows(physical))
            target.drop(physical)
            if repeat:  # The first round warms up.
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
    heads = ["", "rows/s", "seconds", "client CPU", "server CPU", "instep against it", "by CPU", "goal"]
    mine = [statistics.median(getattr(each, of) for each in took["instep"]) for of in Took.__slots__]
    table = []
    for name, runs in took.items():
        its = [statistics.median(getattr(each, of) for each in runs) for of in Took.__slots__]
        row = [name, f"{options.rows / its[0]:,.0f}", *(f"{each:.1f}" for each in its)]
        ratio = its[0] / mine[0]
        against = [f"{ratio:.2f} x", f"{sum(its[1:]) / sum(mine[1:]):.2f} x", "met" if ratio >= GOAL else "MISSED"]
        table.append([*row, *(against if name != "instep" else ["", "", f"{GOAL:.2f} x"])])
    report.show(f"{options.rows:,} rows of {DIMENSIONS} dimensions, median of {options.repeats}", heads, table)


if __name__ == "__main__":
    main()
