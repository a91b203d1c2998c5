"""Filtered searches by vector: `python -m bench.filters lance`.

One index, made by Instep's target, is asked the same by Instep (`DocumentTarget.search`) and by the store's own client
with its own filter, in turn. Recall is that of an exact comparison of all rows that the filter leaves.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from bench import report
from bench.run import say
from instep.domain.document_columns import DocumentColumn, DocumentColumnType
from instep.domain.filter_language import parsed
from instep.domain.identity import content_hash
from instep.domain.words import text_query
from instep.targets.document_target import ChunkChanges, DocumentTarget, existing_schema, row_schema

GOAL: Final = 1.3
LEAST_RECALL: Final = 0.95
DIMENSIONS, LIMIT, QUERIES = 384, 10, 60
NAME: Final = "Filtered__1"

#: Values of the column are the numbers below this, equally many of each.
_SHARES: Final = 10_000
COLUMN: Final = DocumentColumn("share", DocumentColumnType.INT)

#: The bound below which the column lies, by the share of rows that this leaves.
SELECTIVITIES: Final = {0.5: _SHARES // 2, 0.01: _SHARES // 100, 0.0001: 1}

#: Chunk ids that are nearest to a vector, of rows whose column is below a bound.
Ask: TypeAlias = Callable[[np.ndarray[Any, Any], int], list[str]]


class Rows:
    """Chunks in clusters, as texts are."""

    def __init__(self, count: int) -> None:
        dice = np.random.default_rng(22)
        centres = dice.standard_normal((200, DIMENSIONS))
        made = centres[dice.integers(0, 200, count + QUERIES)] + 0.7 * dice.standard_normal(
            (count + QUERIES, DIMENSIONS)
        )
        made = (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)
        self.vectors, self.queries = made[:count], made[count:]
        self.shares = dice.permutation(count) % _SHARES
        self.ids = np.array([content_hash(str(number).encode()) for number in range(count)])

    def batches(self, size: int = 10_000) -> Iterator[pa.RecordBatch]:
        schema = row_schema(DIMENSIONS, [COLUMN])
        for start in range(0, len(self.ids), size):
            part = slice(start, start + size)
            count = len(self.ids[part])
            texts = [f"chunk {number}" for number in range(start, start + count)]
            columns: dict[str, Any] = {
                "document_id": [f"d{number}" for number in range(start, start + count)],
                "chunk_id": self.ids[part].tolist(),
                "text": texts,
                "chunk_index": [0] * count,
                "share": self.shares[part],
                "vector": pa.FixedSizeListArray.from_arrays(pa.array(self.vectors[part].ravel()), DIMENSIONS),
                "title": [None] * count,
                "modified": [None] * count,
                "_version": [1] * count,
            }
            arrays = [pa.array(columns.get(each.name, ["x"] * count), each.type) for each in schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    def nearest(self, query: np.ndarray[Any, Any], below: int) -> list[str]:
        left = np.flatnonzero(self.shares < below)
        best = np.argsort(-(self.vectors[left] @ query), kind="stable")[:LIMIT]
        return [str(each) for each in self.ids[left[best]]]


def fill(target: DocumentTarget, rows: Rows) -> None:
    target.create(NAME, DIMENSIONS, 4, [COLUMN])
    base = target.fence(NAME, 1)
    changes = (ChunkChanges(batch, existing_schema().empty_table()) for batch in rows.batches())
    staged = target.writer(NAME, base).stage(changes)
    target.commit(NAME, base=base, epoch=1, attempt="1", staged=[staged], marks=[])
    target.maintain(NAME, full=True)
    target.promote("Filtered", NAME, 1)
    if target.refinable(NAME):
        say("the index of vectors is built")
        target.refine(NAME)


def through_instep(target: DocumentTarget) -> Ask:
    def ask(query: np.ndarray[Any, Any], below: int) -> list[str]:
        where = parsed(f"share < {below}", [COLUMN])
        hits = target.search(
            NAME, entity="Filtered", text=text_query(""), vector=query.tolist(), mode="vector", limit=LIMIT, where=where
        )
        return [hit.chunk_id for hit in hits]

    return ask


_FIELDS: Final = ["document_id", "chunk_id", "chunk_index", "source_uri", "title", "text"]


@contextmanager
def lance_sides(rows: Rows, folder: Path) -> Iterator[tuple[Ask, Ask]]:
    import lance

    from instep.targets.lance import LanceTarget

    target = LanceTarget(str(folder))
    fill(target, rows)
    dataset = lance.dataset(f"{folder}/{NAME}.lance")

    def bare(query: np.ndarray[Any, Any], below: int) -> list[str]:
        dataset.checkout_latest()
        wanted = {"column": "vector", "q": query, "k": LIMIT, "metric": "cosine", "nprobes": 50, "refine_factor": 3}
        scanner = dataset.scanner(
            columns=[*_FIELDS, "_distance"],
            filter=f"share < {below}",
            prefilter=True,
            nearest=wanted,
            disable_scoring_autoprojection=True,
        )
        found = scanner.to_table()
        return [str(each["chunk_id"]) for each in found.to_pylist()]

    yield through_instep(target), bare


@contextmanager
def postgres_sides(rows: Rows, _: Path) -> Iterator[tuple[Ask, Ask]]:
    import psycopg

    from bench.servers import DurablePostgres
    from instep.targets.postgres.documents import PostgresDocuments

    server = DurablePostgres()
    server.start()
    try:
        uri = server.create("filters")
        target = PostgresDocuments(uri, "theirs")
        fill(target, rows)
        with psycopg.connect(uri, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE")
            connection.execute("SET hnsw.ef_search = 200")
            connection.execute("SET hnsw.iterative_scan = 'relaxed_order'")

            def bare(query: np.ndarray[Any, Any], below: int) -> list[str]:
                typed = "[" + ",".join(map(str, query.tolist())) + "]"
                found = connection.execute(
                    f'SELECT chunk_id, 1 - (vector <=> %s::vector), {", ".join(_FIELDS)} FROM theirs."{NAME}" '
                    "WHERE share < %s ORDER BY vector <=> %s::vector LIMIT %s",
                    (typed, below, typed, LIMIT),
                )
                return [str(each[0]) for each in found.fetchall()]

            yield through_instep(target), bare
    finally:
        server.stop()


@contextmanager
def qdrant_sides(rows: Rows, folder: Path) -> Iterator[tuple[Ask, Ask]]:
    import qdrant_edge as edge

    from instep.targets.qdrant.edge import EdgeCollections
    from instep.targets.qdrant.target import QdrantTarget

    target = QdrantTarget(str(folder))
    fill(target, rows)
    collections = target.collections
    assert isinstance(collections, EdgeCollections)
    with collections.open(NAME) as shard:

        def bare(query: np.ndarray[Any, Any], below: int) -> list[str]:
            passes = edge.Filter(must=[edge.FieldCondition("share", range=edge.RangeFloat(lt=float(below)))])
            wanted = edge.QueryRequest(
                limit=LIMIT, query=edge.Query.Nearest(query.tolist()), filter=passes, with_payload=list(_FIELDS)
            )
            return [str(each.payload["chunk_id"]) for each in shard.query(wanted)]

        yield through_instep(target), bare


@contextmanager
def milvus_sides(rows: Rows, folder: Path) -> Iterator[tuple[Ask, Ask]]:
    """Milvus Lite: both have its file open, in this process."""
    from pymilvus import MilvusClient

    from instep.targets.milvus.location import collection
    from instep.targets.milvus.target import MilvusTarget

    uri = f"{folder}/milvus.db"
    target = MilvusTarget(uri)
    fill(target, rows)
    client = MilvusClient(uri)

    def bare(query: np.ndarray[Any, Any], below: int) -> list[str]:
        (found,) = client.search(
            collection(NAME),
            data=[query],
            anns_field="vector",
            filter=f"share < {below}",
            limit=LIMIT,
            output_fields=_FIELDS,
            consistency_level="Strong",
        )
        return [str(each["entity"]["chunk_id"]) for each in found]

    try:
        yield through_instep(target), bare
    finally:
        client.close()


@contextmanager
def opensearch_sides(rows: Rows, _: Path) -> Iterator[tuple[Ask, Ask]]:
    from opensearchpy import OpenSearch
    from tests.servers.opensearch import running_opensearch

    from instep.targets.opensearch.layout import coded
    from instep.targets.opensearch.target import OpenSearchTarget

    url = running_opensearch().url()
    target = OpenSearchTarget(url)
    fill(target, rows)
    client = OpenSearch([url])

    def bare(query: np.ndarray[Any, Any], below: int) -> list[str]:
        passes = {"range": {"share": {"lt": below}}}
        wanted = {"vector": query.tolist(), "k": 10 * LIMIT, "filter": passes}
        body = {"size": LIMIT, "_source": _FIELDS, "query": {"knn": {"vector": wanted}}}
        found = client.search(index=coded(NAME), body=body)
        return [str(each["_source"]["chunk_id"]) for each in found["hits"]["hits"]]

    try:
        yield through_instep(target), bare
    finally:
        target.promote("Filtered", None, 2)
        target.drop(NAME)


SIDES: Final = {
    "lance": lance_sides,
    "postgres": postgres_sides,
    "qdrant": qdrant_sides,
    "milvus": milvus_sides,
    "opensearch": opensearch_sides,
}


def measure(rows: Rows, ours: Ask, bare: Ask, below: int) -> dict[str, tuple[list[float], float]]:
    """Milliseconds of each question, and the recall, of both."""
    took: dict[str, list[float]] = {"instep": [], "bare": []}
    right = {"instep": 0, "bare": 0}
    wanted = 0
    for number, query in enumerate(rows.queries):
        truth = set(rows.nearest(query, below))
        wanted += len(truth)
        sides = [("instep", ours), ("bare", bare)]
        for name, ask in sides if number % 2 else sides[::-1]:
            began = time.perf_counter()
            found = ask(query, below)
            took[name].append(1_000 * (time.perf_counter() - began))
            right[name] += len(truth & set(found))
    return {name: (took[name], right[name] / max(1, wanted)) for name in took}


def p95(values: Sequence[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", choices=list(SIDES), default=list(SIDES), help="which (all)")
    parser.add_argument("--chunks", type=int, default=200_000, help="rows of the index (200,000)")
    asked = parser.parse_args()
    rows, table = Rows(asked.chunks), []
    for name in asked.targets:
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            with SIDES[name](rows, Path(folder)) as (ours, bare):
                say(f"{name}: {asked.chunks:,} chunks are indexed after {time.perf_counter() - began:.0f} s")
                for query in rows.queries[:5]:
                    for ask in (ours, bare):
                        ask(query, _SHARES // 3)
                for share, below in SELECTIVITIES.items():
                    found = measure(rows, ours, bare, below)
                    (own, recall), (theirs, their_recall) = found["instep"], found["bare"]
                    middle, late = statistics.median(own) / statistics.median(theirs), p95(own) / p95(theirs)
                    met = max(middle, late) <= GOAL and recall >= LEAST_RECALL
                    both = [f"{statistics.median(each):.1f} / {p95(each):.1f}" for each in (own, theirs)]
                    said = [f"{middle:.2f} / {late:.2f}", f"{recall:.3f} / {their_recall:.3f}"]
                    table.append([name, f"{share:g}", *both, *said, "met" if met else "MISSED"])
    heads = ["target", "rows left", "Instep p50 / p95 (ms)", "bare client", "ratio", "recall@10 of both", "goal"]
    report.show("Filtered searches by vector", heads, table)


if __name__ == "__main__":
    main()
