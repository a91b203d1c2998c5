"""Staging of rows by tasks: through the server, in tables that only a commit reads.

All tasks that began at one version share one table for each kind, whose rows carry the number of their task: rows of
a task that failed, or ran twice, are not among those that are committed. The tables are not logged, so they are quick,
and empty after a crash of the server: a commit counts.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from psycopg import sql

from instep.domain.columns import TypeName
from instep.errors import Conflict, Transient
from instep.postgres.connection import Missing, Name, Session
from instep.postgres.location import Location
from instep.targets.postgres.encoding import HEADER, TRAILER, demand_fit, encoded
from instep.targets.postgres.layout import TableIndex, declared_type
from instep.targets.postgres.registry import STAGED, Index, lock
from instep.targets.table_target import Moved, TableChange, TableSpec, arrow_schema, checked_rows, spec_of

if TYPE_CHECKING:
    import pyarrow as pa

TASK: Final = "_task"

#: Raised whenever staged rows get other columns: a table that an older Instep has left is none of theirs.
_FORMAT: Final = 2

#: So many bytes wait in a task until they are sent, whatever tables they are for.
_BUFFER: Final = 8 * 1024 * 1024


class StagedRows(NamedTuple):
    """The staged rows of one task in one table."""

    kind: str
    table: str
    task: int
    rows: int
    moved: Moved | None = None


def encode(parts: Sequence[StagedRows]) -> bytes:
    return json.dumps({"parts": parts}).encode()


def decode(staged: bytes) -> list[StagedRows]:
    return [StagedRows(*each) for each in json.loads(staged)["parts"]]


def moved_tasks(parts: Iterable[StagedRows]) -> Iterator[tuple[Moved, list[int]]]:
    """The tasks that have rows that moved, by how these are to be remembered."""
    found: dict[Moved, list[int]] = {}
    for each in parts:
        if each.moved:
            found.setdefault(each.moved, []).append(each.task)
    return iter(found.items())


@dataclass
class PostgresTableWriter:
    """See `TableWriter`."""

    place: Location
    index: TableIndex
    base: int

    def stage(self, changes: Iterator[TableChange]) -> bytes:
        schemas = {spec.kind: arrow_schema(spec) for spec in self.index.specs}
        definitions = {each.kind: _definition(each) for each in self.index.specs}
        # Rows that moved are told by their task.
        outputs: dict[Moved | None, Output] = {}
        for kind, rows, moved, _ in changes:
            if moved not in outputs:
                outputs[moved] = Output(self.place, self.index, self.base, definitions)
            output, spec = outputs[moved], spec_of(self.index.specs, kind)
            if rows.num_rows:
                fitting = checked_rows(spec, schemas[kind], rows)
                demand_fit(spec, fitting)
                output.add(kind, _pieces(spec, fitting, output.task), fitting.num_rows)
        return encode([part._replace(moved=moved) for moved, each in outputs.items() for part in each.finish()])


def _pieces(spec: TableSpec, rows: pa.RecordBatch, task: int) -> Iterator[bytes]:
    return encoded({each.name: each.type for each in spec.all_columns}, rows, task)


def _definition(spec: TableSpec) -> sql.Composed:
    text = sql.SQL("text")
    columns = sql.SQL(", ").join(
        sql.SQL("{} {}").format(
            Name(each.name), text if each.type.name is TypeName.DECIMAL else declared_type(each.type)
        )
        for each in spec.all_columns
    )
    return sql.SQL("({}, {} bigint)").format(columns, Name(TASK))


@dataclass
class Output:
    """The output of one task. Connected only while it does: rows may come slowly, and many tasks have none.

    `definitions` are of the tables, by kind: what stands behind their names when they are made, `TASK` included.
    """

    place: Location
    index: Index
    base: int
    definitions: Mapping[str, sql.Composed]
    task: int = field(default_factory=lambda: secrets.randbits(63))
    _waiting: dict[str, list[bytes]] = field(default_factory=dict)
    _size: int = 0
    _rows: dict[str, int] = field(default_factory=dict)
    _tables: dict[str, str] = field(default_factory=dict)

    def add(self, kind: str, pieces: Iterable[bytes], rows: int) -> None:
        """Rows as COPY reads them in binary, the number of the task at the end of each."""
        for piece in pieces:
            self._waiting.setdefault(kind, []).append(piece)
            self._size += len(piece)
            if self._size >= _BUFFER:
                self._send()
        self._rows[kind] = self._rows.get(kind, 0) + rows

    def finish(self) -> list[StagedRows]:
        if self._waiting:
            self._send()
        return [StagedRows(kind, self._tables[kind], self.task, rows) for kind, rows in self._rows.items()]

    def _send(self) -> None:
        with self.place.session() as session:
            for kind, pieces in self._waiting.items():
                if kind not in self._tables:
                    self._tables[kind] = self._make(session, kind)
                _copy(session, self._tables[kind], pieces)
            _touch(session, sorted(self._tables.values()))
        self._waiting, self._size = {}, 0

    def _make(self, session: Session, kind: str) -> str:
        """The table of rows of this kind that were begun at this version, made by the first task that needs it."""
        table = f"{STAGED}_{self.index.id}_{self.base}_{list(self.definitions).index(kind)}_{_FORMAT}"
        with session.transaction():
            lock(session)
            session.run(
                "CREATE UNLOGGED TABLE IF NOT EXISTS {table} {definition}",
                table=session.name(table),
                definition=self.definitions[kind],
            )
            session.run(
                "INSERT INTO {staged} (name, index_id) VALUES (%s, %s) "
                "ON CONFLICT (name) DO UPDATE SET at = clock_timestamp()",
                table,
                self.index.id,
                staged=session.name(STAGED),
            )
        return table


def _copy(session: Session, table: str, pieces: Sequence[bytes]) -> None:
    try:
        session.load("COPY {table} FROM STDIN (FORMAT binary)", [HEADER, *pieces, TRAILER], table=session.name(table))
    except Missing:
        raise Transient(f"{session.place.shown}: rows staged by this task were removed by another process") from None


def _touch(session: Session, tables: Sequence[str]) -> None:
    """Mark tables as in use: `sweep` leaves them alone."""
    session.run(
        "UPDATE {staged} SET at = clock_timestamp() WHERE name = ANY(%s)", list(tables), staged=session.name(STAGED)
    )


def demand_all(session: Session, index: Index, table: str, parts: Sequence[StagedRows]) -> bool:
    """Whether these tasks are the only ones with rows in their table. It is not removed before the end of the
    transaction. Raises `Conflict` when not all that was staged is there: the server has crashed since.
    """
    tasks, expected = [part.task for part in parts], sum(part.rows for part in parts)
    try:
        ((found, all_found),) = session.run(
            "SELECT count(*) FILTER (WHERE {task} = ANY(%s)), count(*) FROM {table}",
            tasks,
            task=Name(TASK),
            table=session.name(table),
        )
    except Missing:
        raise Conflict(f"{session.place.shown}: staged rows are gone: stage them again") from None
    if found != expected:
        raise Conflict(f"{index.name}: {expected} rows were staged and {found} are there: stage them again")
    return bool(found == all_found)


def remove(session: Session, tables: Sequence[str]) -> None:
    """Tables that are still in use are removed later."""
    for table in tables:
        with contextlib.suppress(Transient), session.transaction():
            session.run("SELECT set_config('lock_timeout', '1s', true)")
            session.run("DROP TABLE IF EXISTS {table}", table=session.name(table))
            session.run("DELETE FROM {staged} WHERE name = %s", table, staged=session.name(STAGED))


def sweep(session: Session, keep_seconds: float) -> None:
    """Remove what tasks of any index left that was never committed."""
    found = session.run(
        "SELECT name FROM {staged} WHERE at < clock_timestamp() - make_interval(secs => %s) ORDER BY name",
        keep_seconds,
        staged=session.name(STAGED),
    )
    remove(session, [each[0] for each in found])


def of_index(session: Session, index_id: int) -> list[str]:
    """The tables of staged rows of an index."""
    found = session.run(
        "SELECT name FROM {staged} WHERE index_id = %s ORDER BY name", index_id, staged=session.name(STAGED)
    )
    return [each[0] for each in found]
