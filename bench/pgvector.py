"""pgvector for `bench.vectors`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, Final

import psycopg
import pyarrow as pa

from bench.servers import DurablePostgres
from bench.vector_sides import DELETED_AT_ONCE, DIMENSIONS
from instep.targets.document_target import DocumentTarget
from instep.targets.postgres.chunks import Rows
from instep.targets.postgres.documents import PostgresDocuments
from instep.targets.postgres.encoding import HEADER, TRAILER, encoded

#: As PostgreSQL itself would be told to find the words.
_WORDS: Final = (
    "setweight(to_tsvector('pg_catalog.english', coalesce(title, '')), 'C') || to_tsvector('pg_catalog.english', text)"
)


class Pgvector:
    """PostgreSQL with the durability and the memory that it has by default. The client sends rows by COPY in binary,
    encoded by Arrow as Instep does it: psycopg alone would take longer.
    """

    name = "postgres"

    def __init__(self) -> None:
        self._server = DurablePostgres()
        self._server.start()
        # What it would do in the midst of what is timed; `settle` does it instead.
        self._server.execute("ALTER SYSTEM SET autovacuum = off")
        self._server.execute("SELECT pg_reload_conf()")
        self._uri = self._server.create("vectors")
        self.forget()

    def declared(self) -> dict[str, Any]:
        return {"type": "postgres", "uri": self._uri, "schema": "theirs"}

    def target(self) -> DocumentTarget:
        return PostgresDocuments(self._uri, "theirs")

    def forget(self) -> None:
        with self._connected() as connection:
            connection.execute("DROP SCHEMA IF EXISTS theirs CASCADE")
            connection.execute("DROP TABLE IF EXISTS bare")
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")

    def settle(self) -> None:
        """Without indexes: removing half of the rows from one by HNSW takes the server more than ten minutes."""
        with self._connected() as connection:
            connection.execute("VACUUM (ANALYZE, INDEX_CLEANUP off)")
            connection.execute("CHECKPOINT")

    def insert(self, rows: Iterable[pa.RecordBatch]) -> None:
        """Without indexes first: they are built quicker than kept."""
        columns = ", ".join(f'"{name}" {kind}' for name, kind in self._types.items())
        with self._connected() as connection, connection.transaction():
            connection.execute(
                f"CREATE TABLE bare ({columns}, task bigint, number bigint GENERATED ALWAYS AS IDENTITY, "
                f"words tsvector GENERATED ALWAYS AS ({_WORDS}) STORED) WITH (toast_tuple_target = 4080)"
            )
            self._copy(connection, "bare", rows)
            connection.execute("SET LOCAL maintenance_work_mem = '256MB'")
            connection.execute("ALTER TABLE bare ADD PRIMARY KEY (number)")
            connection.execute("CREATE INDEX ON bare (document_id)")
            connection.execute("CREATE INDEX ON bare USING hash (chunk_id)")
            connection.execute("CREATE INDEX ON bare USING gin (words)")
        with self._connected() as connection:
            connection.execute("ANALYZE bare")

    def index(self) -> None:
        with self._connected() as connection:
            connection.execute("SET maintenance_work_mem = '1GB'")
            connection.execute("CREATE INDEX ON bare USING hnsw (vector vector_cosine_ops)")

    def update(self, rows: Iterable[pa.RecordBatch], gone: Sequence[str]) -> None:
        columns = ", ".join(f'"{name}"' for name in self._types)
        with self._connected() as connection, connection.transaction():
            connection.execute(
                f"CREATE TEMPORARY TABLE fresh ON COMMIT DROP AS SELECT {columns}, task FROM bare LIMIT 0"
            )
            self._copy(connection, "fresh", rows)
            connection.execute("DELETE FROM bare USING fresh WHERE bare.chunk_id = fresh.chunk_id")
            connection.execute("DELETE FROM bare WHERE chunk_id = ANY(%s)", [list(gone)])
            connection.execute(f"INSERT INTO bare ({columns}) SELECT {columns} FROM fresh")

    def delete(self, document_ids: Sequence[str]) -> None:
        with self._connected() as connection:
            for at in range(0, len(document_ids), DELETED_AT_ONCE):
                portion = list(document_ids[at : at + DELETED_AT_ONCE])
                connection.execute("DELETE FROM bare WHERE document_id = ANY(%s)", [portion])

    def rows(self) -> int:
        with self._connected() as connection:
            ((found,),) = connection.execute("SELECT count(*) FROM bare").fetchall()
        return int(found)

    def close(self) -> None:
        self._server.stop()

    @cached_property
    def _types(self) -> dict[str, str]:
        others = {"chunk_index": "integer", "_version": "bigint", "vector": f"vector({DIMENSIONS})"}
        return {name: others.get(name, "text") for name in Rows(DIMENSIONS).kinds}

    def _copy(self, connection: psycopg.Connection[Any], table: str, rows: Iterable[pa.RecordBatch]) -> None:
        columns = ", ".join(f'"{name}"' for name in self._types)
        with connection.cursor().copy(f"COPY {table} ({columns}, task) FROM STDIN (FORMAT binary)") as copy:
            copy.write(HEADER)
            for batch in rows:
                for piece in encoded(Rows(DIMENSIONS).kinds, batch, 0):
                    copy.write(piece)
            copy.write(TRAILER)

    @contextlib.contextmanager
    def _connected(self) -> Iterator[psycopg.Connection[Any]]:
        with psycopg.connect(self._uri, autocommit=True) as connection:
            yield connection
