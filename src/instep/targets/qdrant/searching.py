"""Searches by text (BM25), by vector and by both, single rows, and all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from instep.errors import UserError
from instep.targets.document_target import (
    CONTENTS_ROWS,
    ORIGIN,
    Hit,
    SearchMode,
    StoredRow,
    contents_schema,
    written_schema,
)
from instep.targets.qdrant.collections import Collections, Scored, Where, point_id
from instep.targets.ranking import MAX_LIMIT, MAX_TEXT, SEARCHED, checked_query, demand_vector, depth, pipelined, ranked

if TYPE_CHECKING:
    import pyarrow as pa

_COLUMNS = ("document_id", "chunk_id", "chunk_index", "source_uri", "title", "text")

#: Rows of one document in one answer.
_PAGE = 1_000


def search(
    collections: Collections,
    physical: str,
    *,
    entity: str,
    text: str,
    vector: Sequence[float] | None,
    mode: SearchMode,
    limit: int,
) -> list[Hit]:
    demand_vector(mode, vector)
    dimensions = demanded(collections, physical)
    limit = min(limit, MAX_LIMIT)
    if limit < 1:
        return []
    many = depth(limit) if mode == "hybrid" else limit
    lists = []
    if mode != "vector" and text.strip():
        lists.append(_by_words(collections, physical, text[:MAX_TEXT], many))
    if mode != "text":
        query = checked_query(() if vector is None else vector, dimensions)
        # A vector without a direction is near to nothing.
        lists.append(collections.nearest(physical, query.tolist(), fields=_COLUMNS, limit=many) if query.any() else [])
    found = [_hits(entity, each) for each in lists]
    return (pipelined(found) if mode == "hybrid" else found[0] if found else [])[:limit]


def _by_words(collections: Collections, physical: str, words: str, limit: int) -> list[Scored]:
    try:
        return collections.ranked(physical, SEARCHED, words, fields=_COLUMNS, limit=limit)
    except UserError:
        # An index that was made before titles were searched is served until it is built again.
        return collections.ranked(physical, "text", words, fields=_COLUMNS, limit=limit)


def _hits(entity: str, found: Sequence[Scored]) -> list[Hit]:
    return ranked(
        Hit(entity, float(each.score), **{column: each.payload[column] for column in _COLUMNS}) for each in found
    )


def demanded(collections: Collections, physical: str) -> int:
    """The dimensions of an index; raises `UserError` if it is not there."""
    dimensions = collections.dimensions(physical)
    if dimensions is None:
        raise UserError(f"there is no index {physical!r}", where=collections.shown, hint="Build it with: instep run")
    return dimensions


def row(collections: Collections, physical: str, id: str) -> StoredRow | None:
    """See `DocumentTarget.row`."""
    columns = ORIGIN
    named = point_id(id)
    found = list(collections.get(physical, [named], fields=list(columns.values())).values())
    if not found:
        found = list(_rows(collections, physical, Where(any_of={"document_id": [id]}), list(columns.values())))
    if not found:
        return None
    first = min(found, key=lambda each: each["chunk_index"])
    return StoredRow(**{name: first[column] for name, column in columns.items()})


def _rows(collections: Collections, physical: str, where: Where, fields: Sequence[str]) -> Iterator[Any]:
    after = None
    while True:
        page = collections.page(physical, where, fields=fields, limit=_PAGE, after=after)
        yield from page.payloads
        after = page.next
        if after is None:
            return


def contents(collections: Collections, physical: str) -> Iterator[pa.RecordBatch]:
    """See `DocumentTarget.contents`."""
    import pyarrow as pa

    schema, after = contents_schema(), None
    demanded(collections, physical)
    while True:
        page = collections.page(physical, Where(), fields=schema.names, limit=CONTENTS_ROWS, after=after)
        if page.payloads:
            yield pa.RecordBatch.from_pylist(list(page.payloads), schema=schema)
        after = page.next
        if after is None:
            return


def written(collections: Collections, physical: str, document_ids: Sequence[str]) -> pa.Table:
    """See `DocumentTarget.written`."""
    import pyarrow as pa

    schema = written_schema()
    fields = [name for name in schema.names if name != "vector"]
    rows = [dict(each) for each in _rows(collections, physical, Where(any_of={"document_id": document_ids}), fields)]
    for at in range(0, len(rows), _PAGE):
        some = {point_id(each["chunk_id"]): each for each in rows[at : at + _PAGE]}
        for id, vector in collections.vectors(physical, list(some)).items():
            some[id]["vector"] = list(vector)
    return pa.Table.from_pylist(rows, schema=schema)
