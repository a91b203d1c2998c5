"""Full-text, vector and hybrid search, and single rows. What the user types is data: it is never parsed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from instep.domain.document_columns import DocumentColumn
from instep.domain.filters import Condition
from instep.domain.words import TextQuery
from instep.targets.document_target import (
    CONTENTS_ROWS,
    ORIGIN,
    SEARCHED,
    Hit,
    StoredRow,
    contents_schema,
    written_schema,
)
from instep.targets.facets import Counted, Facet
from instep.targets.lance import filtering
from instep.targets.lance.location import Location, lance_library
from instep.targets.ranking import Query, Search

if TYPE_CHECKING:
    import pyarrow as pa

#: With an approximate index: how many of its partitions are looked at, and how many times the limit
#: are compared by their exact vectors. Without one these change nothing.
_PROBES = 50
_REFINE = 3


@cache
def _session(_process: int) -> Any:
    """Memory of what was read of indexes, for the next search; of no good to a fork."""
    return lance_library().Session()


def search(place: Location, physical: str, asked: Search) -> list[Hit]:
    dataset = place.open(physical, session=_session(os.getpid()))
    chosen = _chosen(asked.where)

    def by_text(text: TextQuery, limit: int) -> list[Hit]:
        return asked.ranked(
            ((each["_score"], each) for each in _by_text(dataset, text, asked.fields, limit, asked.where)), "bm25"
        )

    def by_vector(query: Query, limit: int) -> list[Hit]:
        found = _by_vector(dataset, query, asked.fields, limit, chosen)
        return asked.ranked(((1.0 - each["_distance"], each) for each in found), "cosine")

    with place.understood():
        return asked.hits(dataset.schema.field("vector").type.list_size, by_text, by_vector)


def _chosen(where: Condition | None) -> dict[str, Any]:
    return {} if where is None else {"filter": filtering.sql(where), "prefilter": True}


def facets(place: Location, physical: str, counted: Counted) -> dict[str, Facet]:
    """See `DocumentTarget.facets`."""
    dataset = place.open(physical, session=_session(os.getpid()))
    chosen = _chosen(counted.where) if counted.text is None else _having(counted.text, counted.where)
    found: dict[str, Counter[Any]] = {each.name: Counter() for each in counted.columns}
    with place.understood():
        for batch in dataset.scanner(
            columns=list(found), disable_scoring_autoprojection=True, scan_in_order=False, **chosen
        ).to_batches():
            for name, counts in found.items():
                for each in _values(batch[name]).value_counts().to_pylist():
                    counts[each["values"]] += each["counts"]
    return counted.facets({name: counts.items() for name, counts in found.items()})


def _values(column: Any) -> Any:
    """The values of a column; of a list each different element once."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pa.types.is_list(column.type):
        return column
    elements = pa.table({"row": pc.list_parent_indices(column), "value": pc.list_flatten(column)})
    return elements.group_by(["row", "value"]).aggregate([])["value"]


def row(place: Location, physical: str, id: str) -> StoredRow | None:
    """See `DocumentTarget.row`."""
    dataset = place.open(physical)
    with place.understood():
        for column in ("document_id", "chunk_id"):
            # A text in SQL: doubled quotes are all that it needs.
            quoted = id.replace("'", "''")
            found = dataset.scanner(columns=list(ORIGIN.values()), filter=f"{column} = '{quoted}'").to_table()
            rows = sorted(found.to_pylist(), key=lambda each: each["chunk_index"])
            if rows:
                return StoredRow(**{name: rows[0][column] for name, column in ORIGIN.items()})
    return None


#: Of a scan of everything: more takes memory, and no less time.
_READ_AHEAD: Final[dict[str, Any]] = {"batch_readahead": 2, "fragment_readahead": 1, "io_buffer_size": 16 << 20}


def contents(place: Location, physical: str) -> Iterator[pa.RecordBatch]:
    """See `DocumentTarget.contents`. One version is read, whatever is committed in the time of the scan."""
    dataset, schema = place.open(physical), contents_schema()
    with place.understood():
        for batch in dataset.scanner(
            columns=schema.names, batch_size=CONTENTS_ROWS, scan_in_order=False, **_READ_AHEAD
        ).to_batches():
            if batch.num_rows:
                yield batch.cast(schema)


def _by_text(
    dataset: Any, text: TextQuery, fields: Sequence[str], limit: int, where: Condition | None
) -> list[dict[str, Any]]:
    """Rows by BM25, best first."""
    scanner = dataset.scanner(
        columns=[*fields, "_score"],
        # Rows that have the words of a phrase are looked through for it: how many that takes is not known before.
        limit=None if text.phrases else limit,
        disable_scoring_autoprojection=True,
        **_having(text, where),
    )
    found: pa.Table = scanner.to_table()
    if found.num_rows > limit:
        found = found.sort_by([("_score", "descending"), ("chunk_id", "ascending")]).slice(0, limit)
    return list(found.to_pylist())


def _having(text: TextQuery, where: Condition | None) -> dict[str, Any]:
    """Arguments of a scanner that finds rows by words. A phrase is looked for in the words of a row themselves: the
    index knows no places, which would make it half as large again.
    """
    lance_library()
    from lance.query import BooleanQuery, FullTextOperator, MatchQuery, Occur

    conditions = [] if where is None else [filtering.sql(where)]
    # No word has a quote in it.
    conditions += [f"contains(concat(' ', {SEARCHED}, ' '), ' {' '.join(each)} ')" for each in text.phrases]
    queries = [(Occur.SHOULD, MatchQuery(text.text, column=SEARCHED))]
    for each in text.phrases:
        every = MatchQuery(" ".join(dict.fromkeys(each)), column=SEARCHED, operator=FullTextOperator.AND)
        queries.append((Occur.MUST, every))
    query = BooleanQuery(queries)
    if not conditions:
        return {"full_text_query": query}
    return {"full_text_query": query, "filter": " AND ".join(conditions), "prefilter": not text.phrases}


def _by_vector(
    dataset: Any, query: Query, fields: Sequence[str], limit: int, chosen: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Rows by cosine similarity."""
    scanner = dataset.scanner(
        columns=[*fields, "_distance"],
        nearest={
            "column": "vector",
            "q": query,
            "k": limit,
            "metric": "cosine",
            "nprobes": _PROBES,
            "refine_factor": _REFINE,
        },
        disable_scoring_autoprojection=True,
        **chosen,
    )
    return list(scanner.to_table().to_pylist())


def written(place: Location, physical: str, document_ids: Sequence[str], columns: Sequence[DocumentColumn]) -> pa.Table:
    """See `DocumentTarget.written`."""
    schema, dataset = written_schema(columns), place.open(physical)
    quoted = ", ".join("'" + each.replace("'", "''") + "'" for each in document_ids)
    with place.understood():
        found = dataset.to_table(columns=schema.names, filter=f"document_id IN ({quoted})")
    table: pa.Table = found.select(schema.names).cast(schema)
    return table
