"""From tasks to the table of chunks: what is there of documents, what is staged, and the move of a commit."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from instep.domain.columns import STRING
from instep.errors import Conflict
from instep.postgres.connection import Name, Place, Session, names
from instep.targets.port import ChunkChanges, existing_schema, row_schema
from instep.targets.postgres import staging
from instep.targets.postgres.chunks import COMMIT, ROW, WORDS, DocumentIndex, kinds, staged_definition
from instep.targets.postgres.encoding import encoded
from instep.targets.postgres.journal import Journal
from instep.targets.postgres.pgvector import pgvector
from instep.targets.postgres.staging import TASK, Output, StagedRows
from instep.targets.postgres.values import with_nul
from instep.targets.tables import OWN

if TYPE_CHECKING:
    import pyarrow as pa

#: Documents in one lookup, and rows in one deletion.
_LOOKUP: Final = 1_000
_DELETION: Final = 20_000


class Staged(NamedTuple):
    """What one task left: rows to add, and numbers of rows to delete."""

    parts: Sequence[StagedRows]
    stale: Sequence[int]

    def encode(self) -> bytes:
        import numpy as np

        numbers = base64.b64encode(np.asarray(self.stale, "<i8").tobytes()).decode()
        return json.dumps({"parts": self.parts, "stale": numbers}).encode()

    @classmethod
    def decode(cls, data: bytes) -> Staged:
        import numpy as np

        value = json.loads(data)
        numbers = np.frombuffer(base64.b64decode(value["stale"]), "<i8")
        return cls([StagedRows(*each) for each in value["parts"]], numbers.tolist())


@dataclass
class PostgresChunkWriter:
    """See `ChunkWriter`."""

    place: Place
    index: DocumentIndex
    base: int
    _empty: bool | None = field(default=None, init=False)

    def existing(self, document_ids: Sequence[str]) -> pa.Table:
        """Rows that came with or before the base version, as far as they are still there: who deletes one that has
        gone since is told when it commits.
        """
        import pyarrow as pa

        found: list[tuple[Any, ...]] = []
        if document_ids and not self._empty:
            wanted = list(dict.fromkeys(document_ids))
            with self.place.session() as session:
                if self._empty is None:
                    # Once it was, all that is there came later.
                    self._empty = not _any_rows(session, self.index)
                if not self._empty:
                    found = self._found(session, wanted)
        schema = existing_schema()
        columns = list(zip(*found, strict=True)) or [()] * len(schema)
        arrays = [pa.array(values, each.type) for values, each in zip(columns, schema, strict=True)]
        return pa.Table.from_arrays(arrays, schema=schema)

    def _found(self, session: Session, document_ids: Sequence[str]) -> list[tuple[Any, ...]]:
        later = [number_of(each) for each in Journal(session, self.index).attempts(since=self.base)]
        with session.transaction():
            # Rows of a document lie side by side. The server does not know, and would rather read the whole table.
            session.run("SELECT set_config('enable_seqscan', 'off', true)")
            portions = (document_ids[at : at + _LOOKUP] for at in range(0, len(document_ids), _LOOKUP))
            return [row for portion in portions for row in _rows(session, self.index, portion, but=later)]

    def unfit(self, rows: pa.Table) -> Mapping[int, str]:
        found: dict[int, str] = {}
        for name, kind in kinds(self.index.dimensions).items():
            if kind == STRING and name in rows.schema.names:
                for row in with_nul(rows[name]).nonzero()[0].tolist():
                    found[row] = f"{name} has the character U+0000, which PostgreSQL cannot hold"
        return found

    def stage(self, changes: Iterator[ChunkChanges]) -> bytes:
        output: Output | None = None
        stale: list[int] = []
        for rows, gone, _ in changes:
            stale += gone.column("locator").combine_chunks().to_numpy().tolist()
            if rows.num_rows:
                output = output or self._output()
                fitting = rows.select(list(kinds(self.index.dimensions))).cast(row_schema(self.index.dimensions))
                output.add(OWN, encoded(kinds(self.index.dimensions), fitting, output.task), rows.num_rows)
        return Staged(output.finish() if output else [], stale).encode()

    def _output(self) -> Output:
        with self.place.session() as session:
            definition = staged_definition(pgvector(session), self.index.dimensions)
        return Output(self.place, self.index, self.base, {OWN: definition})


def _any_rows(session: Session, index: DocumentIndex) -> bool:
    return bool(session.run("SELECT EXISTS (SELECT FROM {table})", table=session.name(index.name))[0][0])


def _rows(
    session: Session, index: DocumentIndex, document_ids: Sequence[str], *, but: Sequence[int]
) -> list[tuple[Any, ...]]:
    """Rows of these documents, except those of the commits `but`."""
    return session.run(
        "SELECT document_id, chunk_id, chunk_hash, {row} FROM {table} "
        "WHERE document_id = ANY(%s) AND {commit} <> ALL(%s::bigint[])",
        list(document_ids),
        list(but),
        row=Name(ROW),
        table=session.name(index.name),
        commit=Name(COMMIT),
    )


def number_of(attempt: str) -> int:
    """Of a commit, in its rows."""
    return int.from_bytes(sha256(attempt.encode()).digest()[:8], "big", signed=True)


def move(session: Session, index: DocumentIndex, staged: Sequence[bytes], attempt: str) -> list[str]:
    """Put in what tasks staged; see `committing.commit`. Raises `Conflict` when some of it, or a row that it replaces,
    is not there.
    """
    tasks = [Staged.decode(each) for each in staged]
    _delete(session, index, sorted({number for each in tasks for number in each.stale}))
    done = []
    parts = [part for each in tasks for part in each.parts]
    for table in sorted({part.table for part in parts}):
        own = [part for part in parts if part.table == table]
        if staging.demand_all(session, index, table, own):
            done.append(table)
        _insert(session, index, table, [part.task for part in own], attempt)
    return done


def _delete(session: Session, index: DocumentIndex, rows: Sequence[int]) -> None:
    for at in range(0, len(rows), _DELETION):
        portion = rows[at : at + _DELETION]
        ((found,),) = session.run(
            "WITH gone AS (DELETE FROM {table} WHERE {row} = ANY(%s::bigint[]) RETURNING 1) SELECT count(*) FROM gone",
            "{" + ",".join(map(str, portion)) + "}",  # made in a tenth of the time that the driver takes for a list
            table=session.name(index.name),
            row=Name(ROW),
        )
        if found != len(portion):
            raise Conflict(f"{index.name}: rows were replaced by somebody else; read them again")


def _insert(session: Session, index: DocumentIndex, table: str, tasks: Sequence[int], attempt: str) -> None:
    columns = names([*kinds(index.dimensions), WORDS])
    session.run(
        "INSERT INTO {table} ({columns}, {commit}) SELECT {columns}, %s FROM {staged} WHERE {task} = ANY(%s)",
        number_of(attempt),
        list(tasks),
        table=session.name(index.name),
        columns=columns,
        commit=Name(COMMIT),
        staged=session.name(table),
        task=Name(TASK),
    )
