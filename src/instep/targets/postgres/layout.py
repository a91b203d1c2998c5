"""Tables of a physical index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from psycopg import sql

from instep.domain.columns import ColumnType, TypeName
from instep.errors import UserError
from instep.postgres.connection import Name, Session, names
from instep.postgres.location import MAX_NAME
from instep.targets.postgres import registry
from instep.targets.postgres.registry import Index, Record, columns_of, fitting
from instep.targets.table_indexes import drifted
from instep.targets.table_target import BOOKKEEPING, Drift, TableSpec, checked_specs, decode_specs, encode_specs

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
#: The beginning of what is recorded of an index of tables; that of one of documents is an object.
_SPECS: Final = "["


@dataclass(frozen=True, slots=True)
class TableIndex(Index):
    specs: tuple[TableSpec, ...]

    @property
    def tables(self) -> list[str]:
        return [spec.table(self.name) for spec in self.specs]


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


def create(session: Session, physical: str, specs: Sequence[TableSpec], owner: str, *, shared: bool) -> None:
    """`shared`: by partitions. Of one that has lost some of its tables the others stay then: views show them, and there
    are rows of all partitions in them.
    """
    with session.transaction():
        registry.lock(session)
        if (record := registry.find(session, physical)) is not None:
            before = index_of(session, physical, record)
            if _stand(session, before.tables):
                return
            if shared:
                _make(session, physical, [each for each in before.specs if not _stand(session, [each.table(physical)])])
                return
            registry.drop(session, before.id, before.tables)
        _make(session, physical, specs)
        registry.write_down(session, physical, encode_specs(specs), owner)


def _make(session: Session, physical: str, specs: Sequence[TableSpec]) -> None:
    for spec in specs:
        session.run(
            "CREATE TABLE {table} ({columns}, PRIMARY KEY ({key}))",
            table=session.name(spec.table(physical)),
            columns=declared(spec),
            key=names(spec.key),
        )


def exists(session: Session, physical: str) -> bool:
    """Whether all tables are there, which another process may have dropped; also of an index of documents, which an
    entity may have had before.
    """
    record = registry.find(session, physical)
    if record is None:
        return False
    is_ours = record.declared.startswith(_SPECS)
    return _stand(session, index_of(session, physical, record).tables if is_ours else [physical])


def _stand(session: Session, tables: Sequence[str]) -> bool:
    return all(columns_of(session, each) for each in tables)


def declared(spec: TableSpec) -> sql.Composed:
    """Columns of its table, as a statement declares them."""
    never_null = {*spec.key, *(each.name for each in BOOKKEEPING)}
    return sql.SQL(", ").join(
        sql.SQL("{} {}{}").format(
            Name(each.name), declared_type(each.type), sql.SQL(" NOT NULL" if each.name in never_null else "")
        )
        for each in spec.all_columns
    )


def index_of(session: Session, physical: str, record: Record) -> TableIndex:
    if not record.declared.startswith(_SPECS):
        raise UserError(f"{physical!r} is an index of documents, not of tables", where=session.place.shown)
    return TableIndex(record.id, physical, decode_specs(record.declared))


def drift(session: Session, physical: str, specs: Sequence[TableSpec]) -> list[Drift]:
    record = registry.find(session, physical)
    stored = index_of(session, physical, record).specs if record else ()
    return drifted(specs, stored, stored_columns, lambda spec: columns_of(session, spec.table(physical)))
