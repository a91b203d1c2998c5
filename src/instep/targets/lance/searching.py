"""Full-text, vector and hybrid search, and single rows. What the user types is data: it is never parsed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from instep.errors import UserError
from instep.targets.lance.place import Place, lance_library
from instep.targets.port import CONTENTS_ROWS, Hit, SearchMode, StoredRow, contents_schema

if TYPE_CHECKING:
    import pyarrow as pa

#: More than this nobody reads, and it bounds what one search costs.
MAX_LIMIT = 1_000

#: Longer queries are cut: the cost of a search grows with its words.
_MAX_TEXT = 4_000

#: Constant of reciprocal rank fusion (Cormack, Clarke, Büttcher 2009).
_RRF_K = 60

#: Each list brings this many times the limit into a hybrid answer, and at least `_RRF_LEAST`.
_RRF_DEPTH = 4
_RRF_LEAST = 50

#: With an approximate index: how many of its partitions are looked at, and how many times the limit
#: are compared by their exact vectors. Without one these change nothing.
_PROBES = 50
_REFINE = 3

_COLUMNS = ["document_id", "chunk_id", "chunk_index", "source_uri", "title", "text"]

#: Columns of a row by what a `StoredRow` calls them.
_ORIGIN = {
    each.name: f"_{each.name}" if each.name in ("ref", "instance", "version") else each.name
    for each in fields(StoredRow)
}


def search(
    place: Place,
    physical: str,
    *,
    entity: str,
    text: str,
    vector: Sequence[float] | None,
    mode: SearchMode,
    limit: int,
) -> list[Hit]:
    limit = min(limit, MAX_LIMIT)
    if limit < 1:
        return []
    if mode != "text" and vector is None:
        raise UserError(f"a {mode} search needs a vector", hint="Search with --mode text, or set an embedder.")
    dataset = place.open(physical)
    with place.understood():
        if mode == "text":
            rows = _by_text(dataset, text, limit)
        elif mode == "vector":
            rows = _by_vector(dataset, vector or (), limit)
        else:
            depth = min(MAX_LIMIT, max(_RRF_LEAST, limit * _RRF_DEPTH))
            rows = _fused([_by_text(dataset, text, depth), _by_vector(dataset, vector or (), depth)])[:limit]
    return [_hit(entity, row) for row in rows]


def row(place: Place, physical: str, id: str) -> StoredRow | None:
    """See `DocumentTarget.row`."""
    dataset = place.open(physical)
    with place.understood():
        for column in ("document_id", "chunk_id"):
            # A text in SQL: doubled quotes are all that it needs.
            quoted = id.replace("'", "''")
            found = dataset.scanner(columns=list(_ORIGIN.values()), filter=f"{column} = '{quoted}'").to_table()
            rows = sorted(found.to_pylist(), key=lambda each: each["chunk_index"])
            if rows:
                return StoredRow(**{name: rows[0][column] for name, column in _ORIGIN.items()})
    return None


def contents(place: Place, physical: str) -> Iterator[pa.RecordBatch]:
    """See `DocumentTarget.contents`. One version is read, whatever is committed meanwhile."""
    dataset, schema = place.open(physical), contents_schema()
    with place.understood():
        for batch in dataset.scanner(columns=schema.names, batch_size=CONTENTS_ROWS, scan_in_order=False).to_batches():
            if batch.num_rows:
                yield batch.cast(schema)


def _by_text(dataset: Any, text: str, limit: int) -> list[dict[str, Any]]:
    """Rows by BM25, best first; none for a text without words."""
    if not text.strip():
        return []
    lance_library()
    from lance.query import MatchQuery

    scanner = dataset.scanner(
        columns=[*_COLUMNS, "_score"],
        full_text_query=MatchQuery(text[:_MAX_TEXT], column="text"),
        limit=limit,
        disable_scoring_autoprojection=True,
    )
    rows: list[dict[str, Any]] = scanner.to_table().to_pylist()
    return sorted(rows, key=lambda row: (-row["_score"], row["chunk_id"]))


def _by_vector(dataset: Any, vector: Sequence[float], limit: int) -> list[dict[str, Any]]:
    """Rows by cosine similarity, best first; none for a zero vector, which has no direction."""
    import numpy as np

    query = np.asarray(vector, dtype=np.float32)
    width = dataset.schema.field("vector").type.list_size
    if query.shape != (width,):
        raise UserError(f"the query vector has {query.size} dimensions, the index {width}")
    if not np.isfinite(query).all():
        raise UserError("the query vector holds NaN or infinity")
    if not query.any():
        return []
    scanner = dataset.scanner(
        columns=[*_COLUMNS, "_distance"],
        nearest={
            "column": "vector",
            "q": query,
            "k": limit,
            "metric": "cosine",
            "nprobes": _PROBES,
            "refine_factor": _REFINE,
        },
        disable_scoring_autoprojection=True,
    )
    rows: list[dict[str, Any]] = scanner.to_table().to_pylist()
    for row in rows:
        row["_score"] = 1.0 - row["_distance"]
    return sorted(rows, key=lambda row: (-row["_score"], row["chunk_id"]))


def _fused(lists: Iterable[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Reciprocal rank fusion: the score of a row is the sum over the lists of 1 / (60 + rank)."""
    fused: dict[str, dict[str, Any]] = {}
    for rows in lists:
        for rank, row in enumerate(rows, start=1):
            entry = fused.setdefault(row["chunk_id"], row | {"_score": 0.0})
            entry["_score"] += 1.0 / (_RRF_K + rank)
    return sorted(fused.values(), key=lambda row: (-row["_score"], row["chunk_id"]))


def _hit(entity: str, row: dict[str, Any]) -> Hit:
    return Hit(entity, float(row["_score"]), **{column: row[column] for column in _COLUMNS})
