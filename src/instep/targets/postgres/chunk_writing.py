"""Writing chunks: rows of documents, staged rows, and their move by a commit."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from psycopg import sql

from instep.domain.columns import STRING
from instep.errors import Conflict
from instep.postgres.connection import Name, Session, names
from instep.postgres.location import Location
from instep.targets.document_target import SEARCHED, ChunkChanges, existing_schema, retold_schema
from instep.targets.postgres import staging
from instep.targets.postgres.chunks import (
    COMMIT,
    LOCATOR,
    ROW,
    WORDS,
    DocumentIndex,
    retold_definition,
    staged_definition,
)
from instep.targets.postgres.encoding import Listed, encoded, with_nul
from instep.targets.postgres.journal import Journal
from instep.targets.postgres.pgvector import pgvector
from instep.targets.postgres.staging import TASK, Output, StagedRows
from instep.targets.request_limits import portions
from instep.targets.table_target import OWN

if TYPE_CHECKING:
    import pyarrow as pa

    from instep.domain.document_columns import DocumentColumn

#: Documents in one lookup, and rows in one deletion.
_LOOKUP: Final = 1_000
_DELETION: Final = 20_000

#: The kind of staged rows that replace the columns of others.
_RETOLD: Final = "retold"

#: Text columns of `existing_schema`; the number of a row is its locator.
_COMPARED: Final = ("document_id", "chunk_id", "chunk_hash")


class Staged(NamedTuple):
    """The staged work of one task: rows to add, numbers of rows to delete, and documents to delete by how many rows
    they had.
    """

    parts: Sequence[StagedRows]
    stale: Sequence[int]
    removed: Mapping[str, int]

    def encode(self) -> bytes:
        import numpy as np

        numbers = base64.b64encode(np.asarray(self.stale, "<i8").tobytes()).decode()
        return json.dumps({"parts": self.parts, "stale": numbers, "removed": self.removed}).encode()

    @classmethod
    def decode(cls, data: bytes) -> Staged:
        import numpy as np

        value = json.loads(data)
        numbers = np.frombuffer(base64.b64decode(value["stale"]), "<i8")
        return cls([StagedRows(*each) for each in value["parts"]], numbers.tolist(), value["removed"])


@dataclass
class PostgresChunkWriter:
    """See `ChunkWriter`."""

    place: Location
    index: DocumentIndex
    base: int
    _empty: bool | None = field(default=None, init=False)

    def existing(self, document_ids: Sequence[str], removed: Collection[str] = ()) -> pa.Table:
        """Rows that came with or before the base version, as far as they are still there: who deletes one that has
        gone since is told when it commits.
        """
        import pyarrow as pa

        found: list[pa.Table] = []
        if document_ids and not self._empty:
            wanted = list(dict.fromkeys(document_ids))
            with self.place.session() as session:
                if self._empty is None:
                    # Once it was, all that is there came later.
                    self._empty = not _any_rows(session, self.index)
                if not self._empty:
                    found = self._found(session, wanted, frozenset(removed))
        return pa.concat_tables([existing_schema().empty_table(), *found])

    def _found(self, session: Session, document_ids: Sequence[str], removed: frozenset[str]) -> list[pa.Table]:
        later = _later(session, self.index, self.base)
        compared = [each for each in document_ids if each not in removed]
        counted = [each for each in document_ids if each in removed]
        with session.transaction():
            # Rows of a document lie side by side. The server does not know, and would rather read the whole table.
            session.run("SELECT set_config('enable_seqscan', 'off', true)")
            rows = [_rows(session, self.index, portion, but=later) for portion in portions(compared, _LOOKUP)]
            return rows + [_counted(session, self.index, some, but=later) for some in portions(counted, _LOOKUP)]

    def stored(self, document_ids: Sequence[str], columns: Sequence[DocumentColumn]) -> pa.Table:
        import pyarrow as pa

        schema = retold_schema(columns)
        if not document_ids or self._empty:
            return schema.empty_table()
        with self.place.session() as session:
            later = _later(session, self.index, self.base)
            found = session.run(
                "SELECT {columns} FROM {table} WHERE {those}",
                *_bound(document_ids, later),
                columns=sql.SQL(", ").join(map(_stored_column, schema.names)),
                table=session.name(self.index.name),
                those=_of_documents(later),
            )
        return pa.Table.from_pylist([dict(zip(schema.names, each, strict=True)) for each in found], schema=schema)

    def unfit(self, rows: pa.Table) -> Mapping[int, str]:
        import pyarrow.compute as pc

        found: dict[int, str] = {}
        for name, kind in self.index.rows.kinds.items():
            if kind in (STRING, Listed(STRING)) and name in rows.schema.names:
                texts: Any = rows[name] if kind == STRING else pc.binary_join(rows[name], "")
                for row in with_nul(texts).nonzero()[0].tolist():
                    found[row] = f"{name} has the character U+0000, which PostgreSQL cannot hold"
        return found

    def stage(self, changes: Iterator[ChunkChanges]) -> bytes:
        output: Output | None = None
        stale: list[int] = []
        removed: Counter[str] = Counter()
        for change in changes:
            numbers, documents = _stale(change)
            stale += numbers
            removed.update(documents)
            if (rows := change.rows).num_rows:
                output = output or self._output()
                schema = self.index.rows.schema
                fitting = rows.select(schema.names).cast(schema)
                output.add(OWN, encoded(self.index.rows.staged, _placed(fitting), output.task), rows.num_rows)
            if change.retold is not None:
                output = output or self._output()
                for batch in self._retold(change.retold):
                    output.add(_RETOLD, encoded(self.index.rows.retold, batch, output.task), batch.num_rows)
        return Staged(output.finish() if output else [], stale, removed).encode()

    def _retold(self, rows: pa.Table) -> list[pa.RecordBatch]:
        import pyarrow as pa

        names = [SEARCHED if name == WORDS else name for name in self.index.rows.retold]
        locators: Any = rows[LOCATOR].cast(pa.int64())
        placed = rows.set_column(rows.schema.get_field_index(LOCATOR), LOCATOR, locators)
        return [_placed(each) for each in placed.select(names).combine_chunks().to_batches()]

    def _output(self) -> Output:
        with self.place.session() as session:
            definition = staged_definition(pgvector(session), self.index.rows)
        definitions = {OWN: definition, _RETOLD: retold_definition(self.index.rows)}
        return Output(self.place, self.index, self.base, definitions)


def _stored_column(name: str) -> sql.Composable:
    """A column of `retold_schema` as it is stored."""
    if name == SEARCHED:
        # The words as they came, in the order of their places.
        return sql.SQL(
            "(SELECT coalesce(string_agg(each.lexeme, ' ' ORDER BY place), '') "
            "FROM unnest({words}) AS each, unnest(each.positions) AS place)"
        ).format(words=Name(WORDS))
    return Name(ROW if name == LOCATOR else name)


def _placed(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows with their words as they are stored."""
    from instep.targets.postgres.lexemes import tsvectors

    return rows.set_column(rows.schema.get_field_index(SEARCHED), WORDS, tsvectors(rows.column(SEARCHED)))


