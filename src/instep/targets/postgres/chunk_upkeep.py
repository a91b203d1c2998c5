"""Indexes of a table of chunks that pay once it is large: by words, and by neighbourhood of vectors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Final

from instep.errors import UserError
from instep.postgres.connection import Name, Session
from instep.targets.postgres import upkeep
from instep.targets.postgres.chunks import WORDS, DocumentIndex
from instep.targets.postgres.pgvector import MAX_HALVED, pgvector

#: From here on the neighbours are found by an index.
VECTOR_ROWS: Final = 50_000

#: What building an index may use: as it needs, and at most.
_MEMORY_MB: Final = 256
_MOST_MEMORY_MB: Final = 1_024

#: A sample of so many times 300 rows says which words are common.
_STATISTICS: Final = 30

#: Beside its vector, what a row takes in an index by HNSW while it is built.
_NODE_BYTES: Final = 400


def maintain(session: Session, index: DocumentIndex, *, full: bool) -> None:
    """Words are indexed once there are some: from then on commits keep the index, and the server its statistics."""
    if not _built(session, index, WORDS) and _has(session, index, rows=1):
        with _settings(session, maintenance_work_mem=f"{_MEMORY_MB}MB", default_statistics_target=_STATISTICS):
            session.run(
                "CREATE INDEX IF NOT EXISTS {name} ON {table} USING gin ({words})",
                name=Name(index.index(WORDS)),
                table=session.name(index.name),
                words=Name(WORDS),
            )
            session.run("ANALYZE {table}", table=session.name(index.name))
    if full:
        upkeep.tend(session, [index.name], full=True)


def refine(session: Session, index: DocumentIndex, begin: Callable[[], None]) -> None:
    """See `DocumentTarget.refine`. Commits go on meanwhile."""
    done = index.dimensions > MAX_HALVED or _built(session, index, "vector")
    if done or not _has(session, index, rows=VECTOR_ROWS):
        return
    begin()
    memory = f"{_graph_mb(session, index)}MB"
    try:
        with _settings(session, maintenance_work_mem=memory):
            _build(session, index)
    except UserError:
        # Where memory that processes share is short, as in a container, one alone must do.
        with _settings(session, maintenance_work_mem=memory, max_parallel_maintenance_workers=0):
            _build(session, index)


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
def _settings(session: Session, **values: str | int) -> Iterator[None]:
    """For statements that are no part of a transaction."""
    for name, value in values.items():
        session.run("SELECT set_config(%s, %s, false)", name, str(value))
    try:
        yield
    finally:
        for name in values:
            session.run("RESET {name}", name=Name(name))
