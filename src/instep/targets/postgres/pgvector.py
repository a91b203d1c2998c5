"""The extension that knows vectors: where it is, what it is called there, and what it can do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from psycopg import sql

from instep.errors import UserError
from instep.postgres.connection import Name, Session

#: The longest vector that a column holds.
MAX_DIMENSIONS: Final = 16_000
#: The longest that an index takes: as they are, and with half of their precision.
MAX_INDEXED: Final = 2_000
MAX_HALVED: Final = 4_000

#: HNSW on vectors of half precision came with 0.7; searches that go on where deleted rows were found with 0.8.
_OLDEST: Final = (0, 7)
_ITERATIVE: Final = (0, 8)

_HINT: Final = "Have an administrator run, in this database: CREATE EXTENSION vector"


@dataclass(frozen=True, slots=True)
class Pgvector:
    """The extension pgvector."""

    schema: str
    version: tuple[int, ...]

    def type(self, dimensions: int, name: str = "vector") -> sql.Composed:
        return sql.SQL("{}({})").format(Name(self.schema, name), dimensions)

    def key(self, column: Name, dimensions: int) -> tuple[sql.Composable, sql.Composable]:
        """A column as an index has it, and the type of that."""
        if not MAX_INDEXED < dimensions <= MAX_HALVED:
            return column, self.type(dimensions)
        halved = self.type(dimensions, "halfvec")
        return sql.SQL("(CAST({} AS {}))").format(column, halved), halved

    def operators(self, dimensions: int) -> Name:
        """The operator class of an index by cosine."""
        return Name(self.schema, "vector_cosine_ops" if dimensions <= MAX_INDEXED else "halfvec_cosine_ops")

    @property
    def distance(self) -> sql.Composed:
        """The operator of the cosine distance."""
        return sql.SQL("OPERATOR({}.<=>)").format(Name(self.schema))

    @property
    def iterative(self) -> bool:
        return self.version >= _ITERATIVE


def pgvector(session: Session) -> Pgvector:
    """Find the extension. Raises `UserError` if it is missing."""
    found = _found(session)
    if found is None:
        raise UserError("the database has no pgvector", where=session.place.shown, hint=_HINT)
    return found


def make(session: Session) -> Pgvector:
    """Have it in this database. Raises `UserError` if the server or the user cannot."""
    found = _found(session)
    if found is None:
        if not session.run("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'"):
            raise UserError(
                "the server has no pgvector, which documents need",
                where=session.place.shown,
                hint="Install the package of your PostgreSQL, such as postgresql-18-pgvector, on the server.",
            )
        try:
            session.run("CREATE EXTENSION IF NOT EXISTS vector")
        except UserError as error:
            raise UserError(f"pgvector cannot be made here: {error.what}", where=error.where, hint=_HINT) from None
        found = pgvector(session)
    if found.version < _OLDEST:
        raise UserError(
            f"pgvector {'.'.join(map(str, found.version))} is too old",
            where=session.place.shown,
            hint="0.7 or newer is needed. Install it, then run in this database: ALTER EXTENSION vector UPDATE",
        )
    return found


def _found(session: Session) -> Pgvector | None:
    found = session.run(
        "SELECT nspname::text, extversion FROM pg_extension "
        "JOIN pg_namespace ON pg_namespace.oid = extnamespace WHERE extname = 'vector'"
    )
    if not found:
        return None
    schema, version = found[0]
    return Pgvector(schema, tuple(int(part) for part in version.split(".") if part.isdecimal()))
