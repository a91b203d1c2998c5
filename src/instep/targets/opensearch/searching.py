"""Searches by text (BM25), by vector and by both, single rows, and all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from instep.domain.document_columns import DocumentColumn
from instep.domain.words import TextQuery
from instep.errors import UserError
from instep.targets.document_target import (
    CONTENTS_ROWS,
    ORIGIN,
    Hit,
    StoredRow,
    contents_schema,
    lacking_columns,
    written_schema,
)
from instep.targets.facets import Counted, Facet
from instep.targets.opensearch import filtering
from instep.targets.opensearch.indexes import Indexes
from instep.targets.opensearch.layout import RENAMED, WORDS, coded
from instep.targets.ranking import Query, Search

if TYPE_CHECKING:
    import pyarrow as pa


#: Rows in one answer, with texts and vectors.
_WRITTEN_ROWS = 500


#: Values that each shard counts: one that is rare in a shard may be frequent in all.
_SHARD_VALUES = 10_000


def search(indexes: Indexes, physical: str, asked: Search, dimensions: int) -> list[Hit]:
    chosen = [] if asked.where is None else [filtering.query(asked.where)]

    def hits(body: Mapping[str, Any], limit: int) -> list[tuple[float, Mapping[str, Any]]]:
        wanted = {"size": limit, "_source": asked.fields, "track_total_hits": False}
        found = indexes.search(coded(physical), {**body, **wanted}, demanded=True)
        return [(each["_score"], each["_source"]) for each in found]

    def by_text(text: TextQuery, limit: int) -> list[Hit]:
        found = {"must": [_words(text)], "filter": [*_phrases(text), *chosen]}
        return asked.ranked(hits({"query": {"bool": found}}, limit), "bm25")

    def by_vector(query: Query, limit: int) -> list[Hit]:
        found = hits(indexes.dialect.nearest(query.tolist(), limit, chosen), limit)
        # Both servers have no scores below zero, and give (1 + cosine) / 2.
        return asked.ranked(((2.0 * score - 1.0, row) for score, row in found), "cosine")

    return asked.hits(dimensions, by_text, by_vector)


def _words(text: TextQuery) -> dict[str, Any]:
    return {"match": {WORDS: {"query": text.text}}}


def _phrases(text: TextQuery) -> list[dict[str, Any]]:
    return [{"match_phrase": {WORDS: " ".join(each)}} for each in text.phrases]


def facets(indexes: Indexes, physical: str, counted: Counted) -> dict[str, Facet]:
    """See `DocumentTarget.facets`."""
    demanded(indexes, physical)
    chosen = [] if counted.where is None else [filtering.query(counted.where)]
    if counted.text is not None:
        chosen += _phrases(counted.text) or [_words(counted.text)]
    body = {
        "size": 0,
        "track_total_hits": False,
        "query": {"bool": {"filter": chosen}},
        "aggs": {
            each.name: {"terms": {"field": each.name, "size": counted.limit, "shard_size": _SHARD_VALUES}}
            for each in counted.columns
        },
    }
    found = indexes.counts(coded(physical), body)
    return counted.facets(
        {name: [(each["key"], each["doc_count"]) for each in buckets] for name, buckets in found.items()}
    )


def demanded(indexes: Indexes, physical: str) -> int:
    """The dimensions of an index; raises `UserError` if it is not there."""
    mappings = indexes.mappings(physical)
    if mappings is None:
        raise UserError(f"there is no index {physical!r}", where=indexes.shown, hint="Build it with: instep run")
    try:
        return int(mappings["properties"]["vector"][indexes.dialect.dimensions])
    except KeyError:
        raise UserError(f"index {physical!r} is not one of Instep's", where=indexes.shown) from None


def row(indexes: Indexes, physical: str, id: str) -> StoredRow | None:
    """See `DocumentTarget.row`."""
    columns = {name: RENAMED.get(column, column) for name, column in ORIGIN.items()}
    # A chunk's own id counts more than that of a document with the same id.
    either = [
        {"constant_score": {"filter": {"term": {column: id}}, "boost": boost}}
        for column, boost in (("chunk_id", 2), ("document_id", 1))
    ]
    body = {
        "query": {"bool": {"should": either}},
        "sort": [{"_score": "desc"}, {"chunk_index": "asc"}],
        "size": 1,
        "_source": list(columns.values()),
    }
    found = indexes.search(coded(physical), body)
    if not found:
        return None
    return StoredRow(**{name: found[0]["_source"].get(column) for name, column in columns.items()})


def contents(indexes: Indexes, physical: str) -> Iterator[pa.RecordBatch]:
    """See `DocumentTarget.contents`."""
    import pyarrow as pa

    schema = contents_schema()
    demanded(indexes, physical)
    body = columns_of(schema.names, {"match_all": {}})
    for hits in indexes.pages(coded(physical), body, CONTENTS_ROWS):
        yield pa.RecordBatch.from_pylist([values(each) for each in hits], schema=schema)


def written(
    indexes: Indexes, physical: str, document_ids: Sequence[str], columns: Sequence[DocumentColumn]
) -> pa.Table:
    """See `DocumentTarget.written`."""
    import pyarrow as pa

    schema = written_schema(columns)
    mapped = (indexes.mappings(physical) or {}).get("properties", {})
    if lacking := {each.name for each in columns} - mapped.keys():
        raise lacking_columns(physical, lacking, indexes.shown)
    found = rows_of_documents(indexes, physical, document_ids, schema.names)
    return pa.Table.from_pylist(list(found), schema=schema)


def rows_of_documents(
    indexes: Indexes, physical: str, document_ids: Sequence[str], columns: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """These columns of all rows of these documents."""
    names = {name: RENAMED.get(name, name) for name in columns}
    asked = {"query": {"terms": {"document_id": list(document_ids)}}, "_source": list(names.values())}
    for hits in indexes.pages(coded(physical), {**asked, "sort": [{"chunk_id": "asc"}]}, _WRITTEN_ROWS):
        for each in hits:
            yield {name: each["_source"].get(stored) for name, stored in names.items()}


def columns_of(names: Sequence[str], query: Mapping[str, Any]) -> dict[str, Any]:
    """A question for columns that the server keeps apart from texts and vectors: these need not be read."""
    return {"query": query, "_source": False, "docvalue_fields": list(names), "sort": [{"chunk_id": "asc"}]}


def values(hit: Mapping[str, Any]) -> dict[str, Any]:
    """Answer to `columns_of`."""
    return {name: each[0] for name, each in hit["fields"].items()}
