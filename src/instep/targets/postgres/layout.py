"""Tables of a physical index, and Instep's own ones beside them, which all indexes of a schema share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from psycopg import sql

from instep.domain.columns import ColumnType, TypeName
from instep.errors import UserError
from instep.targets.names import checked_name
from instep.targets.postgres.connection import MAX_NAME, Missing, Name, Session, names
from instep.targets.tables import BOOKKEEPING, Drift, TableSpec, checked_specs, decode_specs, encode_specs

#: What every table of Instep's own begins with, so that no index may.
OURS: Final = "instep_"

INDEXES, EPOCHS, COMMITS, MARKS, ALIASES, PROMOTIONS, STAGED = (
    OURS + each for each in ("indexes", "epochs", "commits", "marks", "aliases", "promotions", "staged")
)

_TYPES: Final[Mapping[TypeName, str]] = {
    TypeName.BOOL: "boolean",
    TypeName.INT32: "integer",
    TypeName.INT64: "bigint",
    TypeName.FLOAT32: "real",
    TypeName.FLOAT64: "double precision",
    TypeName.STRING: "text",
    TypeName.BYTES: "bytea",
    TypeName.DATE: "date",
    TypeName.TIMESTAMP: "timestamp with time zone",
}

#: Of advisory locks, which are the database's: any number that others do not use. ("insteptg")
_LOCK: Final = 0x696E737465707467


@dataclass(frozen=True, slots=True)
class Index:
    """A physical index. One that is dropped and made again has another `id`."""

    id: int
    name: str
    specs: tuple[TableSpec, ...]


def fitting(name: str, limit: int = MAX_NAME) -> str:
    """The name of an index or alias, if it can have tables here."""
    checked_name(name)
    if len(name) > limit:
        raise UserError(
            f"{name!r} is too long for PostgreSQL: a name has at most {limit} characters",
            hint="Shorten the entity's name, or that of its kind of edge.",
        )
    if name.lower().startswith(OURS):
        raise UserError(f"{name!r} cannot name an index", hint=f"Names with {OURS!r} at the front are Instep's own.")
    return name


def fitting_specs(physical: str, specs: Sequence[TableSpec]) -> tuple[TableSpec, ...]:
    """The specs, the own table first, if tables of this index can be made of them."""
    found = checked_specs(specs)
    for spec in found:
        fitting(spec.table(fitting(physical)))
        for column in spec.columns:
            if not column.name or "\0" in column.name or len(column.name.encode()) > MAX_NAME:
                raise UserError(
                    f"{spec}: PostgreSQL cannot name a column {column.name!r}",
                    hint=f"A name has at most {MAX_NAME} bytes: give it another one.",
                )
    return found


def stored_type(column: ColumnType) -> str:
    """As the server shows it."""
    if column.name is TypeName.DECIMAL:
        return f"numeric({column.precision},{column.scale})"
    return _TYPES[column.name]


def plain_type(column: ColumnType) -> sql.Composable:
    """As a statement names it."""
    if column.name is TypeName.DECIMAL:
        return sql.SQL("numeric({}, {})").format(column.precision, column.scale)
    return sql.SQL(_TYPES[column.name])


def declared_type(column: ColumnType) -> sql.Composable:
    """As a table is made with it. Text compares by its bytes: keys have one order everywhere, and it is the fastest."""
    plain = plain_type(column)
    return sql.Composed([plain, sql.SQL(' COLLATE "C"')]) if column.name is TypeName.STRING else plain


def stored_columns(spec: TableSpec) -> dict[str, str]:
    """Types of the table's columns. Only those of the key and of the bookkeeping are never null."""
    never_null = {*spec.key, *(each.name for each in BOOKKEEPING)}
    return {
        each.name: stored_type(each.type) + (" not null" if each.name in never_null else "")
        for each in spec.all_columns
    }


def prepare(session: Session) -> None:
    """Schema and own tables, if they are not there yet."""
    if not session.run("SELECT 1 FROM pg_namespace WHERE nspname = %s", session.place.schema):
        session.run("CREATE SCHEMA IF NOT EXISTS {schema}", schema=Name(session.place.schema))
    with session.transaction():
        lock(session)
        for table, columns in _OWN.items():
            session.run(
                "CREATE TABLE IF NOT EXISTS {table} ({columns})", table=session.name(table), columns=sql.SQL(columns)
            )
        session.run(
            "CREATE INDEX IF NOT EXISTS {name} ON {table} (index_id, slice, seq)",
            name=Name(f"{MARKS}_slice"),
            table=session.name(MARKS),
        )


