"""Indexes of a table of chunks that pay once it is large: by words, and by neighbourhood of vectors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Final

from instep.errors import UserError
from instep.targets.postgres import upkeep
from instep.targets.postgres.chunks import WORDS, DocumentIndex
from instep.targets.postgres.connection import Name, Session
from instep.targets.postgres.pgvector import MAX_HALVED, pgvector

#: From here on the neighbours are found by an index.
VECTOR_ROWS: Final = 50_000

#: What building an index may use: as it needs, and at most.
_MEMORY_MB: Final = 256
_MOST_MEMORY_MB: Final = 1_024

#: Beside its vector, what a row takes in an index by HNSW while it is built.
_NODE_BYTES: Final = 400


def maintain(session: Session, index: DocumentIndex, *, full: bool) -> None:
    """Words are indexed once there are some: from then on each commit keeps the index."""
    table = session.name(index.name)
    first = not _built(session, index, WORDS) and _has(session, index, rows=1)
    if first:
        with _memory(session, _MEMORY_MB):
            session.run(
                "CREATE INDEX IF NOT EXISTS {name} ON {table} USING gin ({words})",
                name=Name(index.index(WORDS)),
                table=table,
                words=Name(WORDS),
            )
        session.run("ANALYZE {table}", table=table)
    if full or not first:
        upkeep.tend(session, [index.name], full=full)


def refine(session: Session, index: DocumentIndex, begin: Callable[[], None]) -> None:
    """See `DocumentTarget.refine`. Commits go on meanwhile."""
    done = index.dimensions > MAX_HALVED or _built(session, index, "vector")
    if done or not _has(session, index, rows=VECTOR_ROWS):
        return
    begin()
    with _memory(session, _graph_mb(session, index)):
        try:
            _build(session, index)
        except UserError:
            # Where memory that processes share is short, as in a container, one alone must do.
            session.run("SET max_parallel_maintenance_workers = 0")
            _build(session, index)
            session.run("RESET max_parallel_maintenance_workers")


def _build(session: Session, index: DocumentIndex) -> None:
    name = index.index("vector")
    # A try that broke off leaves one that is of no use.
    session.run("DROP INDEX IF EXISTS {name}", name=session.name(name))
    vectors = pgvector(session)
    session.run(
        "CREATE INDEX CONCURRENTLY {name} ON {table} USING hnsw ({key} {operators})",
        name=Name(name),
        table=session.name(index.name),
        key=vectors.key(Name("vector"), index.dimensions)[0],
        operators=vectors.operators(index.dimensions),
    )


def _built(session: Session, index: DocumentIndex, column: str) -> bool:
    found = session.run(
        "SELECT 1 FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid "
        "JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE nspname = %s AND relname = %s AND indisvalid",
        session.place.schema,
        index.index(column),
    )
    return bool(found)


def _has(session: Session, index: DocumentIndex, *, rows: int) -> bool:
    """Whether there are so many, without counting all."""
    found = session.run("SELECT 1 FROM {table} OFFSET %s LIMIT 1", max(0, rows - 1), table=session.name(index.name))
    return bool(found)


def _graph_mb(session: Session, index: DocumentIndex) -> int:
    """What the graph of all vectors takes: without it, building takes many times as long."""
    ((rows,),) = session.run(
        "SELECT greatest(reltuples, %s)::float8 FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace "
        "WHERE nspname = %s AND relname = %s",
        VECTOR_ROWS,
        session.place.schema,
        index.name,
    )
    needed = rows * (4 * index.dimensions + _NODE_BYTES) * 1.2 / 2**20
    return int(min(_MOST_MEMORY_MB, max(_MEMORY_MB, needed)))


@contextlib.contextmanager
def _memory(session: Session, megabytes: int) -> Iterator[None]:
    """What is not put back after an error does no harm: then the connection is closed."""
    session.run("SELECT set_config('maintenance_work_mem', %s, false)", f"{megabytes}MB")
    yield
    session.run("RESET maintenance_work_mem")
