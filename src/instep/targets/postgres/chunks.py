"""The table of a document index: one row for each chunk, and what finds it.

Beside the columns that a reader sees, a row has `_words` for full text, `_row`, a number that no other row of this
table ever has, and `_commit`, a number of the commit that brought it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, LiteralString

from psycopg import sql

from instep.domain.columns import INT32, INT64, STRING, ColumnType
from instep.errors import UserError
from instep.postgres.connection import Name, Session, names
from instep.targets.document_target import row_schema
from instep.targets.postgres import pgvector, registry
from instep.targets.postgres.encoding import Vector
from instep.targets.postgres.layout import plain_type
from instep.targets.postgres.pgvector import Pgvector
from instep.targets.postgres.registry import OURS, Index, Record, columns_of
from instep.targets.postgres.serving import View
from instep.targets.postgres.staging import TASK

WORDS, COMMIT, ROW = "_words", "_commit", "_row"

#: Words of what stands in the columns `title` and `text`: stems, without accents and stop words, as the other targets
#: have them. A word of the title counts twice, as in a field of few words it should. More than fits into a tsvector
#: (1 MB) is left out, wherever it comes from.
_WORDS_OF_TEXT: Final[LiteralString] = (
    "to_tsvector('pg_catalog.english', CASE WHEN octet_length(text) = char_length(text) THEN left(text, 200000) ELSE "
    r"left(regexp_replace(normalize(left(text, 200000), NFKD), '[\u0300-\u036f]', '', 'g'), 200000) END)"
)
_WORDS_OF_TITLE: Final[LiteralString] = (
    r"to_tsvector('pg_catalog.english', regexp_replace(normalize(left(coalesce(title, ''), 10000), NFKD), "
    r"'[\u0300-\u036f]', '', 'g'))"
)
WORDS_OF_ROW: Final[LiteralString] = f"(setweight({_WORDS_OF_TITLE}, 'C') || {_WORDS_OF_TEXT})"

#: Rows stay whole up to this size. What PostgreSQL would do by itself, to move every vector elsewhere, makes writing
#: four and scanning five times slower (measured with 384 dimensions).
_TWO_A_PAGE, _ONE_A_PAGE = 4_080, 8_160

#: Vectors up to this length leave room for texts in half a page.
_SHORT: Final = 512

#: Text that people search; all other text is compared by its bytes.
_PROSE: Final = frozenset({"title", "text"})


@dataclass(frozen=True, slots=True)
class DocumentIndex(Index):
    dimensions: int

    def index(self, column: str) -> str:
        """The name of the index on a column."""
        return f"{OURS}{column.strip('_')}_{self.id}"


def kinds(dimensions: int) -> dict[str, ColumnType | Vector]:
    """Types of the columns that a reader sees."""
    others: dict[str, ColumnType | Vector] = {"chunk_index": INT32, "_version": INT64, "vector": Vector(dimensions)}
    return {name: others.get(name, STRING) for name in row_schema(dimensions).names}


def staged_definition(vectors: Pgvector, dimensions: int) -> sql.Composed:
    """Of a table of staged rows: the words are found here, by many tasks at once, where a commit is alone."""
    return sql.SQL(
        "({}, {} bigint, {} tsvector GENERATED ALWAYS AS ({}) STORED) WITH (toast_tuple_target = {})"
    ).format(_declared(vectors, dimensions), Name(TASK), Name(WORDS), sql.SQL(WORDS_OF_ROW), _whole(dimensions))


def _whole(dimensions: int) -> sql.Literal:
    return sql.Literal(_TWO_A_PAGE if dimensions <= _SHORT else _ONE_A_PAGE)


def _declared(vectors: Pgvector, dimensions: int) -> sql.Composed:
    """Columns that a reader sees, as a statement declares them."""
    return sql.SQL(", ").join(
        sql.SQL("{} {}{}").format(
            Name(name),
            vectors.type(dimensions) if isinstance(kind, Vector) else plain_type(kind),
            sql.SQL(_constraint(name, kind)),
        )
        for name, kind in kinds(dimensions).items()
    )


def _constraint(name: str, kind: ColumnType | Vector) -> LiteralString:
    if name == "title":
        return ""
    return ' COLLATE "C" NOT NULL' if kind == STRING and name not in _PROSE else " NOT NULL"


def create(session: Session, physical: str, dimensions: int, owner: str, demand: Callable[[str], object]) -> None:
    """`demand` raises `NotOurs` for one that is there and another ledger's."""
    if not 1 <= dimensions <= pgvector.MAX_DIMENSIONS:
        raise UserError(f"PostgreSQL takes vectors of 1 to {pgvector.MAX_DIMENSIONS:,} dimensions, not {dimensions:,}")
    with session.transaction():
        registry.lock(session)
        if (record := registry.find(session, physical)) is not None:
            demand(physical)
            before = _index(session, physical, record)
            if columns_of(session, physical):
                _demand_same(session, before, dimensions)
                return
            registry.drop(session, record.id, [])  # Another process has dropped the table.
        vectors = pgvector.make(session)
        number = registry.write_down(session, physical, json.dumps({"dimensions": dimensions}), owner)
        index = DocumentIndex(number, physical, dimensions)
        session.run(
            "CREATE TABLE {table} ({columns}, {words} tsvector NOT NULL, {commit} bigint NOT NULL, "
            "{row} bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY) WITH (toast_tuple_target = {whole})",
            table=session.name(physical),
            columns=_declared(vectors, dimensions),
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


def _demand_same(session: Session, index: DocumentIndex, dimensions: int) -> None:
    if index.dimensions != dimensions:
        raise UserError(
            f"index {index.name!r} has {index.dimensions} dimensions, not {dimensions}", where=session.place.shown
        )


def exists(session: Session, physical: str) -> bool:
    """Whether the table is there, which another process may have dropped."""
    return registry.find(session, physical) is not None and bool(columns_of(session, physical))


def find(session: Session, physical: str) -> DocumentIndex | None:
    record = registry.find(session, physical)
    return _index(session, physical, record) if record else None


def known(session: Session, physical: str) -> DocumentIndex:
    return _index(session, physical, registry.known(session, physical))


def _index(session: Session, physical: str, record: Record) -> DocumentIndex:
    if not record.declared.startswith("{"):
        raise UserError(f"{physical!r} is an index of tables, not of documents", where=session.place.shown)
    return DocumentIndex(record.id, physical, json.loads(record.declared)["dimensions"])


def view(session: Session, index: DocumentIndex) -> View:
    stored = columns_of(session, index.name)
    shown = {name: stored[name].removesuffix(" not null") for name in kinds(index.dimensions)}
    query = sql.SQL("SELECT {columns} FROM {table}").format(columns=names(list(shown)), table=session.name(index.name))
    return View("", shown, query)
