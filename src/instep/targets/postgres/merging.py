"""From staged rows to rows of the index, and rows out of it.

Whoever writes rows of a table locks them in the order of the key: two who write the same rows wait, in one order.
"""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from instep.domain.columns import TypeName
from instep.errors import UserError
from instep.postgres.connection import Name, Session, names
from instep.targets.postgres.layout import plain_type
from instep.targets.postgres.reading import below_prefix
from instep.targets.postgres.staging import TASK
from instep.targets.table_target import DELETED, INSTANCE, VERSION, TableSpec, checked_prefix

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
        same=sql.SQL(" AND ").join(
            sql.SQL("{} = {}").format(Name("there", name), Name("doomed", name)) for name in spec.key
        ),
    )
