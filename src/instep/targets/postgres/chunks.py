"""The table of a document index: one row for each chunk, and the indexes that find it.

Beside the columns that a reader sees, a row has `_words` for full text, `_row`, a number that no other row of this
table ever has, and `_commit`, a number of the commit that brought it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, LiteralString

from psycopg import sql

from instep.domain.columns import BOOL, DATE, FLOAT64, INT32, INT64, STRING, TIMESTAMP, ColumnType
from instep.domain.document_columns import MODIFIED, DocumentColumn, DocumentColumnType
from instep.errors import UserError
from instep.postgres.connection import Name, Session, names
from instep.targets.document_target import SEARCHED, demand_same, row_schema
from instep.targets.postgres import registry
from instep.targets.postgres.aliases import View
from instep.targets.postgres.encoding import Kind, Listed, Vector, Words
from instep.targets.postgres.layout import plain_type
from instep.targets.postgres.pgvector import MAX_DIMENSIONS, MAX_HALVED, Pgvector, make, pgvector
from instep.targets.postgres.registry import OURS, Index, Record, columns_of
from instep.targets.postgres.staging import TASK

if TYPE_CHECKING:
    import pyarrow as pa

WORDS, COMMIT, ROW, LOCATOR = "_words", "_commit", "_row", "locator"

#: Rows stay whole up to this size. What PostgreSQL would do by itself, to move every vector elsewhere, makes writing
#: four and scanning five times slower (measured with 384 dimensions).
_TWO_A_PAGE, _ONE_A_PAGE = 4_080, 8_160

#: Vectors up to this length leave room for texts in half a page.
_SHORT: Final = 512

#: Text that people search; all other text is compared by its bytes.
_PROSE: Final = frozenset({"title", "text"})

_TYPES: Final[Mapping[DocumentColumnType, ColumnType | Listed]] = {
    DocumentColumnType.STRING: STRING,
    DocumentColumnType.INT: INT64,
    DocumentColumnType.FLOAT: FLOAT64,
    DocumentColumnType.BOOL: BOOL,
    DocumentColumnType.TIMESTAMP: TIMESTAMP,
    DocumentColumnType.DATE: DATE,
    DocumentColumnType.STRINGS: Listed(STRING),
    DocumentColumnType.INTS: Listed(INT64),
}

#: Columns that are never null.
_DEMANDED: Final = frozenset(each.name for each in row_schema(1) if not each.nullable)


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of an index: vectors of so many dimensions, and declared columns."""

    dimensions: int
    columns: tuple[DocumentColumn, ...] = ()

    @property
    def schema(self) -> pa.Schema:
        return row_schema(self.dimensions, self.columns)

    @property
    def kinds(self) -> dict[str, Kind]:
        """Types of the columns that a reader sees."""
        own: dict[str, Kind] = {"chunk_index": INT32, "_version": INT64}
        own |= {each.name: _TYPES[each.type] for each in (MODIFIED, *self.columns)}
        own["vector"] = Vector(self.dimensions)
        return {name: own.get(name, STRING) for name in self.schema.names if name != SEARCHED}

    @property
    def staged(self) -> dict[str, Kind]:
        """Types of the columns of rows on their way: the words of each, with their places."""
        return {**self.kinds, WORDS: Words()}

    @property
    def retold(self) -> dict[str, Kind]:
        """Types of the columns that a row gets anew where its text stays, and the number of that row."""
        kept = ("document_id", "chunk_id", "title", "text", "vector")
        return {name: kind for name, kind in self.staged.items() if name not in kept} | {LOCATOR: INT64}

    def encode(self) -> str:
        return json.dumps({"dimensions": self.dimensions, "columns": {each.name: each.type for each in self.columns}})

    @classmethod
    def decode(cls, declared: str) -> Rows:
        found = json.loads(declared)
        columns = (DocumentColumn(name, DocumentColumnType(kind)) for name, kind in found.get("columns", {}).items())
        return cls(found["dimensions"], tuple(columns))


@dataclass(frozen=True, slots=True)
class DocumentIndex(Index):
    rows: Rows

    @property
    def dimensions(self) -> int:
        return self.rows.dimensions

    def index(self, column: str) -> str:
        """The name of the index on a column."""
        return f"{OURS}{column.strip('_')}_{self.id}"


def staged_definition(vectors: Pgvector, rows: Rows) -> sql.Composed:
    """The definition of a table of staged rows."""
    return sql.SQL("({}, {} tsvector, {} bigint) WITH (toast_tuple_target = {})").format(
        _declared(vectors, rows), Name(WORDS), Name(TASK), _whole(rows.dimensions)
    )


