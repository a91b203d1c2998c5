"""Full-text, vector and hybrid search, single rows, and all of them. What is typed is data: it is never parsed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from instep.targets import ranking
from instep.targets.document_target import CONTENTS_ROWS, Hit, SearchMode, StoredRow, contents_schema, written_schema
from instep.targets.milvus import directory, layout, location
from instep.targets.milvus.location import Location

if TYPE_CHECKING:
    import pyarrow as pa

#: Of `written`: documents in one question, and rows in one answer, with their vectors.
_DOCUMENTS, _WRITTEN_ROWS = 200, 1_000

_COLUMNS = ["document_id", "chunk_id", "chunk_index", "source_uri", "title", "text"]

#: Columns of a row by what a `StoredRow` calls them.
_ORIGIN = {
    each.name: f"_{each.name}" if each.name in ("ref", "instance", "version") else each.name
    for each in fields(StoredRow)
}


def search(
    place: Location,
    physical: str,
    *,
    entity: str,
    text: str,
    vector: Sequence[float] | None,
    mode: SearchMode,
    limit: int,
) -> list[Hit]:
    dimensions = layout.found(place, physical).dimensions
    limit = min(limit, ranking.MAX_LIMIT)
    if limit < 1:
        return []
    ranking.demand_vector(mode, vector)

    def hits(field: str, query: Any, limit: int) -> list[Hit]:
        return _hits(entity, field, _nearest(place, physical, field, query, limit))

    def by_text(limit: int) -> list[Hit]:
        words = text[: ranking.MAX_TEXT]
        return hits(layout.WORDS, words, limit) if words.strip() else []

    def by_vector(limit: int) -> list[Hit]:
        """None for a zero vector, which has no direction."""
        query = ranking.checked_query(vector or (), dimensions)
        return hits("vector", query, limit) if query.any() else []

    if mode == "text":
        return by_text(limit)
    if mode == "vector":
        return by_vector(limit)
    deep = ranking.depth(limit)
    return ranking.pipelined([by_text(deep), by_vector(deep)])[:limit]


def _nearest(place: Location, physical: str, field: str, query: Any, limit: int) -> Any:
    found = place.call(
        "search",
        location.collection(physical),
        data=[query],
        anns_field=field,
        limit=limit,
        output_fields=_COLUMNS,
        consistency_level="Strong",
    )
    return found[0]


def _hits(entity: str, field: str, found: Any) -> list[Hit]:
    # Milvus Lite gives scores of words with a minus sign.
    sign = -1.0 if field == layout.WORDS and any(each["distance"] < 0 for each in found) else 1.0
    return ranking.ranked(
        Hit(entity, sign * each["distance"], **{name: each["entity"][name] for name in _COLUMNS}) for each in found
    )


def row(place: Location, physical: str, id: str) -> StoredRow | None:
    """See `DocumentTarget.row`."""
    partition = layout.found(place, physical).partition(id)
    for column, partitions in (("document_id", [partition]), ("chunk_id", None)):
        found = place.call(
            "query",
            location.collection(physical),
            filter=f"{column} == {location.text(id)}",
            output_fields=list(_ORIGIN.values()),
            partition_names=partitions,
            consistency_level="Strong",
        )
        if found:
            first = min(found, key=lambda each: each["chunk_index"])
            return StoredRow(**{name: first[column] for name, column in _ORIGIN.items()})
    return None


def rows(place: Location, physical: str) -> int:
    found = place.call(
        "query", location.collection(physical), filter="", output_fields=["count(*)"], consistency_level="Strong"
    )
    return int(found[0]["count(*)"])


def any_rows(place: Location, physical: str, partition: str) -> bool:
    """Whether there are some. Milvus Lite walks over all that it counts: in a large index one partition is enough."""
    some = place.call("get_partition_stats", location.collection(physical), partition)
    return int(some["row_count"]) > 0 or rows(place, physical) > 0


def contents(place: Location, physical: str) -> Iterator[pa.RecordBatch]:
    """See `DocumentTarget.contents`."""
    import pyarrow as pa

    schema = contents_schema()
    pages = place.call(
        "query_iterator",
        location.collection(physical),
        batch_size=CONTENTS_ROWS,
        output_fields=schema.names,
        consistency_level="Strong",
    )
    with contextlib.closing(pages):
        while True:
            with place.understood():
                page = pages.next()
            if not page:
                return
            batch = pa.RecordBatch.from_pylist(page, schema=schema)
            directory.check(place, physical, batch)
            yield batch


def written(place: Location, physical: str, document_ids: Sequence[str]) -> pa.Table:
    """See `DocumentTarget.written`."""
    import pyarrow as pa

    schema = written_schema()
    found = []
    for at in range(0, len(document_ids), _DOCUMENTS):
        pages = place.call(
            "query_iterator",
            location.collection(physical),
            batch_size=_WRITTEN_ROWS,
            filter=f"document_id in {location.texts(document_ids[at : at + _DOCUMENTS])}",
            output_fields=schema.names,
            consistency_level="Strong",
        )
        with contextlib.closing(pages):
            while True:
                with place.understood():
                    page = pages.next()
                if not page:
                    break
                found += [{name: each[name] for name in schema.names} for each in page]
    return pa.Table.from_pylist(found, schema=schema)
