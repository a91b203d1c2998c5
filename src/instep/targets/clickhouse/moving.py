"""Rows that moved out: which of those that tasks staged delete something. An insert cannot ask that of its own rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from instep.clickhouse.session import Session, quoted
from instep.domain.columns import INT32, INT64, STRING
from instep.targets.clickhouse.layout import stored_type
from instep.targets.clickhouse.reading import below, live
from instep.targets.clickhouse.staging import StagedFile, staged_rows
from instep.targets.table_target import VERSION, TableSpec, arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

#: Rows are asked for by so many keys at once, at most so often: of more, all in the namespace are read.
_KEYS, _TIMES = 1_000, 20

_BY_VALUE = (INT32, INT64, STRING)
_THERE = "_there"


def leaving(
    session: Session, database: str, physical: str, spec: TableSpec, files: Sequence[StagedFile], *, prefix: str
) -> Iterator[pa.Table]:
    """For each of the files its rows of which an older version is below `prefix`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    schema = arrow_schema(spec)
    for file in files:
        staged = staged_rows(file.path).cast(pa.schema([each.with_nullable(True) for each in schema]))
        there = pa.concat_tables(_there(session, live(database, physical, spec), spec, staged, prefix))
        there = there.rename_columns([*spec.key, _THERE])
        found = staged.join(there, list(spec.key), join_type="inner")
        yield found.filter(pc.greater(found[VERSION], found[_THERE])).select(schema.names).cast(schema)


def count(tables: Iterator[pa.Table], spec: TableSpec) -> int:
    """How many rows they delete."""
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