def _stale(change: ChunkChanges) -> tuple[list[int], Mapping[str, int]]:
    """Numbers of rows to delete, and documents that go as a whole, by how many rows they have."""
    import pyarrow as pa
    import pyarrow.compute as pc

    whole: Any = pc.is_in(change.stale["document_id"], value_set=pa.array(change.removed, pa.string()))
    rows = change.stale.filter(pc.invert(whole))["locator"].to_numpy().tolist()
    counted: Any = pc.value_counts(change.stale["document_id"].filter(whole))
    return rows, dict(zip(*(column.to_pylist() for column in counted.flatten()), strict=True))


def _any_rows(session: Session, index: DocumentIndex) -> bool:
    return bool(session.run("SELECT EXISTS (SELECT FROM {table})", table=session.name(index.name))[0][0])


def _rows(session: Session, index: DocumentIndex, document_ids: Sequence[str], *, but: Sequence[int]) -> pa.Table:
    """Rows of these documents, except those of the commits `but`: column by column as Arrow has them, so that nothing
    is done for each.
    """
    import numpy as np
    import pyarrow as pa

    columns = [
        sql.SQL("string_agg(textsend({name}), ''), string_agg(int4send(octet_length({name})), '')").format(
            name=Name(each)
        )
        for each in _COMPARED
    ]
    ((*texts, places, numbers),) = session.run(
        "SELECT {columns}, string_agg(int4send(chunk_index), ''), string_agg(int8send({row}), '') "
        "FROM {table} WHERE {those}",
        *_bound(document_ids, but),
        columns=sql.SQL(", ").join(columns),
        row=Name(ROW),
        table=session.name(index.name),
        those=_of_documents(but),
    )
    if numbers is None:
        return existing_schema().empty_table()
    found = [_strings(data, lengths) for data, lengths in zip(texts[::2], texts[1::2], strict=True)]
    indexes = pa.array(np.frombuffer(places, ">i4").astype(np.int32))
    rows = pa.array(np.frombuffer(numbers, ">i8").astype(np.uint64))
    return pa.Table.from_arrays([*found, indexes, rows], schema=existing_schema())


