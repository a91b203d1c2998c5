"""Searches by text (BM25), by vector and by both, single rows, and all of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from instep.domain.document_columns import DocumentColumn, DocumentColumnType
from instep.domain.words import TextQuery
from instep.errors import UserError
from instep.targets.document_target import (
    CONTENTS_ROWS,
    ORIGIN,
    Hit,
    ScoreKind,
    StoredRow,
    contents_schema,
    lacking_columns,
    written_schema,
)
from instep.targets.facets import Counted, Facet
from instep.targets.qdrant.collections import Collections, Scored, Where, pages, point_id
from instep.targets.qdrant.filtering import resolved
from instep.targets.ranking import Query, Search
from instep.targets.request_limits import portions

if TYPE_CHECKING:
    import pyarrow as pa


#: Rows of one document in one answer.
_PAGE = 1_000


def search(collections: Collections, physical: str, asked: Search, dimensions: int) -> list[Hit]:
    chosen = None if asked.where is None else resolved(asked.where, partial(collections.values, physical))

    def hits(found: Sequence[Scored], kind: ScoreKind) -> list[Hit]:
        return asked.ranked(((each.score, each.payload) for each in found), kind)

    def by_text(text: TextQuery, limit: int) -> list[Hit]:
        return hits(collections.ranked(physical, text, fields=asked.fields, limit=limit, chosen=chosen), "bm25")

    def by_vector(query: Query, limit: int) -> list[Hit]:
        found = collections.nearest(physical, query.tolist(), fields=asked.fields, limit=limit, chosen=chosen)
        return hits(found, "cosine")

    return asked.hits(dimensions, by_text, by_vector)


def facets(collections: Collections, physical: str, counted: Counted) -> dict[str, Facet]:
    """See `DocumentTarget.facets`."""
    demanded(collections, physical)
    chosen = None if counted.where is None else resolved(counted.where, partial(collections.values, physical))
    return counted.facets(
        {
            each.name: collections.counts(physical, each.name, limit=counted.limit, words=counted.text, chosen=chosen)
            for each in counted.columns
        }
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
    # What is null of a point that was told anew is not there at all.
    stored: dict[str, Any] = {name: first.get(column) for name, column in columns.items()}
    return StoredRow(**stored)


def _rows(collections: Collections, physical: str, where: Where, fields: Sequence[str]) -> Iterator[Any]:
    for page in pages(collections, physical, where, fields=fields, limit=_PAGE):
        yield from page


def contents(collections: Collections, physical: str) -> Iterator[pa.RecordBatch]:
    """See `DocumentTarget.contents`."""
    import pyarrow as pa

    schema = contents_schema()
    demanded(collections, physical)
    for page in pages(collections, physical, Where(), fields=schema.names, limit=CONTENTS_ROWS):
        if page:
            yield pa.RecordBatch.from_pylist(list(page), schema=schema)


def with_flags(rows: Iterable[Mapping[str, Any]], columns: Sequence[DocumentColumn]) -> list[dict[str, Any]]:
    """Payloads with the values of these columns as they were written: a boolean is stored as 0 or 1."""
    flags = [each.name for each in columns if each.type is DocumentColumnType.BOOL]
    return [{**row, **{each: bool(row[each]) for each in flags if row.get(each) is not None}} for row in rows]


def written(
    collections: Collections, physical: str, document_ids: Sequence[str], columns: Sequence[DocumentColumn]
) -> pa.Table:
    """See `DocumentTarget.written`."""
    import pyarrow as pa

    schema = written_schema(columns)
    fields = [name for name in schema.names if name != "vector"]
    if lacking := {each.name for each in columns} - collections.indexed(physical):
        raise lacking_columns(physical, lacking, collections.shown)
    rows = with_flags(_rows(collections, physical, Where(any_of={"document_id": document_ids}), fields), columns)
    for portion in portions(rows, _PAGE):
        some = {point_id(each["chunk_id"]): each for each in portion}
        for id, vector in collections.vectors(physical, list(some)).items():
            some[id]["vector"] = list(vector)
    return pa.Table.from_pylist(rows, schema=schema)
