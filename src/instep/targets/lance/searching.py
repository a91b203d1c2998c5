"""Full-text, vector and hybrid search, and single rows. What the user types is data: it is never parsed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from instep.domain.document_columns import DocumentColumn
from instep.targets.document_target import (
    CONTENTS_ROWS,
    ORIGIN,
    Hit,
    StoredRow,
    contents_schema,
    written_schema,
)
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
    chosen = {} if asked.where is None else {"filter": filtering.sql(asked.where), "prefilter": True}

    def by_text(text: str, limit: int) -> list[Hit]:
        return asked.ranked((each["_score"], each) for each in _by_text(dataset, text, limit, chosen))

    def by_vector(query: Query, limit: int) -> list[Hit]:
        return asked.ranked((1.0 - each["_distance"], each) for each in _by_vector(dataset, query, limit, chosen))

    with place.understood():
        return asked.hits(dataset.schema.field("vector").type.list_size, by_text, by_vector)


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
    lance_library()
    from lance.query import BooleanQuery, MatchQuery, Occur

    either = [(Occur.SHOULD, MatchQuery(text, column=column)) for column in WORDS]
    scanner = dataset.scanner(
        columns=[*HIT_COLUMNS, "_score"],
        full_text_query=BooleanQuery(either),
        limit=limit,
        disable_scoring_autoprojection=True,
        **chosen,
    )
    return list(scanner.to_table().to_pylist())


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
