"""Queries on one physical index: rows that are not deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from psycopg import sql

from instep.domain.columns import Column, TypeName
from instep.postgres.connection import Name, Session
from instep.targets.postgres.layout import plain_type
from instep.targets.table_target import DELETED, INSTANCE, Held, TableSpec, arrow_schema, checked_prefix

if TYPE_CHECKING:
    import pyarrow as pa


def count(session: Session, physical: str, spec: TableSpec) -> int:
    found = session.run(
        "SELECT count(*) FROM {table} WHERE NOT {deleted}",
        table=session.name(spec.table(physical)),
        deleted=Name(DELETED),
    )
    return int(found[0][0])


def held(session: Session, physical: str, spec: TableSpec, instance: str, *, prefix: str) -> Held:
    conditions: list[sql.Composable] = [sql.SQL("NOT {}").format(Name(DELETED))]
    bounds: tuple[str, ...] = ()
    if prefix:
        below, bounds = below_prefix(Name(checked_prefix(spec, prefix)), prefix)
        conditions.append(below)
    ((mine, found),) = session.run(
        "SELECT count(*) FILTER (WHERE {instance} = %s), count(*) FROM {table} WHERE {conditions}",
        instance,
        *bounds,
        instance=Name(INSTANCE),
        table=session.name(spec.table(physical)),
        conditions=sql.SQL(" AND ").join(conditions),
    )
    return Held(int(mine), int(found) - int(mine))


def below_prefix(scope: sql.Composable, prefix: str) -> tuple[sql.Composed, tuple[str, str]]:
    """The condition of rows whose scope is below `prefix`, and its parameters.

    What begins with 42/9970/ is from there on, and before what begins with 42/99700, the character after the slash. By
    an index, if the scope is the first column of the key.
    """
    return sql.SQL("{0} >= %s AND {0} < %s").format(scope), (prefix, prefix[:-1] + chr(ord("/") + 1))


def read(
    session: Session, physical: str, spec: TableSpec, *, where: Mapping[str, Any], columns: Sequence[str] | None
) -> pa.Table:
    import pyarrow as pa

    schema = arrow_schema(spec)
    wanted = [Column(name, spec.type_of(name)) for name in (schema.names if columns is None else columns)]
    conditions: list[sql.Composable] = [sql.SQL("NOT {}").format(Name(DELETED))]
    conditions += [_equals(spec, name, value) for name, value in where.items()]
    found = session.run(
        "SELECT {columns} FROM {table} WHERE {conditions}",
        *(value for value in where.values() if value is not None),
        columns=sql.SQL(", ").join(_plain(each) for each in wanted),
        table=session.name(spec.table(physical)),
        conditions=sql.SQL(" AND ").join(conditions),
    )
    by_column = list(zip(*found, strict=True)) or [()] * len(wanted)
    arrays = [_array(values, schema.field(each.name).type) for each, values in zip(wanted, by_column, strict=True)]
    return pa.Table.from_arrays(arrays, schema=pa.schema([schema.field(each.name) for each in wanted]))


def _equals(spec: TableSpec, name: str, value: Any) -> sql.Composed:
    kind = spec.type_of(name)
    if value is None:
        return sql.SQL("{} IS NULL").format(Name(name))
    return sql.SQL("{} = CAST(%s AS {})").format(Name(name), plain_type(kind))


def _plain(column: Column) -> sql.Composed:
    """Dates and moments as numbers: Python has none before the year 1 or after 9999."""
    name = Name(column.name)
    match column.type.name:
        case TypeName.DATE:
            return sql.SQL("{} - DATE '1970-01-01'").format(name)
        case TypeName.TIMESTAMP:
            # In two steps: the server rounds microseconds that are very far away.
            return sql.SQL(
                "CAST(extract(epoch FROM date_trunc('second', {0})) AS bigint) * 1000000 "
                "+ CAST(extract(microseconds FROM {0}) AS bigint) %% 1000000"
            ).format(name)
    return sql.Composed([name])


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array[Any]:
    import pyarrow as pa

    if pa.types.is_date32(kind):
        return pa.array(values, pa.int32()).view(kind)
    if pa.types.is_timestamp(kind):
        return pa.array(values, pa.int64()).view(kind)
    return pa.array(values, kind)
