"""Full-text, vector and hybrid search, and single rows. What the user types is data: it is never parsed."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from instep.domain.document_columns import DocumentColumn
from instep.domain.filters import Condition
from instep.targets.document_target import (
    CONTENTS_ROWS,
    ORIGIN,
    Hit,
    StoredRow,
    contents_schema,
    written_schema,
)
from instep.targets.facets import Counted, Facet
from instep.targets.lance import filtering
from instep.targets.lance.location import Location, lance_library
from instep.targets.lance.upkeep import WORDS
from instep.targets.ranking import HIT_COLUMNS, Query, Search

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

    def by_text(text: str, limit: int) -> list[Hit]:
        return asked.ranked((each["_score"], each) for each in _by_text(dataset, text, limit, chosen))

    def by_vector(query: Query, limit: int) -> list[Hit]:
        return asked.ranked((1.0 - each["_distance"], each) for each in _by_vector(dataset, query, limit, chosen))

    with place.understood():
        return asked.hits(dataset.schema.field("vector").type.list_size, by_text, by_vector)


def _chosen(where: Condition | None) -> dict[str, Any]:
    return {} if where is None else {"filter": filtering.sql(where), "prefilter": True}


def facets(place: Location, physical: str, counted: Counted) -> dict[str, Facet]:
    """See `DocumentTarget.facets`."""
    dataset = place.open(physical, session=_session(os.getpid()))
    chosen = _chosen(counted.where)
    if counted.text is not None:
        if not counted.text.strip():
            return counted.facets({each.name: () for each in counted.columns})
        chosen["full_text_query"] = _words(counted.text)
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


def contents(place: Location, physical: str) -> Iterator[pa.RecordBatch]:
    """See `DocumentTarget.contents`. One version is read, whatever is committed in the time of the scan."""
    dataset, schema = place.open(physical), contents_schema()
    with place.understood():
        for batch in dataset.scanner(columns=schema.names, batch_size=CONTENTS_ROWS, scan_in_order=False).to_batches():
            if batch.num_rows:
                yield batch.cast(schema)


def _by_text(dataset: Any, text: str, limit: int, chosen: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows by BM25 of titles and texts together, best first."""
    scanner = dataset.scanner(
        columns=[*HIT_COLUMNS, "_score"],
        full_text_query=_words(text),
        limit=limit,
        disable_scoring_autoprojection=True,
        **chosen,
    )
    return list(scanner.to_table().to_pylist())


def _words(text: str) -> Any:
    """The query for rows that have one of these words in their title or their text."""
    lance_library()
    from lance.query import BooleanQuery, MatchQuery, Occur

    return BooleanQuery([(Occur.SHOULD, MatchQuery(text, column=column)) for column in WORDS])


def _by_vector(dataset: Any, query: Query, limit: int, chosen: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Rows by cosine similarity."""
    scanner = dataset.scanner(
        columns=[*HIT_COLUMNS, "_distance"],
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
