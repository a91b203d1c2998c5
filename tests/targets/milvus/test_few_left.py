"""Searches of Milvus Lite by a filter that leaves few of many rows."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

from instep.domain.document_columns import DocumentColumn, DocumentColumnType
from instep.domain.filter_language import parsed
from instep.domain.words import text_query
from instep.targets.document_target import ChunkChanges, existing_schema, row_schema
from instep.targets.milvus.location import Location, collection
from instep.targets.milvus.target import MilvusTarget
from tests.waiting import until

ROWS, WIDTH = 20_000, 128
COLUMN: Final = DocumentColumn("share", DocumentColumnType.INT)
NAME: Final = "Few__1"


def filled(target: MilvusTarget) -> Any:
    """Vectors in clusters, as those of texts are, of which each has a number of its own as its share."""
    dice = np.random.default_rng(7)
    centres = dice.standard_normal((200, WIDTH))
    vectors = centres[dice.integers(0, 200, ROWS)] + 0.7 * dice.standard_normal((ROWS, WIDTH))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    columns: dict[str, Any] = {
        "document_id": [f"d{number}" for number in range(ROWS)],
        "chunk_id": [f"c{number}" for number in range(ROWS)],
        "chunk_index": [0] * ROWS,
        "share": range(ROWS),
        "vector": pa.FixedSizeListArray.from_arrays(pa.array(vectors.ravel()), WIDTH),
        "title": [None] * ROWS,
        "modified": [None] * ROWS,
        "_version": [1] * ROWS,
    }
    schema = row_schema(WIDTH, [COLUMN])
    arrays = [pa.array(columns.get(each.name, ["x"] * ROWS), each.type) for each in schema]
    target.create(NAME, WIDTH, 4, [COLUMN])
    base = target.fence(NAME, 1)
    change = ChunkChanges(pa.RecordBatch.from_arrays(arrays, schema=schema), existing_schema().empty_table())
    staged = target.writer(NAME, base).stage(iter([change]))
    target.commit(NAME, base=base, epoch=1, attempt="1", staged=[staged], marks=[])
    target.maintain(NAME, full=True)
    return vectors


def uses_its_graph(target: MilvusTarget, vectors: Any) -> bool:
    """Whether Milvus Lite has begun to use its index, and so to miss rows that are asked for without a reach. Until
    then it compares all rows.
    """
    seen = 0
    for query in range(0, ROWS, 1_000):
        (found,) = Location(target.uri).call(
            "search",
            collection(NAME),
            data=[vectors[query].tolist()],
            anns_field="vector",
            filter="share < 2",
            limit=2,
            consistency_level="Strong",
        )
        seen += len(found)
    return seen < ROWS // 1_000 * 2


@pytest.mark.long
@pytest.mark.parametrize("where", ["embedded", "served"])
def test_the_nearest_of_the_few_rows_that_a_filter_leaves_are_found(where: str, request: pytest.FixtureRequest) -> None:
    target: MilvusTarget = request.getfixturevalue(where)
    vectors = filled(target)
    until(lambda: uses_its_graph(target, vectors))
    for share in (2, 200, 10_000):
        wanted = found = 0
        for query in range(0, ROWS, 1_000):
            hits = target.search(
                NAME,
                entity="Few",
                text=text_query(""),
                vector=vectors[query].tolist(),
                mode="vector",
                limit=10,
                where=parsed(f"share < {share}", [COLUMN]),
            )
            best = np.argsort(-(vectors[:share] @ vectors[query]), kind="stable")[:10]
            wanted += len(best)
            found += len({f"c{number}" for number in best} & {hit.chunk_id for hit in hits})
        assert found >= 0.95 * wanted, share
