"""Queries on one physical index, and on rows that tasks staged for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from instep.clickhouse.session import Session, quoted, records
from instep.domain.columns import INT32, INT64, STRING, TypeName
from instep.errors import UserError
from instep.targets.clickhouse.layout import RANK, stored_type
from instep.targets.clickhouse.staging import StagedFile, staged_rows
from instep.targets.table_target import DELETED, INSTANCE, VERSION, Held, TableSpec, arrow_schema, checked_prefix

if TYPE_CHECKING:
    import pyarrow as pa


def select(database: str, physical: str, spec: TableSpec) -> str:
    """The query of an alias's view: the table's own columns, and the origin of a row."""
    shown = ", ".join(quoted(each.name) for each in spec.all_columns if each.name != DELETED)
    return f"SELECT {shown} FROM {live(database, physical, spec)}"


def count(session: Session, database: str, physical: str, spec: TableSpec) -> int:
    return int(records(session, f"SELECT count() AS n FROM {live(database, physical, spec)}")[0]["n"])


def held(session: Session, database: str, physical: str, spec: TableSpec, instance: str, *, prefix: str) -> Held:
    mine = f"{INSTANCE} = {{instance:String}}"
    conditions = [live(database, physical, spec), *([below(spec, prefix)] if prefix else [])]
    sql = f"SELECT countIf({mine}) AS mine, countIf(NOT {mine}) AS others FROM {' AND '.join(conditions)}"
    (found,) = records(session, sql, instance=instance, prefix=prefix)
    return Held(int(found["mine"]), int(found["others"]))


def read(
    session: Session,
    database: str,
    physical: str,
    spec: TableSpec,
    *,
    where: Mapping[str, Any],
    columns: Sequence[str] | None,
) -> pa.Table:
    import pyarrow as pa

    schema = arrow_schema(spec)
    for name in columns or ():
        spec.type_of(name)
    wanted = schema if columns is None else pa.schema([schema.field(name) for name in columns])
    conditions, values = [], {}
    for number, (name, value) in enumerate(where.items()):
        conditions.append(_equals(spec, name, f"w{number}", value))
        if value is not None:
            values[f"w{number}"] = value
    sql = f"SELECT {', '.join(quoted(name) for name in wanted.names)} FROM {live(database, physical, spec)}"
    found = session.arrow(" AND ".join([sql, *conditions]), **values)
    return found.select(wanted.names).cast(wanted)


def live(database: str, physical: str, spec: TableSpec) -> str:
    """A FROM clause for live rows, to which conditions can be added."""
    return f"{quoted(database, spec.table(physical))} FINAL WHERE NOT {DELETED}"


def below(spec: TableSpec, prefix: str) -> str:
    """The condition of rows below the `prefix` that is bound."""
    return f"startsWith({quoted(checked_prefix(spec, prefix))}, {{prefix:String}})"


def _equals(spec: TableSpec, name: str, parameter: str, value: Any) -> str:
    kind = spec.type_of(name)
    if value is None:
        return f"{quoted(name)} IS NULL"
    if kind.name is TypeName.BYTES:
        return f"{quoted(name)} = unhex({{{parameter}:String}})"
    return f"{quoted(name)} = {{{parameter}:{stored_type(kind)}}}"


def delete(
    session: Session, database: str, physical: str, spec: TableSpec, *, prefix: str, but: str | None = None
) -> None:
    """Delete rows of the namespaces below `prefix` (all if empty), except those of instance `but`, for good. Without
    it what is remembered of deleted rows goes, too.

    By key: an older row of theirs, from another namespace perhaps, must not come back in their place.
    """
    conditions = []
    if prefix:
        conditions.append(below(spec, prefix))
    if but is not None:
        conditions.append(f"{INSTANCE} != {{instance:String}}")
    if not conditions:
        raise UserError("a sweep of everything: drop the index instead")
    key = ", ".join(quoted(name) for name in spec.key)
    table = quoted(database, spec.table(physical))
    if but is None:  # FINAL would hide what is remembered of deleted rows.
        columns = ", ".join(map(quoted, dict.fromkeys([*spec.key, checked_prefix(spec, prefix)])))
        among = f"({key}) IN (SELECT {key} FROM {table} WHERE {conditions[0]})"
        newest = f"SELECT {columns} FROM {table} WHERE {among} ORDER BY {RANK} DESC LIMIT 1 BY {key}"
        found = f"SELECT {key} FROM ({newest}) WHERE {conditions[0]}"
    else:
        found = f"SELECT {key} FROM {live(database, physical, spec)} AND {' AND '.join(conditions)}"
    session.command(
        f"DELETE FROM {table} WHERE ({key}) IN ({found}) SETTINGS lightweight_deletes_sync = 2",
        prefix=prefix,
        instance=but or "",
    )


#: Rows are asked for by so many keys at once, at most so often: of more, all in the namespace are read.
_KEYS, _TIMES = 1_000, 20

_BY_VALUE = (INT32, INT64, STRING)
_THERE = "_there"


def leaving(
    session: Session, database: str, physical: str, spec: TableSpec, files: Sequence[StagedFile], *, prefix: str
) -> Iterator[pa.Table]:
    """For each of the files those rows of which an older version is below `prefix`, or of forgotten ones any version.

    Of these the deletion is just later than what it deletes: here nothing is deleted for good.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    schema = arrow_schema(spec)
    for file in files:
        staged = staged_rows(file.path).cast(pa.schema([each.with_nullable(True) for each in schema]))
        there = pa.concat_tables(_there(session, live(database, physical, spec), spec, staged, prefix))
        there = there.rename_columns([*spec.key, _THERE])
        found = staged.join(there, list(spec.key), join_type="inner")
        if file.moved == "forgotten":
            found = found.set_column(found.schema.get_field_index(VERSION), VERSION, pc.add(found[_THERE], 1))
        yield found.filter(pc.greater(found[VERSION], found[_THERE])).select(schema.names).cast(schema)


def count_moved(tables: Iterator[pa.Table], spec: TableSpec) -> int:
    """The number of rows that they delete."""
    import pyarrow as pa

    keys = [each.select(spec.key) for each in tables]
    return int(pa.concat_tables(keys).group_by(list(spec.key)).aggregate([]).num_rows) if keys else 0


def _there(session: Session, rows: str, spec: TableSpec, staged: pa.Table, prefix: str) -> Iterator[pa.Table]:
    import pyarrow as pa

    schema = pa.schema([arrow_schema(spec).field(name) for name in (*spec.key, VERSION)])
    sql = f"SELECT {', '.join(map(quoted, schema.names))} FROM {rows} AND {below(spec, prefix)}"
    asked = [name for name in spec.key if spec.type_of(name) in _BY_VALUE]
    few = bool(asked) and staged.num_rows <= _KEYS * _TIMES
    portion = _KEYS if few else max(1, staged.num_rows)
    for at in range(0, max(1, staged.num_rows), portion):
        conditions, values = [], dict[str, Any]()
        for number, name in enumerate(asked if few else ()):
            conditions.append(f"{quoted(name)} IN {{k{number}:Array({stored_type(spec.type_of(name))})}}")
            values[f"k{number}"] = staged[name].slice(at, portion).unique().to_pylist()
        yield session.arrow(" AND ".join([sql, *conditions]), prefix=prefix, **values).cast(schema)
