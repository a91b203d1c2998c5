"""Full-text, vector and hybrid search, and single rows. What the user types is data: it is never parsed."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from psycopg import sql

from instep.domain.document_columns import DocumentColumn
from instep.domain.words import TextQuery
from instep.postgres.connection import Binary, Name, Session, names
from instep.targets.document_target import (
    CONTENTS_ROWS,
    ORIGIN,
    Hit,
    ScoreKind,
    StoredRow,
    contents_schema,
    written_schema,
)
from instep.targets.facets import Counted, Facet
from instep.targets.postgres.chunks import ROW, WORDS, DocumentIndex, has_graph
from instep.targets.postgres.filtering import EVERY, Clause, clause
from instep.targets.postgres.pgvector import MAX_HALVED, MAX_INDEXED, Pgvector, pgvector
from instep.targets.ranking import Query, Search

if TYPE_CHECKING:
    import pyarrow as pa

#: Words of one query, the rarest first: the cost of a search grows with them.
_MAX_WORDS: Final = 32

#: Rows whose rank is looked at, at most: words that more rows have are not what they are searched for by.
_CANDIDATES: Final = 10_000

#: How many neighbours an index by HNSW keeps in sight: at least, and at most (pgvector's own limit).
_LEAST_IN_SIGHT: Final = 200
_MOST_IN_SIGHT: Final = 1_000

#: With vectors of half precision, so many times the limit are compared as they are.
_REFINE: Final = 3

#: Rows that a filter leaves: so many are compared with a vector sooner than they are found by the index.
_FEW: Final = 5_000

#: Estimates of how many rows a filter leaves: kept so long, and so many.
_ESTIMATE_SECONDS: Final = 60.0
_ESTIMATES: Final = 256


class _Word(NamedTuple):
    query: str
    weight: float
    rows: float


def search(session: Session, index: DocumentIndex, asked: Search) -> list[Hit]:
    chosen = EVERY if asked.where is None else clause(asked.where)

    def hits(found: Iterable[tuple[Any, ...]], kind: ScoreKind) -> list[Hit]:
        rows = ((score, dict(zip(asked.fields, values, strict=True))) for score, *values in found)
        return asked.ranked(rows, kind)

    def by_text(text: TextQuery, limit: int) -> list[Hit]:
        return hits(_by_text(session, index, text, fields=asked.fields, limit=limit, chosen=chosen), "ts_rank")

    def by_vector(query: Query, limit: int) -> list[Hit]:
        return hits(_by_vector(session, index, query, fields=asked.fields, limit=limit, chosen=chosen), "cosine")[
            :limit
        ]

    return asked.hits(index.dimensions, by_text, by_vector)


def facets(session: Session, index: DocumentIndex, counted: Counted) -> dict[str, Facet]:
    """See `DocumentTarget.facets`."""
    chosen = EVERY if counted.where is None else clause(counted.where)
    having, query = EVERY.sql, []
    if counted.text is not None:
        having = sql.SQL("{} @@ %s::tsquery").format(Name(WORDS))
        query = [_phrases(counted.text) or " | ".join(map(_quoted, counted.text.words))]
    return counted.facets(
        {
            each.name: session.run(
                "SELECT value, count(*) FROM {table}, LATERAL ({values}) AS each(value) "
                "WHERE {having} AND {chosen} AND value IS NOT NULL GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT %s",
                *query,
                *chosen.values,
                counted.limit,
                table=session.name(index.name),
                values=sql.SQL("SELECT DISTINCT unnest({})" if each.type.listed else "SELECT {}").format(
                    Name(each.name)
                ),
                having=having,
                chosen=chosen.sql,
            )
            for each in counted.columns
        }
    )


def count(session: Session, index: DocumentIndex) -> int:
    found = session.run("SELECT count(*) FROM {table}", table=session.name(index.name))
    return int(found[0][0])


def row(session: Session, index: DocumentIndex, id: str) -> StoredRow | None:
    """See `DocumentTarget.row`."""
    for column in ("document_id", "chunk_id"):
        found = session.run(
            "SELECT {columns} FROM {table} WHERE {column} = %s ORDER BY chunk_index LIMIT 1",
            _storable(id),
            columns=names(list(ORIGIN.values())),
            table=session.name(index.name),
            column=Name(column),
        )
        if found and _storable(id) == id:
            return StoredRow(**dict(zip(ORIGIN, found[0], strict=True)))
    return None


def portion(session: Session, index: DocumentIndex, *, after: int) -> tuple[int, pa.RecordBatch] | None:
    """The next rows behind this one, in the order in which they were written: the number of the last, and what
    `DocumentTarget.contents` shows of them.
    """
    import pyarrow as pa

    schema = contents_schema()
    found = session.run(
        "SELECT {row}, {columns} FROM {table} WHERE {row} > %s ORDER BY {row} LIMIT %s",
        after,
        CONTENTS_ROWS,
        row=Name(ROW),
        columns=names(schema.names),
        table=session.name(index.name),
    )
    if not found:
        return None
    numbers, *columns = zip(*found, strict=True)
    arrays = [pa.array(values, each.type) for values, each in zip(columns, schema, strict=True)]
    return numbers[-1], pa.RecordBatch.from_arrays(arrays, schema=schema)


def _storable(text: str) -> str:
    """A text as PostgreSQL can be sent it."""
    return text.encode("utf-8", "replace").decode().replace("\0", " ")


def _by_text(
    session: Session, index: DocumentIndex, text: TextQuery, *, fields: list[str], limit: int, chosen: Clause
) -> list[tuple[Any, ...]]:
    """Rows with all of the words; if they are too few, with some of them. The phrases are in all."""
    words, demanded = _words(session, index, text), _phrases(text)

    def rows(query: str) -> list[tuple[Any, ...]]:
        whole = f"{demanded} & ({query})" if demanded else query
        return _with_words(session, index, words, whole, fields=fields, limit=limit, chosen=chosen)

    found = rows(" & ".join(word.query for word in words))
    if len(found) < limit and len(words) > 1:
        some = words if demanded else _rare(words)
        found = rows(" | ".join(word.query for word in some))
    return found


def _phrases(text: TextQuery) -> str:
    """A tsquery for rows that have all of the phrases; empty without any."""
    return " & ".join("(" + " <-> ".join(map(_quoted, each)) + ")" for each in text.phrases)


def _words(session: Session, index: DocumentIndex, text: TextQuery) -> list[_Word]:
    """The words of a query, the rarest first, each weighed by how rare it is (as the server's statistics have it)."""
    common, rows = _statistics(session, index)
    least = min(common.values(), default=1.0)
    words = []
    for each, times in Counter(text.words).items():
        share = common.get(each, least)
        words.append(_Word(_quoted(each), times * math.log1p(1 / share), share * rows))
    return sorted(words, key=lambda word: (-word.weight, word.query))[:_MAX_WORDS]


def _statistics(session: Session, index: DocumentIndex) -> tuple[dict[str, float], float]:
    """Shares of rows that have the most common words, as far as they are known; and the number of rows."""
    found = session.run(
        "SELECT most_common_elems::text::text[], most_common_elem_freqs, greatest(reltuples, 0)::float8 "
        "FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
        "LEFT JOIN pg_stats ON schemaname = nspname AND tablename = relname AND attname = %s "
        "WHERE nspname = %s AND relname = %s",
        WORDS,
        session.place.schema,
        index.name,
    )
    for words, shares, rows in found:
        # Behind the shares stand their limits.
        return dict(zip(words or (), shares or (), strict=False)), rows
    return {}, 0.0


def _quoted(lexeme: str) -> str:
    """A word of a tsquery, whatever characters it has."""
    return "'" + lexeme.replace("\\", "\\\\").replace("'", "''") + "'"


def _rare(words: Sequence[_Word]) -> list[_Word]:
    """The words by which rows are found, the rarest first."""
    found = [words[0]]
    rows = words[0].rows
    for word in words[1:]:
        rows += word.rows
        if rows > _CANDIDATES:
            break
        found.append(word)
    return found


def _with_words(
    session: Session,
    index: DocumentIndex,
    words: Sequence[_Word],
    query: str,
    *,
    fields: list[str],
    limit: int,
    chosen: Clause,
) -> list[tuple[Any, ...]]:
    rank = sql.SQL(" + ").join([sql.SQL("%s * ts_rank({}, %s::tsquery, 1)").format(Name(WORDS))] * len(words))
    return session.run(
        "SELECT score, {columns} FROM (SELECT {row} AS found, {rank} AS score FROM "
        "(SELECT {row}, {words} FROM {table} WHERE {words} @@ %s::tsquery AND {chosen} LIMIT %s) AS candidates "
        "ORDER BY 2 DESC, 1 LIMIT %s) AS best JOIN {table} ON {row} = found",
        *(value for word in words for value in (word.weight, word.query)),
        query,
        *chosen.values,
        _CANDIDATES,
        limit,
        chosen=chosen.sql,
        columns=names(fields),
        row=Name(ROW),
        rank=rank,
        words=Name(WORDS),
        table=session.name(index.name),
    )


def _by_vector(
    session: Session, index: DocumentIndex, query: Query, *, fields: list[str], limit: int, chosen: Clause
) -> list[tuple[Any, ...]]:
    """Rows by cosine similarity. If few are chosen, each of them is compared: the index would look at most of its own
    rows to find these, and gives up before.
    """
    vectors = _vectors(session)
    nearest = partial(_nearest, session, index, vectors, query, fields=fields, limit=limit, chosen=chosen)
    graph = chosen is not EVERY and _has_graph(session, index)
    if graph and _estimated(session, index, chosen) <= _FEW:
        return nearest(by_index=False)
    session.setting("hnsw.ef_search", str(min(_MOST_IN_SIGHT, max(_LEAST_IN_SIGHT, 2 * limit))))
    if vectors.iterative:
        # Rows that were deleted may still be in the index, and others that are not chosen.
        session.setting("hnsw.iterative_scan", "relaxed_order")
    found = nearest()
    return nearest(by_index=False) if graph and len(found) < limit else found


def _has_graph(session: Session, index: DocumentIndex) -> bool:
    """See `has_graph`. An index that has one keeps it."""
    key = "graph", index.name
    if not session.memory.get(key):
        session.memory[key] = has_graph(session, index)
    return bool(session.memory[key])


def _estimated(session: Session, index: DocumentIndex, chosen: Clause) -> int:
    """Estimate how many rows are chosen, by the server's statistics. The same filter is asked for again and again, so
    the answer is remembered for a while.
    """
    known: dict[str, tuple[float, int]] = session.memory.setdefault(("estimated", index.name), {})
    key, now = f"{chosen.sql.as_string(None)} {chosen.values!r}", time.monotonic()
    if (found := known.get(key)) is None or now - found[0] > _ESTIMATE_SECONDS:
        if len(known) >= _ESTIMATES:
            known.clear()
        plan = session.run(
            "EXPLAIN (FORMAT JSON) SELECT 1 FROM {table} WHERE {chosen}",
            *chosen.values,
            table=session.name(index.name),
            chosen=chosen.sql,
        )
        known[key] = found = now, int(plan[0][0][0]["Plan"]["Plan Rows"])
    return found[1]


def _vectors(session: Session) -> Pgvector:
    """The extension that this connection has loaded, which stays the same whatever is installed meanwhile."""
    found = session.memory.get("pgvector")
    if found is None:
        found = session.memory["pgvector"] = pgvector(session)
    assert isinstance(found, Pgvector)
    return found


def _nearest(
    session: Session,
    index: DocumentIndex,
    vectors: Pgvector,
    query: Query,
    *,
    fields: list[str],
    limit: int,
    chosen: Clause,
    by_index: bool = True,
) -> list[tuple[Any, ...]]:
    """Rows by the vectors that an index has; those found by halved ones are compared by whole ones then."""
    # As pgvector sends and receives it: the number of dimensions, nothing, and each of them.
    typed = Binary(len(query).to_bytes(2) + bytes(2) + query.astype(">f4").tobytes())
    key, kind = vectors.key(Name("vector"), index.dimensions)
    parts = {
        "by": vectors.distance,
        "columns": names(fields),
        "table": session.name(index.name),
        "chosen": chosen.sql,
        "key": key,
        "exact": vectors.type(index.dimensions),
        # The order of a sum is none that an index has.
        "more": sql.SQL("" if by_index else " + 0"),
    }
    if not MAX_INDEXED < index.dimensions <= MAX_HALVED:
        return session.run(
            "SELECT 1 - distance, {columns} FROM (SELECT ({key} {by} %s::{exact}){more} AS distance, {columns} "
            "FROM {table} WHERE {chosen} ORDER BY distance LIMIT %s) AS near",
            typed,
            *chosen.values,
            limit,
            **parts,
        )
    return session.run(
        "SELECT 1 - ({vector} {by} %s::{exact}), {columns} FROM "
        "(SELECT {vector}, {columns} FROM {table} WHERE {chosen} "
        "ORDER BY ({key} {by} %s::{exact}::{kind}){more} LIMIT %s) AS near",
        typed,
        *chosen.values,
        typed,
        limit * _REFINE,
        vector=Name("vector"),
        kind=kind,
        **parts,
    )


def written(
    session: Session, index: DocumentIndex, document_ids: Sequence[str], columns: Sequence[DocumentColumn]
) -> pa.Table:
    """See `DocumentTarget.written`."""
    import pyarrow as pa

    schema = written_schema(columns)
    found = session.run(
        "SELECT document_id, chunk_id, title, text, CAST(vector AS real[]){columns} FROM {table} "
        "WHERE document_id = ANY(%s)",
        [_storable(each) for each in document_ids],
        columns=sql.Composed([sql.SQL(", {}").format(Name(each.name)) for each in columns]),
        table=session.name(index.name),
    )
    return pa.Table.from_pylist([dict(zip(schema.names, each, strict=True)) for each in found], schema=schema)