def _counted(session: Session, index: DocumentIndex, document_ids: Sequence[str], *, but: Sequence[int]) -> pa.Table:
    """As many rows as these documents have, without their values: mostly an index alone knows their number."""
    import numpy as np
    import pyarrow as pa

    found = session.run(
        "SELECT document_id, count(*) FROM {table} WHERE {those} GROUP BY document_id",
        *_bound(document_ids, but),
        table=session.name(index.name),
        those=_of_documents(but),
    )
    ids, counts = zip(*found, strict=True) if found else ((), ())
    owners = pa.array(ids, pa.string()).take(np.repeat(np.arange(len(ids)), counts))
    empty = pa.repeat(pa.scalar(""), len(owners))
    places, numbers = pa.array(np.zeros(len(owners), np.int32)), pa.array(np.zeros(len(owners), np.uint64))
    return pa.Table.from_arrays([owners, empty, empty, places, numbers], schema=existing_schema())


def _of_documents(but: Sequence[int]) -> sql.Composed:
    """The condition of rows of some documents, except those of the commits `but`; see `_bound`. Nothing is said of
    commits if there are none: of that the index knows nothing.
    """
    those = sql.SQL("document_id = ANY(%s::text[])")
    return those + sql.SQL(" AND {} <> ALL(%s::bigint[])").format(Name(COMMIT)) if but else sql.Composed([those])


def _bound(document_ids: Sequence[str], but: Sequence[int]) -> list[Any]:
    return [listed(document_ids), *([list(but)] if but else [])]


def listed(texts: Sequence[str]) -> str | list[str]:
    """Texts as an array in the words of PostgreSQL, which takes a fraction of what the driver takes for a list."""
    joined = '","'.join(texts)
    # Within quotes only these two mean something; an empty array is the driver's.
    if not joined or "\\" in joined or joined.count('"') != 2 * (len(texts) - 1):
        return list(texts)
    return f'{{"{joined}"}}'


def _later(session: Session, index: DocumentIndex, base: int) -> list[int]:
    """Numbers of commits that came after this version."""
    return [number_of(each) for each in Journal(session, index).attempts(since=base)]


def _strings(data: bytes, lengths: bytes) -> pa.Array[Any]:
    """Texts that follow each other, by how many bytes each has."""
    import numpy as np
    import pyarrow as pa

    ends = np.cumsum(np.frombuffer(lengths, ">i4"), dtype=np.int32)
    offsets = np.concatenate([np.zeros(1, np.int32), ends])
    return pa.StringArray.from_buffers(len(ends), pa.py_buffer(offsets.tobytes()), pa.py_buffer(data))


