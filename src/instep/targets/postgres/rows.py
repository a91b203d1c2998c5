"""Rows of a physical index: queries, the move of staged rows into it, and deletes.

Every writer locks rows of a table in the order of the key, so two writers of the same rows cannot deadlock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from psycopg import sql

from instep.domain.columns import Column, TypeName
from instep.errors import UserError
from instep.postgres.connection import Name, Session, names
from instep.targets.postgres.layout import plain_type
from instep.targets.postgres.staging import TASK
from instep.targets.table_target import (
    DELETED,
    INSTANCE,
    REF,
    VERSION,
    Held,
    Moved,
    TableSpec,
    arrow_schema,
    checked_prefix,
)

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


#: For sorting the rows of a wave.
_MEMORY = "64MB"


def merge(session: Session, physical: str, spec: TableSpec, staged: str, tasks: Sequence[int]) -> None:
    """Merge staged rows: of all rows of a key, staged or stored, that one stays which `instep.targets.table_target`
    says.
    """
    session.run("SELECT set_config('work_mem', %s, true)", _MEMORY)
    others = [each.name for each in spec.all_columns if each.name not in spec.key]
    columns = names([each.name for each in spec.all_columns])
    session.run(
        "INSERT INTO {table} AS there ({columns}) "
        "SELECT DISTINCT ON ({key}) {columns} FROM (SELECT {values} FROM {staged} WHERE {task} = ANY(%s)) AS staged "
        "ORDER BY {key}, {version} DESC, {deleted} "
        "ON CONFLICT ({key}) DO UPDATE SET {changes} "
        "WHERE (excluded.{version}, NOT excluded.{deleted}) >= (there.{version}, NOT there.{deleted})",
        list(tasks),
        table=session.name(spec.table(physical)),
        columns=columns,
        key=names(spec.key),
        values=_values(spec),
        staged=session.name(staged),
        task=Name(TASK),
        version=Name(VERSION),
        deleted=Name(DELETED),
        changes=sql.SQL(", ").join(sql.SQL("{0} = excluded.{0}").format(Name(name)) for name in others),
    )


def _values(spec: TableSpec) -> sql.Composed:
    """Columns of a staged row in the types of the table."""
    return sql.SQL(", ").join(
        sql.SQL("CAST({0} AS {1}) AS {0}").format(Name(each.name), plain_type(each.type))
        if each.type.name is TypeName.DECIMAL
        else Name(each.name)
        for each in spec.all_columns
    )


def leaving(
    session: Session, physical: str, spec: TableSpec, staged: str, tasks: Sequence[int], *, moved: Moved, prefix: str
) -> int:
    """The number of rows below `prefix` that the moved ones of these tasks delete."""
    found, values = _leaving(session, physical, spec, staged, tasks, moved=moved, prefix=prefix)
    ((count,),) = session.run("SELECT count(*) {found}", *values, found=found)
    return int(count)


def delete_moved(
    session: Session, physical: str, spec: TableSpec, staged: str, tasks: Sequence[int], *, moved: Moved, prefix: str
) -> None:
    """Delete these rows: so that it is remembered, or for good."""
    found, values = _leaving(session, physical, spec, staged, tasks, moved=moved, prefix=prefix)
    marks = (REF, INSTANCE, VERSION, DELETED)
    deletion = (
        "DELETE FROM {table} AS there USING doomed WHERE {same}"
        if moved == "forgotten"
        else "UPDATE {table} AS there SET {changes} FROM doomed WHERE {same}"
    )
    session.run(
        "WITH doomed AS MATERIALIZED (SELECT {moved} {found} ORDER BY {key} FOR UPDATE OF there) " + deletion,
        *values,
        moved=sql.SQL(", ").join(Name("moved", each) for each in (*spec.key, *marks)),
        found=found,
        key=sql.SQL(", ").join(Name("there", each) for each in spec.key),
        table=session.name(spec.table(physical)),
        changes=sql.SQL(", ").join(sql.SQL("{} = {}").format(Name(each), Name("doomed", each)) for each in marks),
        same=_same(spec, "doomed"),
    )


def _leaving(
    session: Session, physical: str, spec: TableSpec, staged: str, tasks: Sequence[int], *, moved: Moved, prefix: str
) -> tuple[sql.Composed, list[Any]]:
    """The part after a SELECT of rows `there`, and of `moved` ones of them."""
    below, bounds = below_prefix(Name("there", checked_prefix(spec, prefix)), prefix)
    later = sql.SQL("TRUE" if moved == "forgotten" else "{after} > {before}")
    found = sql.SQL(
        "FROM {table} AS there JOIN (SELECT DISTINCT ON ({key}) {values} FROM {staged} WHERE {task} = ANY(%s) "
        "ORDER BY {key}, {version} DESC) AS moved ON {same} WHERE NOT {gone} AND {below} AND {later}"
    ).format(
        table=session.name(spec.table(physical)),
        key=names(spec.key),
        values=_values(spec),
        staged=session.name(staged),
        task=Name(TASK),
        version=Name(VERSION),
        same=_same(spec, "moved"),
        gone=Name("there", DELETED),
        below=below,
        later=later.format(after=Name("moved", VERSION), before=Name("there", VERSION)),
    )
    return found, [list(tasks), *bounds]


def _same(spec: TableSpec, other: str) -> sql.Composed:
    return sql.SQL(" AND ").join(sql.SQL("{} = {}").format(Name("there", name), Name(other, name)) for name in spec.key)


def delete(session: Session, physical: str, spec: TableSpec, *, prefix: str, but: str | None) -> None:
    """Delete rows of the namespaces below `prefix` (all if empty), except those of instance `but`, for good."""
    conditions: list[sql.Composable] = []
    values: list[str] = []
    if prefix:
        below, bounds = below_prefix(Name("there", checked_prefix(spec, prefix)), prefix)
        conditions.append(below)
        values += bounds
    if but is not None:
        conditions.append(sql.SQL("{} <> %s").format(Name("there", INSTANCE)))
        values.append(but)
    if not conditions:
        raise UserError("a sweep of everything: drop the index instead")
    condition = sql.SQL(" AND ").join(conditions)
    session.run(
        "WITH doomed AS MATERIALIZED (SELECT {key} FROM {table} AS there WHERE {condition} ORDER BY {key} FOR UPDATE) "
        "DELETE FROM {table} AS there USING doomed WHERE {same}",
        *values,
        key=names(spec.key),
        table=session.name(spec.table(physical)),
        condition=condition,
        same=_same(spec, "doomed"),
    )
