"""Move staged rows into the index, and delete rows from it.

Whoever writes rows of a table locks them in the order of the key: two who write the same rows wait, in one order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg import sql

from instep.domain.columns import TypeName
from instep.errors import UserError
from instep.postgres.connection import Name, Session, names
from instep.targets.postgres.layout import plain_type
from instep.targets.postgres.reading import below_prefix
from instep.targets.postgres.staging import TASK
from instep.targets.table_target import DELETED, INSTANCE, REF, VERSION, TableSpec, checked_prefix

#: For sorting the rows of a wave.
_MEMORY = "64MB"


def merge(session: Session, physical: str, spec: TableSpec, staged: str, tasks: Sequence[int]) -> None:
    """Of all rows of a key, staged or there, that one stays which `instep.targets.table_target` says."""
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


def leaving(session: Session, physical: str, spec: TableSpec, staged: str, tasks: Sequence[int], *, prefix: str) -> int:
    """How many rows below `prefix` the moved ones that these tasks staged delete."""
    found, values = _leaving(session, physical, spec, staged, tasks, prefix=prefix)
    ((count,),) = session.run("SELECT count(*) {found}", *values, found=found)
    return int(count)


def delete_moved(
    session: Session, physical: str, spec: TableSpec, staged: str, tasks: Sequence[int], *, prefix: str
) -> None:
    """Delete these rows, so that it is remembered."""
    found, values = _leaving(session, physical, spec, staged, tasks, prefix=prefix)
    marks = (REF, INSTANCE, VERSION, DELETED)
    session.run(
        "WITH doomed AS MATERIALIZED (SELECT {moved} {found} ORDER BY {key} FOR UPDATE OF there) "
        "UPDATE {table} AS there SET {changes} FROM doomed WHERE {same}",
        *values,
        moved=sql.SQL(", ").join(Name("moved", each) for each in (*spec.key, *marks)),
        found=found,
        key=sql.SQL(", ").join(Name("there", each) for each in spec.key),
        table=session.name(spec.table(physical)),
        changes=sql.SQL(", ").join(sql.SQL("{} = {}").format(Name(each), Name("doomed", each)) for each in marks),
        same=_same(spec, "doomed"),
    )


def _leaving(
    session: Session, physical: str, spec: TableSpec, staged: str, tasks: Sequence[int], *, prefix: str
) -> tuple[sql.Composed, list[Any]]:
    """What comes after a SELECT of rows `there`, and of what `moved` of them."""
    below, bounds = below_prefix(Name("there", checked_prefix(spec, prefix)), prefix)
    found = sql.SQL(
        "FROM {table} AS there JOIN (SELECT DISTINCT ON ({key}) {values} FROM {staged} WHERE {task} = ANY(%s) "
        "ORDER BY {key}, {version} DESC) AS moved ON {same} WHERE NOT {gone} AND {below} AND {after} > {before}"
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
        after=Name("moved", VERSION),
        before=Name("there", VERSION),
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