def retold_definition(rows: Rows) -> sql.Composed:
    """The same of rows that get columns anew, by their number."""
    columns = [sql.SQL("{} {}").format(Name(name), _stored(kind)) for name, kind in rows.retold.items()]
    return sql.SQL("({}, {} bigint)").format(sql.SQL(", ").join(columns), Name(TASK))


def _stored(kind: Kind) -> sql.Composable:
    assert not isinstance(kind, Vector), "those stay"
    if isinstance(kind, Words):
        return sql.SQL("tsvector")
    return plain_type(kind.of) + sql.SQL("[]") if isinstance(kind, Listed) else plain_type(kind)


def _whole(dimensions: int) -> sql.Literal:
    return sql.Literal(_TWO_A_PAGE if dimensions <= _SHORT else _ONE_A_PAGE)


def _declared(vectors: Pgvector, rows: Rows) -> sql.Composed:
    """Columns that a reader sees, as a statement declares them."""
    return sql.SQL(", ").join(
        sql.SQL("{} {}{}").format(
            Name(name),
            _type(vectors, kind),
            sql.SQL(_constraint(name, kind)),
        )
        for name, kind in rows.kinds.items()
    )


def _type(vectors: Pgvector, kind: Kind) -> sql.Composable:
    return vectors.type(kind.dimensions) if isinstance(kind, Vector) else _stored(kind)


def _constraint(name: str, kind: Kind) -> LiteralString:
    compared = name not in _PROSE and kind in (STRING, Listed(STRING))
    return (' COLLATE "C"' if compared else "") + (" NOT NULL" if name in _DEMANDED else "")


def create(session: Session, physical: str, rows: Rows, owner: str, demand: Callable[[str], object]) -> None:
    """`demand` raises `NotOurs` for one that is there and another ledger's."""
    dimensions = rows.dimensions
    if not 1 <= dimensions <= MAX_DIMENSIONS:
        raise UserError(f"PostgreSQL takes vectors of 1 to {MAX_DIMENSIONS:,} dimensions, not {dimensions:,}")
    with session.transaction():
        registry.lock(session)
        if (record := registry.find(session, physical)) is not None:
            demand(physical)
            before = index_of(session, physical, record)
            if columns_of(session, physical):
                _demand_same(session, before, rows)
                return
            registry.drop(session, record.id, [])  # Another process has dropped the table.
        vectors = make(session)
        number = registry.write_down(session, physical, rows.encode(), owner)
        index = DocumentIndex(number, physical, rows)
        session.run(
            "CREATE TABLE {table} ({columns}, {words} tsvector NOT NULL, {commit} bigint NOT NULL, "
            "{row} bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY) WITH (toast_tuple_target = {whole})",
            table=session.name(physical),
            columns=_declared(vectors, rows),
            words=Name(WORDS),
            commit=Name(COMMIT),
            row=Name(ROW),
            whole=_whole(dimensions),
        )
        # Few values of many bytes: they share entries. Of a chunk only people ask: the smallest one will do.
        for column, method in (("document_id", "btree"), ("chunk_id", "hash")):
            session.run(
                "CREATE INDEX {name} ON {table} USING {method} ({column})",
                name=Name(index.index(column)),
                table=session.name(physical),
                method=sql.SQL(method),
                column=Name(column),
            )


def _demand_same(session: Session, index: DocumentIndex, rows: Rows) -> None:
    demand_same(index.name, index.rows.schema, rows.dimensions, rows.columns, where=session.place.shown)


def exists(session: Session, physical: str) -> bool:
    """Whether the table is there, which another process may have dropped."""
    return registry.find(session, physical) is not None and bool(columns_of(session, physical))


def index_of(session: Session, physical: str, record: Record) -> DocumentIndex:
    if not record.declared.startswith("{"):
        raise UserError(f"{physical!r} is an index of tables, not of documents", where=session.place.shown)
    return DocumentIndex(record.id, physical, Rows.decode(record.declared))


def view(session: Session, index: DocumentIndex) -> View:
    stored = columns_of(session, index.name)
    shown = {name: stored[name].removesuffix(" not null") for name in index.rows.kinds if name in stored}
    query = sql.SQL("SELECT {columns} FROM {table}").format(columns=names(list(shown)), table=session.name(index.name))
    return View("", shown, query)


#: From here on the neighbours are found by an index.
VECTOR_ROWS: Final = 50_000

#: What building an index may use: as it needs, and at most.
_MEMORY_MB: Final = 256
_MOST_MEMORY_MB: Final = 1_024