#: An outcome of a mark is null where the slice was only fenced.
_OWN: Final = {
    INDEXES: "id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE, specs text NOT NULL, "
    "seq bigint NOT NULL DEFAULT 0, at timestamptz NOT NULL DEFAULT clock_timestamp()",
    EPOCHS: "index_id bigint, scope text, epoch bigint NOT NULL, PRIMARY KEY (index_id, scope)",
    COMMITS: "index_id bigint, attempt text, scope text NOT NULL, epoch bigint NOT NULL, seq bigint NOT NULL, "
    "at timestamptz NOT NULL DEFAULT clock_timestamp(), PRIMARY KEY (index_id, attempt)",
    MARKS: "index_id bigint NOT NULL, slice text NOT NULL, fence bigint NOT NULL, scope text NOT NULL, "
    "epoch bigint NOT NULL, seq bigint NOT NULL, outcome bytea, at timestamptz NOT NULL DEFAULT clock_timestamp()",
    ALIASES: "alias text PRIMARY KEY, physical text, kinds text[] NOT NULL DEFAULT '{}'",
    PROMOTIONS: "alias text, scope text, epoch bigint NOT NULL, physical text, PRIMARY KEY (alias, scope)",
    STAGED: "name text PRIMARY KEY, index_id bigint NOT NULL, at timestamptz NOT NULL DEFAULT clock_timestamp()",
}


def lock(session: Session) -> None:
    """Until the end of the transaction nobody else makes or removes tables."""
    session.run("SELECT pg_advisory_xact_lock(%s)", _LOCK)


def create(session: Session, physical: str, specs: Sequence[TableSpec]) -> None:
    with session.transaction():
        lock(session)
        if find(session, physical) is not None:
            return
        for spec in specs:
            session.run(
                "CREATE TABLE {table} ({columns}, PRIMARY KEY ({key}))",
                table=session.name(spec.table(physical)),
                columns=declared(spec),
                key=names(spec.key),
            )
        session.run(
            "INSERT INTO {indexes} (name, specs) VALUES (%s, %s)",
            physical,
            encode_specs(specs),
            indexes=session.name(INDEXES),
        )


def declared(spec: TableSpec) -> sql.Composed:
    """Columns of its table, as a statement declares them."""
    never_null = {*spec.key, *(each.name for each in BOOKKEEPING)}
    return sql.SQL(", ").join(
        sql.SQL("{} {}{}").format(
            Name(each.name), declared_type(each.type), sql.SQL(" NOT NULL" if each.name in never_null else "")
        )
        for each in spec.all_columns
    )


def find(session: Session, physical: str) -> Index | None:
    try:
        found = session.run("SELECT id, specs FROM {indexes} WHERE name = %s", physical, indexes=session.name(INDEXES))
    except Missing:
        return None
    return Index(found[0][0], physical, decode_specs(found[0][1])) if found else None


def known(session: Session, physical: str) -> Index:
    index = find(session, physical)
    if index is None:
        raise UserError(f"there is no index {physical!r}", where=session.place.shown, hint="Build it with: instep run")
    return index


def drift(session: Session, physical: str, specs: Sequence[TableSpec]) -> list[Drift]:
    index = find(session, physical)
    stored = {each.kind: each for each in index.specs} if index else {}
    found: list[Drift] = []
    for spec in checked_specs(specs):
        columns, there = columns_of(session, spec.table(physical)), stored.pop(spec.kind, None)
        if not columns or there is None:
            found.append(Drift(spec.kind, "", "there", ""))
            continue
        expected = stored_columns(spec)
        found += [
            Drift(spec.kind, name, expected.get(name, ""), columns.get(name, ""))
            for name in dict.fromkeys([*expected, *columns])
            if expected.get(name) != columns.get(name)
        ]
        if there.key != spec.key:
            found.append(Drift(spec.kind, "", f"keyed by {', '.join(spec.key)}", f"keyed by {', '.join(there.key)}"))
    return found + [Drift(kind, "", "", "there") for kind in stored]


def columns_of(session: Session, table: str) -> dict[str, str]:
    """Types of the columns of a table or view; none if it is not there."""
    return dict(
        session.run(
            "SELECT attname::text, format_type(atttypid, atttypmod) || CASE WHEN attnotnull THEN ' not null' ELSE '' "
            "END FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid "
            "JOIN pg_namespace ON pg_namespace.oid = relnamespace "
            "WHERE nspname = %s AND relname = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            session.place.schema,
            table,
        )
    )


def drop(session: Session, index: Index) -> None:
    """The tables before the records: so are they locked by who writes, too."""
    with session.transaction():
        lock(session)
        for spec in index.specs:
            session.run("DROP TABLE IF EXISTS {table}", table=session.name(spec.table(index.name)))
        for table in (EPOCHS, COMMITS, MARKS):
            session.run("DELETE FROM {table} WHERE index_id = %s", index.id, table=session.name(table))
        session.run("DELETE FROM {table} WHERE id = %s", index.id, table=session.name(INDEXES))
