"""Full-text, vector and hybrid search, single rows, and all of them. What is typed is data: it is never parsed."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from instep.domain.document_columns import DocumentColumn
from instep.domain.words import TextQuery
from instep.errors import UserError
from instep.targets.document_target import (
    CONTENTS_ROWS,
    ORIGIN,
    SEARCHED,
    Hit,
    StoredRow,
    contents_schema,
    lacking_columns,
    written_schema,
)
from instep.targets.facets import Counted, Facet
from instep.targets.milvus import chunk_lists, filtering, layout, location
from instep.targets.milvus.location import Location
from instep.targets.ranking import Query, Search
from instep.targets.request_limits import portions

if TYPE_CHECKING:
    import pyarrow as pa

#: Of `written`: documents in one question, and rows in one answer, with their vectors.
_DOCUMENTS, _WRITTEN_ROWS = 200, 1_000


#: Milvus Lite goes through its graph of vectors past rows that a filter leaves out, and gives up early; of many equal
#: vectors it reaches some never. So it is told to look at many. Where these do not have as many hits as are wanted, and
#: no more than `_COMPARED` rows are left, each of them is compared; else it is to look at all. A server sees by itself
#: when few are left.
_REACH, _ALL = 2_000, 200_000
_COMPARED = 5_000

#: Rows whose values are read for facets.
_FACET_ROWS = 200_000


def search(place: Location, physical: str, asked: Search, dimensions: int) -> list[Hit]:
    chosen = "" if asked.where is None else filtering.expression(asked.where)

    def by_text(text: TextQuery, limit: int) -> list[Hit]:
        among = " and ".join([*_phrases(text), *([chosen] if chosen else [])])
        found = _nearest(place, physical, layout.WORDS, text.text, asked.fields, limit=limit, chosen=among)
        # Milvus Lite gives scores of words with a minus sign.
        sign = -1.0 if any(each["distance"] < 0 for each in found) else 1.0
        return asked.ranked(((sign * each["distance"], each["entity"]) for each in found), "bm25")

    def by_vector(query: Query, limit: int) -> list[Hit]:
        nearest = partial(_nearest, place, physical, "vector", query, asked.fields, limit=limit, chosen=chosen)
        found = nearest(reach=_REACH if chosen and place.is_lite else None)
        if len(found) < limit and place.is_lite:
            compared = _compared(place, physical, query, asked.fields, limit=limit, chosen=chosen)
            found = nearest(reach=_ALL) if compared is None else compared
        return asked.ranked(((each["distance"], each["entity"]) for each in found), "cosine")

    return asked.hits(dimensions, by_text, by_vector)


def _phrases(text: TextQuery) -> list[str]:
    """A condition for each phrase. In a word there is neither a quote nor a sign that stands for others."""
    return [f'{SEARCHED} like "% {" ".join(each)} %"' for each in text.phrases]


def facets(place: Location, physical: str, counted: Counted) -> dict[str, Facet]:
    """See `DocumentTarget.facets`. Milvus counts nothing but rows: the values are read, and there may be too many."""
    layout.found(place, physical)
    conditions = [] if counted.where is None else [filtering.expression(counted.where)]
    if counted.text is not None:
        conditions += _phrases(counted.text)
        if not counted.text.phrases:
            conditions.append(f"text_match({SEARCHED}, {location.text(counted.text.text)})")
    names = [each.name for each in counted.columns]
    found: dict[str, Counter[Any]] = {name: Counter() for name in names}
    rows = 0
    for page in _pages(place, physical, names, CONTENTS_ROWS, filter=" and ".join(conditions)):
        rows += len(page)
        if rows > _FACET_ROWS:
            raise UserError(
                f"more than {_FACET_ROWS:,} rows are found: Milvus cannot count values itself, and so many rows are "
                "not read",
                where=place.shown,
                hint="Narrow the search with --where, or leave --facet out.",
            )
        for column in counted.columns:
            values = (each[column.name] for each in page)
            if column.type.listed:
                values = (element for each in values for element in set(each or ()))
            found[column.name].update(values)
    return counted.facets({name: counts.items() for name, counts in found.items()})


def _nearest(
    place: Location,
    physical: str,
    field: str,
    query: Any,
    fields: Sequence[str],
    *,
    limit: int,
    chosen: str,
    reach: int | None = None,
) -> Any:
    found = place.call(
        "search",
        location.collection(physical),
        data=[query],
        anns_field=field,
        filter=chosen,
        limit=limit,
        output_fields=list(fields),
        consistency_level="Strong",
        search_params={} if reach is None else {"params": {"ef": reach}},
    )
    return found[0]


def _compared(
    place: Location, physical: str, query: Query, fields: Sequence[str], *, limit: int, chosen: str
) -> list[dict[str, Any]] | None:
    """The nearest of all rows that a filter leaves, each compared; None if these are many."""
    left = place.call(
        "query",
        location.collection(physical),
        filter=chosen,
        output_fields=[*fields, "vector"],
        limit=_COMPARED + 1,
        consistency_level="Strong",
    )
    if len(left) > _COMPARED:
        return None
    vectors = np.array([each["vector"] for each in left], np.float32).reshape(len(left), query.size)
    lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(query)
    cosines = np.divide(vectors @ query, lengths, out=np.zeros_like(lengths), where=lengths > 0)
    best = np.argsort(-cosines, kind="stable")[:limit]
    return [{"distance": float(cosines[at]), "entity": left[at]} for at in best.tolist() if lengths[at] > 0]


def row(place: Location, physical: str, id: str) -> StoredRow | None:
    """See `DocumentTarget.row`."""
    partition = layout.found(place, physical).partition(id)
    for column, partitions in (("document_id", [partition]), ("chunk_id", None)):
        found = place.call(
            "query",
            location.collection(physical),
            filter=f"{column} == {location.text(id)}",
            output_fields=list(ORIGIN.values()),
            partition_names=partitions,
            consistency_level="Strong",
        )
        if found:
            first = min(found, key=lambda each: each["chunk_index"])
            return StoredRow(**{name: first[column] for name, column in ORIGIN.items()})
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
    for page in _pages(place, physical, schema.names, CONTENTS_ROWS):
        batch = pa.RecordBatch.from_pylist(page, schema=schema)
        chunk_lists.check(place, physical, batch)
        yield batch


def written(place: Location, physical: str, document_ids: Sequence[str], columns: Sequence[DocumentColumn]) -> pa.Table:
    """See `DocumentTarget.written`."""
    import pyarrow as pa

    schema = written_schema(columns)
    found = rows_of_documents(place, physical, document_ids, schema.names)
    return pa.Table.from_pylist(list(found), schema=schema)


def rows_of_documents(
    place: Location, physical: str, document_ids: Sequence[str], columns: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """These columns of all rows of these documents. Raises `UserError` if the index has no such column."""
    for some in portions(document_ids, _DOCUMENTS):
        where = f"document_id in {location.texts(some)}"
        for page in _pages(place, physical, columns, _WRITTEN_ROWS, filter=where):
            for each in page:
                if lacking := [name for name in columns if name not in each]:
                    raise lacking_columns(physical, lacking, place.shown)
                yield {name: each[name] for name in columns}


def _pages(place: Location, physical: str, columns: Sequence[str], size: int, **where: str) -> Iterator[Any]:
    pages = place.call(
        "query_iterator",
        location.collection(physical),
        batch_size=size,
        output_fields=list(columns),
        consistency_level="Strong",
        **where,
    )
    with contextlib.closing(pages):
        while True:
            with place.understood():
                page = pages.next()
            if not page:
                return
            yield page