#: A sample of so many times 300 rows says which words are common.
_STATISTICS: Final = 30

#: Beside its vector, what a row takes in an index by HNSW while it is built.
_NODE_BYTES: Final = 400

#: The graph of so many rows is built soon enough by one process of the server, which leaves the other cores to the
#: jobs beside it.
_FEW_ROWS: Final = 200_000


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
            # An index on the columns from the beginning would make a first load slower.
            for at, column in enumerate(index.rows.columns):
                session.run(
                    "CREATE INDEX IF NOT EXISTS {name} ON {table} USING {method} ({column})",
                    name=Name(index.index(f"column{at}")),
                    table=session.name(index.name),
                    method=sql.SQL("gin" if column.type.listed else "btree"),
                    column=Name(column.name),
                )
            session.run("ANALYZE {table}", table=session.name(index.name))
    if full:
        registry.tend(session, [index.name], full=True)


def refinable(session: Session, index: DocumentIndex) -> bool:
    """See `DocumentTarget.refinable`."""
    done = index.dimensions > MAX_HALVED or _built(session, index, "vector")
    return not done and _has(session, index, rows=VECTOR_ROWS)


def refine(session: Session, index: DocumentIndex) -> None:
    """See `DocumentTarget.refine`. Commits go on during it. Nothing happens while another process is at it."""
    with _alone(session, index) as alone:
        if not alone or not refinable(session, index):
            return
        rows = _estimated(session, index)
        memory = f"{_graph_mb(index, rows)}MB"
        if rows > _FEW_ROWS:
            # Where memory that processes share is short, as in a container, one alone must do.
            with contextlib.suppress(UserError), _settings(session, maintenance_work_mem=memory):
                _build(session, index)
                return
        with _settings(session, maintenance_work_mem=memory, max_parallel_maintenance_workers=0):
            _build(session, index)


@contextlib.contextmanager
def _alone(session: Session, index: DocumentIndex) -> Iterator[bool]:
    """Whether nobody else builds it. The server goes on with that for a process that has ended, and holds the lock."""
    key = f"{session.place.schema}.{index.name}", registry.LOCK
    ((alone,),) = session.run("SELECT pg_try_advisory_lock(hashtextextended(%s, %s))", *key)
    try:
        yield alone
    finally:
        if alone:
            session.run("SELECT pg_advisory_unlock(hashtextextended(%s, %s))", *key)


def _build(session: Session, index: DocumentIndex) -> None:
    name = index.index("vector")
    # A try that broke off leaves one that is of no use. Writers do not wait for it to go.
    session.run("DROP INDEX CONCURRENTLY IF EXISTS {name}", name=session.name(name))
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


def has_graph(session: Session, index: DocumentIndex) -> bool:
    """Whether the neighbours of a vector are found by an index, which may miss some."""
    return _built(session, index, "vector")


def _has(session: Session, index: DocumentIndex, *, rows: int) -> bool:
    """Whether there are so many, without counting all: first by their numbers, of which no two rows have the same."""
    table = session.name(index.name)
    ((numbers,),) = session.run("SELECT max({row}) - min({row}) + 1 FROM {table}", table=table, row=Name(ROW))
    if numbers is None or numbers < rows:
        return False
    return rows == 1 or bool(session.run("SELECT 1 FROM {table} OFFSET %s LIMIT 1", rows - 1, table=table))


def _estimated(session: Session, index: DocumentIndex) -> float:
    """The number of rows as the planner estimates it: by the size of the table now, and the rows of a page when they
    were last counted.
    """
    ((rows,),) = session.run(
        "SELECT (reltuples / greatest(relpages, 1) * pg_relation_size(pg_class.oid) "
        "/ current_setting('block_size')::int)::float8 "
        "FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE nspname = %s AND relname = %s",
        session.place.schema,
        index.name,
    )
    return max(float(rows), VECTOR_ROWS)


def _graph_mb(index: DocumentIndex, rows: float) -> int:
    """The memory that the graph of so many vectors takes: without it, building takes many times as long."""
    needed = rows * (4 * index.dimensions + _NODE_BYTES) * 1.2 / 2**20
    return int(min(_MOST_MEMORY_MB, max(_MEMORY_MB, needed)))


@contextlib.contextmanager
def _settings(session: Session, **values: str | int) -> Iterator[None]:
    """Settings for statements that are no part of a transaction."""
    for name, value in values.items():
        session.run("SELECT set_config(%s, %s, false)", name, str(value))
    try:
        yield
    finally:
        for name in values:
            session.run("RESET {name}", name=Name(name))