def number_of(attempt: str) -> int:
    """The number of a commit in its rows."""
    return int.from_bytes(sha256(attempt.encode()).digest()[:8], "big", signed=True)


def move(session: Session, index: DocumentIndex, staged: Sequence[bytes], attempt: str, *, base: int) -> list[str]:
    """Put in what tasks staged; see `committing.commit`. Raises `Conflict` when some of it, or a row that it replaces,
    is not there.
    """
    tasks = [Staged.decode(each) for each in staged]
    _delete(session, index, sorted({number for each in tasks for number in each.stale}))
    _remove(session, index, {name: rows for each in tasks for name, rows in each.removed.items()}, base=base)
    done = []
    parts = [part for each in tasks for part in each.parts]
    for table in sorted({part.table for part in parts}):
        own = [part for part in parts if part.table == table]
        if staging.demand_all(session, index, table, own):
            done.append(table)
        change = _update if own[0].kind == _RETOLD else _insert
        change(session, index, table, [part.task for part in own], attempt)
    return done


def _update(session: Session, index: DocumentIndex, table: str, tasks: Sequence[int], attempt: str) -> None:
    """Rows get columns anew, and other numbers: to a writer that has read them before, they are gone."""
    names_of = [name for name in index.rows.retold if name != LOCATOR]
    # By the numbers of rows: the server does not know how few they are.
    session.run("SELECT set_config('enable_seqscan', 'off', true)")
    ((found, expected),) = session.run(
        "WITH anew AS (SELECT * FROM {staged} WHERE {task} = ANY(%s)), "
        "told AS (UPDATE {table} AS there SET {changes}, {row} = DEFAULT, "
        "{commit} = %s FROM anew "
        "WHERE there.{row} = anew.{locator} RETURNING 1) "
        "SELECT (SELECT count(*) FROM told), (SELECT count(*) FROM anew)",
        list(tasks),
        number_of(attempt),
        staged=session.name(table),
        task=Name(TASK),
        table=session.name(index.name),
        changes=sql.SQL(", ").join(sql.SQL("{0} = anew.{0}").format(Name(each)) for each in names_of),
        row=Name(ROW),
        commit=Name(COMMIT),
        locator=Name(LOCATOR),
    )
    if found != expected:
        raise _replaced(index)


def _delete(session: Session, index: DocumentIndex, rows: Sequence[int]) -> None:
    for portion in portions(rows, _DELETION):
        ((found,),) = session.run(
            "WITH gone AS (DELETE FROM {table} WHERE {row} = ANY(%s::bigint[]) RETURNING 1) SELECT count(*) FROM gone",
            "{" + ",".join(map(str, portion)) + "}",  # made in a tenth of the time that the driver takes for a list
            table=session.name(index.name),
            row=Name(ROW),
        )
        if found != len(portion):
            raise _replaced(index)


def _remove(session: Session, index: DocumentIndex, documents: Mapping[str, int], *, base: int) -> None:
    """Documents by how many rows they had at the base version: what came later is not theirs to delete."""
    if not documents:
        return
    later, found = _later(session, index, base), 0
    for portion in portions(sorted(documents), _LOOKUP):
        ((gone,),) = session.run(
            "WITH gone AS (DELETE FROM {table} WHERE {those} RETURNING 1) SELECT count(*) FROM gone",
            *_bound(portion, later),
            table=session.name(index.name),
            those=_of_documents(later),
        )
        found += gone
    if found != sum(documents.values()):
        raise _replaced(index)


def _replaced(index: DocumentIndex) -> Conflict:
    return Conflict(f"{index.name}: rows were replaced by another process; read them again")


def _insert(session: Session, index: DocumentIndex, table: str, tasks: Sequence[int], attempt: str) -> None:
    columns = names([*index.rows.kinds, WORDS])
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
